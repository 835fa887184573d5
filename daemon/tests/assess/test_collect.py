"""A cluster on fakes, looked at as the command does: rows, errors that stay with their cursor,
sums, and where words come from.
"""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyroaring import BitMap

from cursorkeeper.assess.collect import NOT_IN_MEMORY, NOT_IN_ZOOKEEPER, Assessment
from cursorkeeper.assess.internals import InternalsError, TopicInternals
from cursorkeeper.assess.memory import AdminAway, Broker, Memory, Nobody, Saved, saved_name
from cursorkeeper.assess.totals import Row, Totals
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from cursorkeeper.migration.cluster import Selection, SkippedPath, nobody
from cursorkeeper.migration.errors import MigrationError
from cursorkeeper.migration.patience import Patience
from cursorkeeper.problems import Kind
from cursorkeeper.pulsar_broker.model import Reason, what_pulsar_keeps
from cursorkeeper.pulsar_broker.settings import of_version
from cursorkeeper.zookeeper.settings import ZooKeeperSettings
from daemon.tests.assess.pulsar_cluster import TOPIC, PulsarCluster, told
from daemon.tests.assess.states import backlog, layout_of

DEFAULT = of_version("4.2.4")
LAYOUT = [(7, 100), (9, 50)]
SMALL = PositionInfo(Position(7, 4), {7: BitMap([6, 7])}, form=Form.RANGES)
AHEAD = PositionInfo(Position(7, 7), {7: BitMap([9]), 9: BitMap([0, 1])}, form=Form.RANGES)


@pytest.fixture
async def cluster() -> PulsarCluster:
    return await PulsarCluster().start()


async def rows(
    cluster: PulsarCluster,
    memory: Memory | None = None,
    selection: Selection | None = None,
    jobs: int = 4,
    compare: bool = False,
    skipped: Callable[[SkippedPath], None] = nobody,
) -> list[Row]:
    work = Assessment(await cluster.reader(), memory or Nobody(), DEFAULT, compare, Patience(0.2))
    return [
        row
        async for row in work.rows(selection or Selection.everything(), jobs=jobs, skipped=skipped)
    ]


def saved(folder: Path, answers: dict[str, Any]) -> Saved:
    (folder / "stats.json").write_text(json.dumps(answers))
    return Saved(folder / "stats.json")


async def test_the_bad_case_from_both_sides(cluster: PulsarCluster, tmp_path: Path) -> None:
    layout = [(ledger, entries or 0) for ledger, entries in layout_of(1_000_000).items()]
    memory = backlog(1_000_000)
    await cluster.topic([*layout, (layout[-1][0] + 1, 0)])
    await cluster.kept(what_pulsar_keeps(memory, DEFAULT))
    (without,) = await rows(cluster)
    assert without.verdict is not None and not without.verdict.is_exact
    assert (without.verdict.redelivered, without.verdict.beyond_cap) == (0, 950_000)
    (row,) = await rows(
        cluster, saved(tmp_path, {TOPIC: told(layout, {"sub": memory})}), compare=True
    )
    assert row.verdict is not None and row.verdict.is_exact
    assert row.verdict.by_reason == {Reason.ENTRY_CAP: 950_000}
    assert row.verdict.native and row.verdict.native.bytes < 2_000
    assert any("live cursor ledger" in note for note in row.notes)


async def test_the_window_of_a_cursor_in_the_znode(cluster: PulsarCluster, tmp_path: Path) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(SMALL)
    (row,) = await rows(cluster, saved(tmp_path, {TOPIC: told(LAYOUT, {"sub": AHEAD})}))
    assert row.verdict is not None
    assert row.verdict.by_reason == {Reason.WINDOW: 4}, (
        "7:5, 7:9, 9:0 and 9:1; 7:6 and 7:7 are stored"
    )


async def test_names_that_are_encoded_are_found(cluster: PulsarCluster, tmp_path: Path) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(SMALL, "a b/ü")
    for name in ("a b/ü", "a+b%2F%C3%BC"):
        (row,) = await rows(cluster, saved(tmp_path, {TOPIC: told(LAYOUT, {name: AHEAD})}))
        assert row.verdict is not None and row.verdict.redelivered == 4


async def test_a_cursor_of_one_side_only(cluster: PulsarCluster, tmp_path: Path) -> None:
    await cluster.topic(LAYOUT)
    for name in ("both", "only-stored"):
        await cluster.inline(SMALL, name)
    memory = saved(tmp_path, {TOPIC: told(LAYOUT, {"both": SMALL, "reader-1": AHEAD})})
    skipped: list[SkippedPath] = []
    found = {row.subscription: row for row in await rows(cluster, memory, skipped=skipped.append)}
    assert found["both"].verdict is not None and not found["both"].verdict.is_at_risk
    assert NOT_IN_MEMORY in found["only-stored"].error
    assert "reader-1" not in found, (
        "a reader of the broker's memory has nothing stored that could be lost"
    )
    assert skipped == [SkippedPath(f"{TOPIC}|reader-1", NOT_IN_ZOOKEEPER)]
    chosen = await rows(cluster, memory, Selection.of_topic(TOPIC, "both"), skipped=skipped.append)
    assert [row.subscription for row in chosen] == ["both"] and len(skipped) == 1, (
        "the other names were not asked for"
    )


