"""The fake misbehaves on purpose and still keeps BookKeeper's promises; the same seed gives the
same run.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from cursorkeeper.bookkeeper import (
    GatewayError,
    GatewayFenced,
    GatewayRefused,
    GatewayRetry,
    GatewayRoll,
    LedgerSpec,
    LedgerState,
    NoSuchLedger,
    Outcome,
)
from daemon.tests.fakes.bookkeeper.fake import Damage, FakeBookKeeper, FakeGateway, Fault
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.support.virtual_loop import run

OURS = {"application": b"cursorkeeper"}
Trace = list[str]


async def life(seed: int) -> Trace:
    """A writer, a rival and an unkind world, for some minutes; every promise is checked on the
    way.
    """
    rng = random.Random(seed)
    bookkeeper = FakeBookKeeper(random.Random(seed + 1))
    faults = bookkeeper.faults
    faults.delay_max_s, faults.ack_delay_max_s = 0.01, 0.05
    for operation in (Operation.APPEND, Operation.FENCE, Operation.CREATE):
        for fault in (Fault.REFUSE, Fault.LOST_BEFORE, Fault.LOST_AFTER):
            faults.chance[operation, fault] = 0.01
    faults.chance[Operation.APPEND, Fault.FENCE] = 0.003
    gateway, rival = bookkeeper.gateway(append_timeout_s=5.0), bookkeeper.gateway()
    trace: Trace = []
    for number in range(30):
        try:
            ledger = await gateway.create(LedgerSpec(), OURS)
        except GatewayError as error:
            trace.append(f"create {error.reason}")
            continue
        futures = [
            gateway.append(ledger, entry, b"%d" % entry) for entry in range(rng.randint(1, 60))
        ]
        story = rng.choice(["", "restart", "break", "rival", "bookies", "stall"])
        await asyncio.sleep(rng.uniform(0, 0.1))
        match story:
            case "restart":
                gateway.restart()
            case "break":
                gateway.break_stream()
            case "rival":
                with pytest.MonkeyPatch.context() as quiet:
                    quiet.setattr(faults, "chance", {})
                    await rival.fence(ledger)
            case "bookies":
                bookkeeper.bookies_up = 1
            case "stall":
                bookkeeper.stall_acks()
        results = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), 60)
        bookkeeper.bookies_up = 3
        bookkeeper.stall_acks(False)
        acked = promises_of_appends(results)
        end = await fenced(rival, ledger)
        assert end >= acked - 1, f"acknowledged entry {acked - 1} lost, the ledger ends at {end}"
        stored = [p async for chunk in rival.read(ledger, 0) for p in chunk.payloads]
        assert stored == [b"%d" % entry for entry in range(end + 1)]
        for entry, result in enumerate(results):
            if isinstance(result, GatewayError) and result.outcome is Outcome.NOT_DONE:
                assert entry > end, f"entry {entry} was NOT_DONE and is there"
        after = await asyncio.gather(
            gateway.append(ledger, len(results), b"late"), return_exceptions=True
        )
        assert isinstance(after[0], GatewayError)  # a fenced ledger never accepts again
        await rival.delete(ledger)
        trace.append(
            f"{number} {story} {acked}/{len(futures)} end {end} at "
            f"{asyncio.get_running_loop().time():.6f}"
        )
    assert (gateway.entries, gateway.bytes) == (0, 0)
    return trace


def promises_of_appends(results: list[object]) -> int:
    """Acknowledged first, failed after: no gaps. Returns how many were acknowledged."""
    acked = next((n for n, r in enumerate(results) if r is not None), len(results))
    assert all(isinstance(r, GatewayError) for r in results[acked:])
    return acked


async def fenced(gateway: FakeGateway, ledger: int) -> int:
    """Repeat until it says the end; every answer must say the same one."""
    ends = set()
    for _ in range(200):
        try:
            ends.add((await gateway.fence(ledger)).last_entry)
            if len(ends) == 2:
                break
        except GatewayRetry:
            await asyncio.sleep(0.01)
        else:
            break
    assert len(ends) == 1
    return ends.pop()


@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_whatever_goes_wrong(seed: int) -> None:
    assert run(life(seed))


def test_a_run_is_repeated_by_its_seed() -> None:
    assert run(life(3)) == run(life(3)) != run(life(4))


async def ledger_of(gateway: FakeGateway, entries: int) -> int:
    ledger = await gateway.create(LedgerSpec(), OURS)
    for entry in range(entries):
        await gateway.append(ledger, entry, b"entry %d" % entry)
    return ledger


@pytest.fixture
def bookkeeper() -> FakeBookKeeper:
    return FakeBookKeeper(random.Random(5))


async def test_a_lost_create_may_leave_an_orphan(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    bookkeeper.faults.lose_before(Operation.CREATE)
    bookkeeper.faults.lose_after(Operation.CREATE)
    for orphans in (0, 1):
        with pytest.raises(GatewayRetry) as caught:
            await gateway.create(LedgerSpec(), OURS)
        assert caught.value.outcome is Outcome.UNKNOWN and len(bookkeeper.ledgers) == orphans


async def test_a_lost_append_ends_the_ledger_and_its_fate_is_recoverys(
    bookkeeper: FakeBookKeeper,
) -> None:
    gateway = bookkeeper.gateway()
    for lose, there in (
        (bookkeeper.faults.lose_before, False),
        (bookkeeper.faults.lose_after, True),
    ):
        ledger = await ledger_of(gateway, 2)
        lose(Operation.APPEND)
        with pytest.raises(GatewayRoll) as caught:
            await gateway.append(ledger, 2, b"lost")
        assert caught.value.outcome is Outcome.UNKNOWN
        with pytest.raises(GatewayRoll) as caught:
            await gateway.append(ledger, 3, b"next")
        assert caught.value.outcome is Outcome.NOT_DONE
        assert (await gateway.fence(ledger)).last_entry == (2 if there else 1)


async def test_auto_recovery_fences_without_a_new_owner(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    ledger = await ledger_of(gateway, 2)
    bookkeeper.faults.fence_next_append()
    with pytest.raises(GatewayFenced):
        await gateway.append(ledger, 2, b"x")
    assert (await gateway.metadata(ledger)).state is LedgerState.CLOSED


async def test_bookies_away(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    ledger = await ledger_of(gateway, 3)
    bookkeeper.bookies_up = 2
    await gateway.append(ledger, 3, b"two of three are enough")
    with pytest.raises(GatewayRetry) as caught:
        await gateway.create(LedgerSpec(3, 3, 2), OURS)
    assert caught.value.reason == "NOT_ENOUGH_BOOKIES"
    await gateway.create(LedgerSpec(2, 2, 2), OURS)
    bookkeeper.bookies_up = 1
    with pytest.raises(GatewayRoll) as rolled:
        await gateway.append(ledger, 4, b"x")
    assert (rolled.value.reason, rolled.value.outcome) == ("NOT_ENOUGH_BOOKIES", Outcome.UNKNOWN)
    with pytest.raises(GatewayRetry):
        _ = [c async for c in gateway.read(ledger, 0)]
    bookkeeper.bookies_up = 3
    assert (await gateway.fence(ledger)).last_entry >= 3


async def test_damage_is_what_a_reader_meets(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    ledger = await ledger_of(gateway, 3)
    await gateway.fence(ledger)

    async def read() -> list[bytes]:
        return [p async for chunk in gateway.read(ledger, 0) for p in chunk.payloads]

    whole = await read()
    bookkeeper.damage(ledger, 1, Damage.FLIP)
    assert sum(a != b for a, b in zip(whole[1], (await read())[1], strict=True)) == 1
    bookkeeper.damage(ledger, 1, Damage.TRUNCATE)
    assert (await read())[1] == whole[1][:3]
    for how, kind in ((Damage.DIGEST, GatewayRefused), (Damage.GONE, GatewayRetry)):
        bookkeeper.damage(ledger, 1, how)
        with pytest.raises(kind):
            await read()
    bookkeeper.lose_ledger(ledger)
    with pytest.raises(NoSuchLedger):
        await read()


async def test_a_gateway_that_is_away_answers_nobody(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    await gateway.start()
    ledger = await ledger_of(gateway, 1)
    gateway.kill()
    with pytest.raises(GatewayRetry):
        await gateway.describe()
    with pytest.raises(GatewayRoll):
        await gateway.append(ledger, 1, b"x")
    gateway.come_up()
    assert (await gateway.describe()).instance != "fake-gateway-1"
    assert (await gateway.fence(ledger)).last_entry == 0


async def test_deleting_does_not_stop_a_writer_elsewhere(bookkeeper: FakeBookKeeper) -> None:
    gateway = bookkeeper.gateway()
    ledger = await ledger_of(gateway, 1)
    await bookkeeper.gateway().delete(ledger)
    await gateway.append(ledger, 1, b"the bookies still take it")
    with pytest.raises(NoSuchLedger):
        await gateway.metadata(ledger)


async def test_of_the_unacknowledged_tail_any_part_is_kept(bookkeeper: FakeBookKeeper) -> None:
    ends = set()
    for _ in range(60):
        gateway = bookkeeper.gateway()
        ledger = await ledger_of(gateway, 2)
        bookkeeper.stall_acks()
        tail = [gateway.append(ledger, entry, b"tail") for entry in (2, 3)]
        await asyncio.sleep(0.001)
        gateway.kill()
        bookkeeper.stall_acks(False)
        assert all(
            isinstance(r, GatewayRoll) for r in await asyncio.gather(*tail, return_exceptions=True)
        )
        ends.add((await bookkeeper.gateway().fence(ledger)).last_entry)
    assert ends == {1, 2, 3}


def test_slow_bookies_take_their_time() -> None:
    async def main() -> float:
        bookkeeper = FakeBookKeeper(random.Random(1))
        gateway = bookkeeper.gateway()
        ledger = await ledger_of(gateway, 1)
        bookkeeper.faults.ack_delay_min_s = bookkeeper.faults.ack_delay_max_s = 3.0
        await gateway.append(ledger, 1, b"x")
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(3.0)
