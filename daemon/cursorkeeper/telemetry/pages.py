"""The HTTP server of /metrics, in threads of its own: the event loop's load does not make it late;
HTTPS where the daemon's settings say so.

Owns: how long a peer may take, and how many there may be. A request that is only half sent, and a
peer that speaks TLS, hold a thread for `REQUEST_MAX_S` at most; where too many are open, the oldest
goes, so that Prometheus is always answered.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from cursorkeeper.readiness import StartError
from cursorkeeper_client.tls import RenewedContext

CONNECTIONS_MAX = 32
REQUEST_MAX_S = 10.0
_STOP_MAX_S = 2.0


class _Handler(WSGIRequestHandler):
    """One request; a peer may be silent for so long in the middle of it."""

    timeout = REQUEST_MAX_S

    def log_message(self, format: str, *args: Any) -> None:  # the name is the base class's
        """Says nothing: scrapes are no news."""


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and so many connections."""

    daemon_threads = True
    request_queue_size = 4 * CONNECTIONS_MAX
    """Connections that wait to be accepted. Of more the kernel drops the first packet, and the peer
    tries again after seconds.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._open: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        self.tls: RenewedContext | None = None
        super().__init__(*arguments, **named)

    def get_request(self) -> Any:
        """With TLS the handshake is the first read's, in the thread of the connection."""
        connection, peer = super().get_request()
        if self.tls is None:
            return connection, peer
        wrapped = self.tls.context().wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return wrapped, peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """A new connection; the oldest one goes if there are too many."""
        with self._lock:
            self._open.append(request)
            oldest = self._open.popleft() if len(self._open) > CONNECTIONS_MAX else None
        if oldest is not None:
            with suppress(OSError):  # its thread closes it; it may just have done so
                # not the one of TLS, behind which its thread would go on in plain text
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock, suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that broke off is its own concern."""


class _Server6(Server):
    """The same for an IPv6 address."""

    address_family = socket.AF_INET6


def serve(
    registry: CollectorRegistry, host: str, port: int, tls: RenewedContext | None = None
) -> tuple[int, Callable[[], None]]:
    """Serves in a thread; returns the port and how to stop. Raises OSError."""
    kind = _Server6 if ":" in host else Server
    server = make_server(
        host, port, make_wsgi_app(registry), server_class=kind, handler_class=_Handler
    )
    server.tls = tls
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=_STOP_MAX_S)

    return int(server.server_port), stop


def serve_at(
    registry: CollectorRegistry, address: str, tls: RenewedContext | None = None
) -> tuple[str, Callable[[], None]]:
    """The same at host:port; returns where. Raises StartError."""
    host, _, port = address.rpartition(":")
    try:
        bound, stop = serve(registry, host.strip("[]"), int(port), tls)
    except OSError as e:
        raise StartError(
            f"cannot serve metrics on {address}: {e.strerror or e}; use --metrics-listen"
        ) from e
    return f"{host}:{bound}", stop
