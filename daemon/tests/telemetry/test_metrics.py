"""Metrics that alerts stand on: what ended, and as what, is there from the start and counted; the
process is seen, too.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from cursorkeeper.access.callers import Shown
from cursorkeeper.compiled import IS_COMPILED
from cursorkeeper.core.names import CursorName
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.stream.session import Session
from cursorkeeper.stream.wire import source_message
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from cursorkeeper_client._proto import acks_pb2 as pb
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.guards import guard
from daemon.tests.support.outboxes import next_message
from daemon.tests.support.world import Source, World, acks


def test_cursors_that_end_are_counted_by_state_from_zero_on() -> None:
    telemetry = DaemonTelemetry()

    def ended(state: str) -> float | None:
        return telemetry.registry.get_sample_value(
            "cursorkeeper_cursors_ended_total", {"state": state}
        )

    assert [ended(state) for state in ("CLOSED", "DELETED", "DEPOSED", "REFUSED")] == [0, 0, 0, 0]
    telemetry.log("cursor ended", cursor="t|s", state="DEPOSED", epoch=3)
    assert (ended("DEPOSED"), ended("CLOSED")) == (1, 0)
    assert (
        telemetry.registry.get_sample_value("cursorkeeper_events_total", {"event": "cursor ended"})
        == 1
    )


def test_the_process_is_on_the_page() -> None:
    telemetry = DaemonTelemetry()
    assert (telemetry.registry.get_sample_value("process_resident_memory_bytes") or 0) > 1 << 20
    assert (telemetry.registry.get_sample_value("process_start_time_seconds") or 0) > 0


class Page:
    """What the metrics' page says."""

    def __init__(self, telemetry: DaemonTelemetry) -> None:
        self.telemetry = telemetry

    def __call__(self, name: str, **labels: str) -> float:
        found = self.telemetry.registry.get_sample_value(f"cursorkeeper_{name}", labels)
        assert found is not None, (name, labels)
        return found


@virtual
async def test_counters_of_cursors_that_ended_count_on() -> None:
    world = World()
    keeper, page = await watched(world)
    ends = {"closed": Source.send_close, "taken over": None, "reopened": Source.send_close}
    before = page("new_acks_total")
    for number, (end, send) in enumerate(ends.items()):
        source = Source(keeper, CursorName("persistent://t/ns/topic", end))
        await source.open()
        source.ack(acks(7, *range(0, 20, 2)))
        await source.durable()
        assert page("new_acks_total") == before + 10 * (number + 1), end
        if send is not None:
            send(source)
        else:
            other = Source(await world.keeper("other"), source.name)
            await other.open()
        if end == "reopened":  # the name has a new cursor before the old one was let go
            source = Source(keeper, source.name)
            await source.open()
        else:
            await source.told.until(lambda source=source: bool(source.told.ended))  # type: ignore[misc]
        assert page("new_acks_total") == before + 10 * (number + 1), end
        assert page("flushes_total") >= number + 1, end
    await keeper.close()
    assert page("new_acks_total") == before + 30, "what was stopped counts as well"


@virtual
async def test_opens_recoveries_and_refusals() -> None:
    keeper, page = await watched(World())
    session = Session(keeper, guard(), Shown(), name="k", incarnation="1")

    def send(**message: object) -> None:
        whole = pb.SourceMessage(**message)  # type: ignore[arg-type]
        session.receive(source_message(whole.SerializeToString()))

    async def answered(kind: str) -> None:
        async with asyncio.timeout(60):
            while (message := await next_message(session.outbox)) is not None:
                if message.WhichOneof("message") == kind:
                    break

    def ask(handle: int, **more: bool) -> None:
        send(
            open_cursor=pb.OpenCursor(
                handle=handle, topic="persistent://t/ns/topic", subscription="s", **more
            )
        )  # type: ignore[arg-type]

    send(hello=pb.Hello(name="t", protocol_versions=[1]))
    assert (page("opens_total", result="OPENED"), page("refusals_total", code="NOT_FOUND")) == (
        0,
        0,
    )
    ask(1)
    await answered("refused")
    assert (page("opens_total", result="NOT_FOUND"), page("refusals_total", code="NOT_FOUND")) == (
        1,
        1,
    )
    ask(1, create=True)
    await answered("credit")
    assert (page("opens_total", result="OPENED"), page("recovery_seconds_count")) == (1, 1)
    ask(2, create=True)
    await answered("refused")
    assert (
        page("opens_total", result="ALREADY_OPEN"),
        page("refusals_total", code="ALREADY_OPEN"),
    ) == (1, 1)
    send(ack_batch=pb.AckBatch(handle=1, seq=1, ledgers=[pb.LedgerAcks(ledger_id=5, entries=[1])]))
    await answered("refused")
    assert page("refusals_total", code="BAD_MESSAGE") == 1, "a batch without its generation"
    assert page("opens_total", result="BAD_MESSAGE") == 0, "its Open was answered before"
    ask(1, takeover=True)
    await answered("credit")
    assert (page("opens_total", result="OPENED"), page("recovery_seconds_count")) == (2, 1), (
        "it was held here: nothing was recovered"
    )
    send(
        open_cursor=pb.OpenCursor(
            handle=3, topic="persistent://t/ns/other", subscription="s", create=True
        )
    )
    session.end()
    assert page("opens_total", result="GONE") == 1


async def watched(world: World) -> tuple[Keeper, Page]:
    """A keeper whose telemetry is the daemon's."""
    telemetry = DaemonTelemetry()
    keeper = await world.keeper(telemetry=telemetry)
    telemetry.watch(keeper)
    return keeper, Page(telemetry)


def test_the_page_says_what_runs() -> None:
    (family,) = (
        m for m in DaemonTelemetry().registry.collect() if m.name == "cursorkeeper_build_info"
    )
    (sample,) = family.samples
    assert (
        sample.value == 1
        and sample.labels["version"] == version("cursorkeeper")
        and sample.labels["python"]
        and sample.labels["core"] == ("compiled" if IS_COMPILED else "interpreted")
    )