async def test_acks_in_ledgers_that_the_topic_no_longer_has_are_not_counted(
    cluster: PulsarCluster, tmp_path: Path
) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(SMALL)
    odd = PositionInfo(Position(7, 4), {7: BitMap([6, 7]), 8: BitMap([1, 2, 3])}, form=Form.RANGES)
    (row,) = await rows(cluster, saved(tmp_path, {TOPIC: told(LAYOUT, {"sub": odd})}), compare=True)
    assert row.verdict is not None and row.verdict.redelivered == 0 and row.verdict.native


async def test_damage_stays_with_its_cursor(cluster: PulsarCluster) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(SMALL, "fine")
    await cluster.put(b"\x47\x78\x00\x00\x00\x04\x08\x02", "damaged")
    gone = await cluster.in_ledger(SMALL, "gone")
    spoilt = await cluster.in_ledger(SMALL, "spoilt")
    await cluster.gateway.delete(gone)
    cluster.bookkeeper.ledgers[spoilt].entries[0] = b"\x08\x07\x10\xff"
    found = {row.subscription: row for row in await rows(cluster)}
    assert found["fine"].verdict is not None and not found["fine"].verdict.is_at_risk
    for name in ("damaged", "spoilt"):
        assert found[name].verdict is None and found[name].error and found[name].remedy, name
    lost = found["gone"].verdict
    assert lost is not None and lost.is_at_risk and lost.beyond_cap == 100, (
        "Pulsar would roll back to the znode's mark-delete"
    )
    assert any("ROLLED BACK" in note for note in found["gone"].notes)


async def test_a_topic_whose_answer_is_broken(cluster: PulsarCluster, tmp_path: Path) -> None:
    other = "persistent://t/ns/other"
    for topic in (TOPIC, other):
        await cluster.topic(LAYOUT, topic)
        await cluster.inline(SMALL, topic=topic)
    answers = {TOPIC: {"ledgers": 7, "cursors": {}}, other: told(LAYOUT, {"sub": SMALL})}
    found = {row.topic: row for row in await rows(cluster, saved(tmp_path, answers))}
    assert "internalStats: ledgers" in found[TOPIC].error
    assert found[other].verdict is not None


async def test_batch_sets_of_a_znode(cluster: PulsarCluster) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(
        PositionInfo(
            Position(7, 4), {7: BitMap([6])}, {PartialKey(7, 8): BitMap([0, 2])}, form=Form.RANGES
        )
    )
    (row,) = await rows(cluster)
    assert row.verdict is not None and row.verdict.batches == 1 and row.verdict.is_at_risk


@pytest.mark.parametrize("jobs", [1, 3, 50])
async def test_many_topics_come_in_order_whatever_is_done_at_once(
    cluster: PulsarCluster, jobs: int
) -> None:
    topics = [f"persistent://t/ns/topic-{n:02}" for n in range(12)]
    for topic in topics:
        await cluster.topic(LAYOUT, topic)
        for name in ("a", "b"):
            await cluster.inline(SMALL, name, topic)
    found = await rows(cluster, jobs=jobs)
    assert [(r.topic, r.subscription) for r in found] == [
        (t, s) for t in topics for s in ("a", "b")
    ]


async def test_zookeeper_away_ends_the_run(cluster: PulsarCluster) -> None:
    await cluster.topic(LAYOUT)
    await cluster.inline(SMALL)
    work = Assessment(await cluster.reader(), Nobody(), DEFAULT, patience=Patience(0.05))
    cluster.zookeeper.settings = ZooKeeperSettings(request_timeout_s=0.1)
    cluster.zookeeper.disconnect(60)
    with pytest.raises(MigrationError) as raised:
        [row async for row in work.rows(Selection.everything())]
    assert raised.value.kind is Kind.AWAY


# ---- where words come from


class _Answers(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes, dict[str, str]]]] = {}
    seen: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization", "")))
        code, body, headers = self.answers.get(
            self.path, (404, b'{"reason":"Topic not found"}', {})
        )
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


