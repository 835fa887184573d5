"""What every `LedgerStore` does, checked on the fake and on a real BookKeeper behind the real
gateway.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable

import pytest

from cursorkeeper.bookkeeper import (
    Digest,
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    LedgerSpec,
    LedgerState,
    LedgerStore,
    NoSuchLedger,
    Outcome,
    ReadChunk,
)
from daemon.tests.bookkeeper.worlds import World

OURS = {"application": b"cursorkeeper", "cursor": b"t|s"}
PULSAR_DATA = {
    "application": b"pulsar",
    "component": b"managed-ledger",
    "pulsar/managed-ledger": b"t/n/persistent/topic",
}
PULSAR_CURSOR = {**PULSAR_DATA, "pulsar/cursor": b"sub"}
SPEC = LedgerSpec()


async def written(store: LedgerStore, count: int, size: int = 20) -> int:
    """A ledger with that many acknowledged entries, written one after the other."""
    ledger = await store.create(SPEC, OURS)
    for entry in range(count):
        await store.append(ledger, entry, payload(entry, size))
    return ledger


def payload(entry: int, size: int = 20) -> bytes:
    return (b"%d:" % entry).ljust(size, b".")


async def chunks(
    store: LedgerStore, ledger: int, first: int = 0, last: int = -1, max_bytes: int = 0
) -> list[ReadChunk]:
    return [chunk async for chunk in store.read(ledger, first, last, max_bytes=max_bytes)]


async def payloads(store: LedgerStore, ledger: int, first: int = 0, last: int = -1) -> list[bytes]:
    return [p for chunk in await chunks(store, ledger, first, last) for p in chunk.payloads]


async def failure(waiting: Awaitable[object]) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await waiting
    return caught.value


async def test_what_was_appended_is_read_back_after_the_close(store: LedgerStore) -> None:
    ledger = await written(store, 5)
    assert await store.close_ledger(ledger) == (4, 100)
    assert await payloads(store, ledger) == [payload(e) for e in range(5)]
    assert await payloads(store, ledger, 1, 3) == [payload(e) for e in range(1, 4)]
    info = await store.metadata(ledger)
    assert (info.state, info.last_entry, info.length) == (LedgerState.CLOSED, 4, 100)
    assert (info.ensemble, info.write_quorum, info.ack_quorum, info.digest) == (
        3,
        3,
        2,
        SPEC.digest,
    )
    assert info.custom_metadata == OURS and info.created_ms > 0


async def test_appends_are_pipelined_and_complete_in_order(store: LedgerStore) -> None:
    ledgers = [await store.create(SPEC, OURS) for _ in range(4)]
    done: dict[int, list[int]] = {ledger: [] for ledger in ledgers}
    futures = []
    for entry in range(50):
        for ledger in ledgers:
            future = store.append(ledger, entry, payload(entry))
            future.add_done_callback(
                lambda _, ledger=ledger, entry=entry: done[ledger].append(entry)
            )
            futures.append(future)
    await asyncio.gather(*futures)
    assert all(entries == list(range(50)) for entries in done.values())
    for ledger in ledgers:
        assert (await store.close_ledger(ledger)).last_entry == 49


async def test_closing_waits_for_what_is_in_flight(store: LedgerStore) -> None:
    ledger = await store.create(SPEC, OURS)
    futures = [store.append(ledger, entry, payload(entry)) for entry in range(20)]
    await futures[0]
    assert (await store.close_ledger(ledger)).last_entry == 19
    await asyncio.gather(*futures)
    after = await failure(store.append(ledger, 20, b"late"))
    assert isinstance(after, GatewayRoll) and after.outcome is Outcome.NOT_DONE
    again = await failure(store.close_ledger(ledger))
    assert isinstance(again, GatewayRoll) and again.outcome is Outcome.NOT_DONE


async def test_chunks_respect_the_bytes_asked_for_and_hold_one_entry_at_least(
    store: LedgerStore,
) -> None:
    ledger = await written(store, 10, size=1000)
    await store.close_ledger(ledger)
    got = await chunks(store, ledger, max_bytes=2500)
    assert [len(c.payloads) for c in got] == [2] * 5
    assert [c.first_entry for c in got] == [0, 2, 4, 6, 8]
    assert all(c.closed and c.last_add_confirmed == 9 for c in got)
    assert [len(c.payloads) for c in await chunks(store, ledger, 8, 9, max_bytes=1)] == [1, 1]


async def test_an_open_ledger_shows_at_most_the_last_entry_but_one(store: LedgerStore) -> None:
    ledger = await written(store, 6)
    got = await chunks(store, ledger)
    assert [len(c.payloads) for c in got] == [5]
    assert (got[0].last_add_confirmed, got[0].closed) == (4, False)
    assert (await store.metadata(ledger)).state is LedgerState.OPEN
    # it ends there, without an error
    assert await payloads(store, ledger, 3, 100) == [payload(3), payload(4)]


async def test_an_unconfirmed_read_sees_the_newest_entry_and_leaves_the_writer_alone(
    world: World, store: LedgerStore
) -> None:
    ledger = await written(store, 6)
    reader = await world.client("reader")
    got = [chunk async for chunk in reader.read(ledger, 0, unconfirmed=True)]
    assert [p for c in got for p in c.payloads] == [payload(e) for e in range(6)]
    assert all((c.last_add_confirmed, c.closed, c.stopped_by) == (4, False, "") for c in got)
    newest = [chunk async for chunk in reader.read(ledger, 5, unconfirmed=True)]
    assert [(c.first_entry, c.payloads) for c in newest if c.payloads] == [(5, (payload(5),))]
    beyond = [chunk async for chunk in reader.read(ledger, 6, 40, unconfirmed=True)]
    assert beyond == [ReadChunk(6, (), 4, False)]
    assert [c.payloads async for c in reader.read(ledger, 2, 3, unconfirmed=True)] == [
        (payload(2), payload(3))
    ]
    await store.append(ledger, 6, payload(6))  # nobody was fenced
    assert await payloads(store, ledger) == [payload(e) for e in range(6)]


async def test_an_unconfirmed_read_of_an_empty_or_closed_ledger_is_as_any_other(
    store: LedgerStore,
) -> None:
    empty = await store.create(SPEC, OURS)
    assert [chunk async for chunk in store.read(empty, 0, unconfirmed=True)] == [
        ReadChunk(0, (), -1, False)
    ]
    first = await written(store, 1)
    assert [chunk async for chunk in store.read(first, 0, unconfirmed=True)] == [
        ReadChunk(0, (payload(0),), -1, False)
    ]
    await store.close_ledger(first)
    assert [chunk async for chunk in store.read(first, 0, unconfirmed=True)] == [
        ReadChunk(0, (payload(0),), 0, True)
    ]


async def test_an_empty_ledger_still_tells_its_end(store: LedgerStore) -> None:
    ledger = await store.create(SPEC, OURS)
    assert await chunks(store, ledger) == [ReadChunk(0, (), -1, False)]
    assert await store.fence(ledger, entries_bytes_max=1_000) == (-1, 0, ())
    assert await chunks(store, ledger) == [ReadChunk(0, (), -1, True)]


async def test_a_range_that_makes_no_sense_is_refused(store: LedgerStore) -> None:
    ledger = await written(store, 3)
    assert isinstance(await failure(chunks(store, ledger, 2, 1)), GatewayRefused)
    assert isinstance(await failure(chunks(store, ledger, -3)), GatewayRefused)


async def test_fencing_keeps_everything_acknowledged_and_stops_the_writer(
    store: LedgerStore,
) -> None:
    ledger = await written(store, 10)
    end = await store.fence(ledger)
    assert end.last_entry == 9
    assert await store.fence(ledger) == end  # repeating it gives the same end
    first = await failure(store.append(ledger, 10, b"late"))
    assert isinstance(first, GatewayFenced)
    second = await failure(store.append(ledger, 11, b"later"))
    assert isinstance(second, GatewayFenced | GatewayRoll) and second.outcome is Outcome.NOT_DONE
    assert await payloads(store, ledger) == [payload(e) for e in range(10)]


async def test_a_fence_gives_the_entries_of_a_small_ledger_to_who_asks(store: LedgerStore) -> None:
    ledger = await written(store, 10)
    whole = tuple(payload(e) for e in range(10))
    size = sum(map(len, whole))
    async with asyncio.timeout(60):
        while not (end := await store.fence(ledger, entries_bytes_max=size)).entries:
            pass  # it may always answer without them: a busy machine's bookies take their time
    assert end == (9, size, whole)
    assert await store.fence(ledger) == (9, size, ())
    assert await store.fence(ledger, entries_bytes_max=size - 1) == (9, size, ())


async def test_a_fence_gives_no_entries_of_a_ledger_with_many(store: LedgerStore) -> None:
    ledger = await written(store, 65)
    assert await store.fence(ledger, entries_bytes_max=1 << 20) == (64, 65 * len(payload(0)), ())


async def test_a_fence_among_appends_loses_nothing_acknowledged(
    world: World, store: LedgerStore
) -> None:
    ledger = await store.create(SPEC, OURS)
    futures = [store.append(ledger, entry, payload(entry)) for entry in range(100)]
    await futures[10]
    end = await (await world.client()).fence(ledger)
    results = await asyncio.gather(*futures, return_exceptions=True)
    acked = [e for e, r in enumerate(results) if r is None]
    assert acked == list(range(len(acked)))  # no gap: answered in order
    assert end.last_entry >= len(acked) - 1
    assert all(isinstance(r, GatewayFenced | GatewayRoll) for r in results[len(acked) :])
    assert await payloads(store, ledger) == [payload(e) for e in range(end.last_entry + 1)]


async def test_a_deleted_ledger_is_gone_for_everybody(store: LedgerStore) -> None:
    ledger = await written(store, 3)
    await store.close_ledger(ledger)
    await store.delete(ledger)
    await store.delete(ledger)  # already gone is success
    for problem in (
        await failure(store.metadata(ledger)),
        await failure(chunks(store, ledger)),
        await failure(store.fence(ledger)),
    ):
        assert isinstance(problem, NoSuchLedger) and problem.outcome is Outcome.NOT_DONE
        assert problem.ledger == ledger


async def test_a_wrong_entry_id_is_refused_and_harms_nothing(store: LedgerStore) -> None:
    ledger = await written(store, 2)
    for entry in (1, 3):  # a repetition, a gap
        problem = await failure(store.append(ledger, entry, b"wrong"))
        assert isinstance(problem, GatewayRefused) and problem.outcome is Outcome.NOT_DONE
        assert problem.reason == "UNEXPECTED_ENTRY_ID"
    await store.append(ledger, 2, payload(2))
    assert (await store.close_ledger(ledger)).last_entry == 2


async def test_an_entry_over_the_limit_is_refused_and_harms_nothing(store: LedgerStore) -> None:
    limit = (await store.describe()).entry_bytes_max
    ledger = await written(store, 1)
    problem = await failure(store.append(ledger, 1, bytes(limit + 1)))
    assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
        Outcome.NOT_DONE,
        "ENTRY_TOO_LARGE",
    )
    await store.append(ledger, 1, bytes(limit))
    assert (await store.close_ledger(ledger)).last_entry == 1
    assert [len(c.payloads) for c in await chunks(store, ledger, 1, max_bytes=1000)] == [1]


async def test_a_write_handle_belongs_to_the_stream_that_first_appended(
    world: World, store: LedgerStore
) -> None:
    ledger = await written(store, 3)
    problem = await failure((await world.client()).append(ledger, 3, b"x"))
    assert isinstance(problem, GatewayRoll) and (problem.outcome, problem.reason) == (
        Outcome.NOT_DONE,
        "NO_HANDLE",
    )
    await store.append(ledger, 3, payload(3))


async def test_a_reader_changes_nothing(world: World, store: LedgerStore) -> None:
    ledger = await written(store, 3)
    reader = await world.client("reader")
    tried = (
        reader.create(SPEC, OURS),
        reader.fence(ledger),
        reader.delete(ledger),
        reader.close_ledger(ledger),
        reader.append(ledger, 3, b"x"),
    )
    for waiting in tried:
        problem = await failure(waiting)
        assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
            Outcome.NOT_DONE,
            "READERS_MAY_NOT",
        )
    assert await payloads(reader, ledger) == [payload(0), payload(1)]
    assert (await reader.metadata(ledger)).state is LedgerState.OPEN
    assert ledger in [info.ledger async for info in reader.list({})]
    await store.append(ledger, 3, payload(3))  # the writer is alive


async def test_listing_filters_by_every_pair(store: LedgerStore) -> None:
    mark = uuid.uuid4().bytes
    mine = {await store.create(SPEC, {**OURS, "mark": mark, "n": b"%d" % n}) for n in range(3)}
    await store.create(SPEC, OURS)
    assert {info.ledger async for info in store.list({"mark": mark})} == mine
    assert len([info async for info in store.list({"mark": mark, "n": b"1"})]) == 1
    assert [info async for info in store.list({"mark": b"none"})] == []


async def test_a_ledger_of_another_application_is_not_created(
    world: World, store: LedgerStore
) -> None:
    migrator = await world.client("migrator")
    for custom in (
        {"application": b"pulsar"},
        PULSAR_DATA,
        {**PULSAR_CURSOR, "pulsar/cursor": b""},
        {},
    ):
        for one in (store, migrator):
            problem = await failure(one.create(SPEC, custom))
            assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
                Outcome.NOT_DONE,
                "NOT_OURS",
            )


async def test_a_migrator_writes_reads_and_deletes_pulsars_cursor_ledgers_and_fences_none(
    world: World,
) -> None:
    store = await world.client("migrator")
    ledger = await store.create(LedgerSpec(2, 2, 2, digest=Digest.CRC32), PULSAR_CURSOR)
    await store.append(ledger, 0, payload(0))
    problem = await failure(store.fence(ledger))
    assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
        Outcome.NOT_DONE,
        "NOT_OURS",
    )
    await store.append(ledger, 1, payload(1))  # the refused fence did nothing
    assert await store.close_ledger(ledger) == (1, 40)
    assert await payloads(store, ledger) == [payload(0), payload(1)]
    assert (await store.metadata(ledger)).custom_metadata == PULSAR_CURSOR
    await store.delete(ledger)
    assert isinstance(await failure(store.metadata(ledger)), NoSuchLedger)


async def test_pulsars_cursor_ledgers_are_for_readers_and_migrators(
    world: World, store: LedgerStore
) -> None:
    migrator, reader, mark = (
        await world.client("migrator"),
        await world.client("reader"),
        uuid.uuid4().bytes,
    )
    ledger = await migrator.create(SPEC, {**PULSAR_CURSOR, "mark": mark})
    await migrator.append(ledger, 0, payload(0))
    await migrator.close_ledger(ledger)
    assert await payloads(reader, ledger) == [payload(0)]
    assert [info.ledger async for info in reader.list({"mark": mark})] == [ledger]
    assert [info.ledger async for info in store.list({"mark": mark})] == []
    tried = {
        "NOT_OURS": [payloads(store, ledger), store.metadata(ledger), store.fence(ledger)],
        "MIGRATORS_ONLY": [store.create(SPEC, PULSAR_CURSOR), store.delete(ledger)],
    }
    for reason, calls in tried.items():
        for waiting in calls:
            problem = await failure(waiting)
            assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
                Outcome.NOT_DONE,
                reason,
            )
    ours = await written(store, 1)
    for waiting in (migrator.create(SPEC, OURS), migrator.fence(ours), migrator.delete(ours)):
        assert (await failure(waiting)).reason == "WRITERS_ONLY"
    await store.append(ours, 1, payload(1))  # nothing was done to it


async def test_the_end_is_told_without_recovery(store: LedgerStore) -> None:
    ledger = await written(store, 3)
    assert await store.end_of(ledger) == (False, 1)
    await store.append(ledger, 3, payload(3))  # nobody was fenced
    await store.close_ledger(ledger)
    assert await store.end_of(ledger) == (True, 3)


async def test_ours_are_ended_and_deleted_for_their_own_deployment_only(
    world: World, store: LedgerStore
) -> None:
    """Two roots on one BookKeeper: the writer of one must not depose or delete what is the other's,
    whatever it believes.
    """
    other, mine = await world.client(), {**OURS, "deployment": b"0" * 32}
    store.act_for("0" * 32)
    ledger = await store.create(SPEC, mine)
    await store.append(ledger, 0, payload(0))
    for deployment in ("", "1" * 32):
        other.act_for(deployment)
        for waiting in (other.fence(ledger), other.close_ledger(ledger), other.delete(ledger)):
            problem = await failure(waiting)
            assert isinstance(problem, GatewayRefused) and (problem.outcome, problem.reason) == (
                Outcome.NOT_DONE,
                "OTHER_DEPLOYMENT",
            )
    await store.append(ledger, 1, payload(1))  # its writer is alive
    other.act_for("0" * 32)
    assert (await other.fence(ledger)).last_entry == 1
    await other.delete(ledger)
    nobodys = await written(await world.client(), 1)  # its metadata names no deployment
    assert (await failure(store.fence(nobodys))).reason == "OTHER_DEPLOYMENT"


async def test_ours_are_appended_to_for_their_own_deployment_only(
    world: World, store: LedgerStore
) -> None:
    """A handle waits for the first stream that uses it, which must not be one of another
    deployment.
    """
    other, mine = await world.client(), {**OURS, "deployment": b"0" * 32}
    store.act_for("0" * 32)
    other.act_for("1" * 32)
    ledger = await store.create(SPEC, mine)
    problem = await failure(other.append(ledger, 0, payload(0)))
    assert isinstance(problem, GatewayRoll) and (problem.outcome, problem.reason) == (
        Outcome.NOT_DONE,
        "NO_HANDLE",
    )
    await store.append(ledger, 0, payload(1))
    assert (await store.close_ledger(ledger)).last_entry == 0
    assert await payloads(store, ledger) == [payload(1)]


@pytest.mark.parametrize("digest", list(Digest))
async def test_every_digest_is_read_as_the_metadata_says(
    store: LedgerStore, digest: Digest
) -> None:
    ledger = await store.create(LedgerSpec(digest=digest), OURS)
    await asyncio.gather(*(store.append(ledger, entry, payload(entry)) for entry in range(3)))
    assert [p async for c in store.read(ledger, 0, unconfirmed=True) for p in c.payloads] == [
        payload(e) for e in range(3)
    ]
    await store.close_ledger(ledger)
    assert await payloads(store, ledger) == [payload(e) for e in range(3)]


async def test_too_few_bookies_is_a_retry_that_did_nothing(store: LedgerStore) -> None:
    problem = await failure(store.create(LedgerSpec(4, 3, 2), OURS))
    assert isinstance(problem, GatewayRetry) and (problem.outcome, problem.reason) == (
        Outcome.NOT_DONE,
        "NOT_ENOUGH_BOOKIES",
    )
    assert (problem.bookkeeper_code, problem.ledger) == (-6, -1)


async def test_the_window_is_bounded_and_says_so_at_once(world: World) -> None:
    store = await world.client(window_entries=10)
    ledger = await store.create(SPEC, OURS)
    futures = [store.append(ledger, entry, payload(entry)) for entry in range(10)]
    with pytest.raises(GatewayRetry) as caught:
        store.append(ledger, 10, b"one too many")
    assert (caught.value.reason, caught.value.outcome) == ("WINDOW_FULL", Outcome.NOT_DONE)
    await asyncio.gather(*futures)
    # the refused one took no number, and every place is free again
    await asyncio.gather(*[store.append(ledger, entry, payload(entry)) for entry in range(10, 20)])


async def test_the_gateway_tells_what_it_is(store: LedgerStore) -> None:
    info = await store.describe()
    assert info.instance == (await store.describe()).instance != ""
    assert info.writable_bookies == 3
    assert info.entry_bytes_max + (64 << 10) <= info.message_bytes_max
    assert (info.roles, info.role) == (("reader", "writer", "migrator"), "writer")


async def test_after_close_nothing_is_tried(store: LedgerStore) -> None:
    ledger = await written(store, 2)
    await store.close()
    await store.close()
    for waiting in (
        store.append(ledger, 2, b"x"),
        store.metadata(ledger),
        store.create(SPEC, OURS),
    ):
        problem = await failure(waiting)
        assert isinstance(problem, GatewayRefused) and problem.reason == "CLIENT_CLOSED"


async def test_a_killed_gateway_leaves_unknown_appends_and_every_acknowledged_entry(
    world: World, store: LedgerStore
) -> None:
    ledger = await written(store, 10)
    before = (await store.describe()).instance
    futures = [store.append(ledger, entry, payload(entry)) for entry in range(10, 60)]
    await world.restart_gateway()
    results = await asyncio.gather(*futures, return_exceptions=True)
    acked = 10 + sum(r is None for r in results)
    assert all(isinstance(r, GatewayRoll) for r in results[acked - 10 :])
    assert (await store.describe()).instance != before
    stale = await failure(store.append(ledger, 60, b"x"))
    assert isinstance(stale, GatewayRoll) and stale.outcome is Outcome.NOT_DONE
    end = await store.fence(ledger)
    assert acked - 1 <= end.last_entry < 60
    assert await payloads(store, ledger) == [payload(e) for e in range(end.last_entry + 1)]
    assert (await store.append(await store.create(SPEC, OURS), 0, b"life goes on")) is None
