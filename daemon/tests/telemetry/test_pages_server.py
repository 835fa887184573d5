"""The daemon's /metrics answers whatever others send it, and holds a bounded number of threads."""

from __future__ import annotations

import socket
import threading
import urllib.request
from contextlib import ExitStack
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from cursorkeeper.telemetry import pages

BEGINNINGS = (
    b"",
    b"GET /metr",
    b"GET /metrics HTTP/1.1\r\nX-Never-Ends: ",
    b"\x16\x03\x01\x00\xc5\x01\x00\x00\xc1\x03\x03",
)
ANSWER_MAX_S = 20.0


@pytest.mark.parametrize("host", ["127.0.0.1"])
def test_half_requests_and_other_protocols_keep_nobody_from_an_answer(host: str) -> None:
    registry = CollectorRegistry()
    Gauge("a_metric", "Of a test.", registry=registry).set(7)
    port, stop = pages.serve(registry, host, 0)
    before = threading.active_count()

    def scraped() -> str:
        with urllib.request.urlopen(
            f"http://{host}:{port}/metrics", timeout=ANSWER_MAX_S
        ) as answer:
            return str(answer.read().decode())

    with ExitStack() as stack:
        stack.callback(stop)
        for number in range(4 * pages.CONNECTIONS_MAX):
            peer = stack.enter_context(socket.create_connection((host, port), timeout=ANSWER_MAX_S))
            peer.sendall(BEGINNINGS[number % len(BEGINNINGS)])
            if number % 50 == 7:
                assert "a_metric 7.0" in scraped()
        assert "a_metric 7.0" in scraped()
        assert threading.active_count() - before <= 2 * pages.CONNECTIONS_MAX, (
            "those that went leave no thread"
        )


def test_a_burst_of_connections_waits_to_be_accepted() -> None:
    """Nobody accepts here. A peer that finds the queue full is not refused: its connection takes
    seconds.
    """
    server = make_server(
        "127.0.0.1", 0, make_wsgi_app(CollectorRegistry()), server_class=pages.Server
    )
    with ExitStack() as stack:
        stack.callback(server.server_close)
        for _ in range(2 * pages.CONNECTIONS_MAX):
            stack.enter_context(
                socket.create_connection(("127.0.0.1", server.server_port), timeout=ANSWER_MAX_S)
            )