class _Babble(socketserver.BaseRequestHandler):
    """Answers what is no HTTP."""

    def handle(self) -> None:
        self.request.recv(4_096)
        self.request.sendall(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00")


@contextmanager
def broker(
    answers: dict[str, tuple[int, bytes, dict[str, str]]],
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """An admin address on 127.0.0.1, and what it was asked."""
    handler = type("Handler", (_Answers,), {"answers": answers, "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.seen  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


PATH = "/admin/v2/persistent/t/ns/topic/internalStats"


async def test_the_broker_is_asked_by_its_rest_and_redirects_are_followed() -> None:
    body = json.dumps(told(LAYOUT, {"sub": AHEAD})).encode()
    with broker({PATH: (307, b"", {"Location": "/owner"}), "/owner": (200, body, {})}) as (
        url,
        seen,
    ):
        found = await Broker(f"{url}/", token="secret").topic(TOPIC)
    assert isinstance(found, TopicInternals) and found.cursors["sub"] == AHEAD
    assert seen[0] == (PATH, "Bearer secret")
    assert seen[1] == ("/owner", ""), "the token is not handed on to wherever a redirect leads"


async def test_odd_names_stay_one_part_of_the_path() -> None:
    with broker({}) as (url, seen):
        assert await Broker(url).topic("persistent://t/ns/a b/c?d") is None, (
            "not loaded: nothing is in memory"
        )
    assert seen[0][0] == "/admin/v2/persistent/t/ns/a%20b%2Fc%3Fd/internalStats"


@pytest.mark.parametrize(
    "answer", [(500, b"oops", {}), (401, b"", {}), (200, b"<html>", {}), (200, b"{}", {})]
)
async def test_what_the_broker_refuses_is_that_topics_error(
    answer: tuple[int, bytes, dict[str, str]],
) -> None:
    with broker({PATH: answer}) as (url, _), pytest.raises(InternalsError):
        await Broker(url).topic(TOPIC)


async def test_an_address_that_does_not_answer_ends_the_run() -> None:
    with broker({}) as (url, _):
        pass
    with pytest.raises(AdminAway):
        await Broker(url, timeout_s=60).topic(TOPIC)


async def test_an_address_that_is_no_web_service_ends_the_run() -> None:
    """The gateway's port, a bookie's, or one that is no number."""
    with socketserver.TCPServer(("127.0.0.1", 0), _Babble) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(AdminAway):
            await Broker(f"http://127.0.0.1:{server.server_address[1]}", timeout_s=5).topic(TOPIC)
        thread.join(60)
    with pytest.raises(AdminAway, match="8x"):
        await Broker("http://127.0.0.1:8x").topic(TOPIC)


async def test_a_token_that_a_redirect_did_not_take_along_is_told() -> None:
    with broker({PATH: (307, b"", {"Location": "/owner"}), "/owner": (401, b"", {})}) as (url, _):
        with pytest.raises(InternalsError) as refused:
            await Broker(url, token="secret").topic(TOPIC)
        with pytest.raises(InternalsError, match=r"^the broker answers 401 Unauthorized$"):
            await Broker(url).topic(TOPIC)
    assert (
        f"answers 401 Unauthorized at {url}/owner, where a redirect led: the token is not handed on"
        in str(refused.value)
    )


async def test_saved_answers_in_a_folder_a_map_or_alone(tmp_path: Path) -> None:
    answer = told(LAYOUT, {"sub": AHEAD})
    file = tmp_path / "folder" / saved_name("persistent://t/ns/a b")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(answer))
    assert file.relative_to(tmp_path / "folder") == Path("t/ns/a+b.json")
    folder = Saved(tmp_path / "folder")
    assert isinstance(await folder.topic("persistent://t/ns/a b"), TopicInternals)
    with pytest.raises(InternalsError, match="No such file"):
        await folder.topic(TOPIC)
    assert isinstance(await Saved(file, TOPIC).topic(TOPIC), TopicInternals)
    with pytest.raises(InternalsError, match="name the topic"):
        Saved(file)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InternalsError, match="neither"):
        Saved(tmp_path / "list.json")


# ---- the sum


async def test_the_sum_keeps_the_worst_and_counts_all() -> None:
    from cursorkeeper.assess.judge import Stored, judge

    totals = Totals(top=3)
    for n in range(10):
        memory = PositionInfo(Position(7, n), form=None)
        totals.add(
            Row(
                TOPIC,
                f"s{n}",
                judge(Stored(PositionInfo(Position(7, -1))), memory, {7: 100}, DEFAULT),
            )
        )
        await asyncio.sleep(0)
    for n in range(60):
        totals.add(Row(TOPIC, f"e{n}", error="broken"))
    assert [row.subscription for row in totals.worst] == ["s9", "s8", "s7"]
    assert (totals.cursors, totals.redelivered, totals.at_risk, totals.errors_count) == (
        70,
        55,
        10,
        60,
    )
    assert len(totals.errors) == 50
    assert totals.as_json()["byReason"] == {"window": 55} and totals.as_json()["exact"] is False
