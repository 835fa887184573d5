"""Garbage collection on fakes: what is looked at before something goes, and what a server that lags
must not decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core.footer import FooterState
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime import gc
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.runtime.ledgers import custom_metadata
from cursorkeeper.zookeeper.values import Node
from daemon.tests.fakes.bookkeeper.operation import Operation
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeper
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import NAME, Source, World, acks


async def owned(world: World, identity: str, entry: int = 1) -> Source:
    made = Source(await world.keeper(identity))
    await made.open()
    made.ack(acks(7, entry))
    await made.durable()
    return made


async def orphan(made: Source) -> int:
    """A ledger of an owner before this one, which no footer names."""
    deployment = await made.keeper.footers.deployment()
    return await made.keeper.ledgers.create(
        LedgerSpec(), custom_metadata(made.name, 0, 1, "before", deployment)
    )


@virtual
async def test_a_server_that_lags_puts_no_footer_in_doubt() -> None:
    """It shows the footer of before; the ledgers are of the owner after."""
    world = World()
    await owned(world, "first")
    session = world.zookeeper.session()
    await session.start()
    footers = FooterStore(session, EncodeSettings())
    await footers.known_deployment()
    session.lag()
    made = await owned(world, "second", 3)
    left = await orphan(made)
    report = await gc.collect(made.keeper.ledgers, footers)
    assert (report.doubtful, report.garbage, report.deleted) == (0, 1, 1)
    assert left not in world.bookkeeper.ledgers


class Watched:
    """A session of which one hears before footers are read in bulk."""

    def __init__(self, inner: FakeZooKeeper, before: Callable[[int], Awaitable[None]]) -> None:
        self._inner, self._before, self.reads = inner, before, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def multi_read(self, paths: Sequence[str]) -> list[Node | None]:
        self.reads += 1
        await self._before(self.reads)
        return await self._inner.multi_read(paths)


@virtual
async def test_a_footer_that_went_after_it_was_looked_at_lets_nothing_go() -> None:
    """Without one, nobody knows what a cursor's next footer will name."""
    world = World()
    await owned(world, "first")
    made = await owned(world, "second")
    left = await orphan(made)
    session = world.zookeeper.session()
    await session.start()

    async def before(read: int) -> None:
        if read == 2:
            await session.delete(NAME.path(), world.zookeeper.tree.get(NAME.path()).version)

    footers = FooterStore(Watched(session, before), EncodeSettings())  # type: ignore[arg-type]
    report = await gc.collect(made.keeper.ledgers, footers)
    assert (report.garbage, report.kept, report.deleted) == (
        0,
        1,
        0,
    ) and left in world.bookkeeper.ledgers


@virtual
async def test_many_ledgers_are_looked_at_some_at_a_time() -> None:
    garbage = 2 * gc.BATCH_LEDGERS
    world = World()
    await owned(world, "first")
    made = await owned(world, "second")
    left = [await orphan(made) for _ in range(garbage)]

    async def before(_read: int) -> None: ...

    session = world.zookeeper.session()
    await session.start()
    watched = Watched(session, before)
    world.bookkeeper.faults.refuse(Operation.DELETE)
    report = await gc.collect(made.keeper.ledgers, FooterStore(watched, EncodeSettings()))  # type: ignore[arg-type]
    assert (report.garbage, report.deleted, report.failed) == (garbage, garbage - 1, 1)
    assert len(world.bookkeeper.ledgers.keys() & set(left)) == 1
    assert len(world.bookkeeper.ledgers) == 2, (
        "the owner's own, and the one that could not be deleted"
    )
    assert watched.reads == 3 + 2, "one more is looked at than is swept: the owner's"


@virtual
async def test_a_doubt_that_comes_later_keeps_what_was_called_garbage() -> None:
    world = World()
    made = await owned(world, "first")
    judge = gc.Judge(made.keeper.footers)
    await made.keeper.footers.deployment()
    garbage, newer = gc.Owned(901, NAME, 0, "before", 0), gc.Owned(902, NAME, 9, "after", 0)
    [first] = await judge.look([garbage])
    assert judge.last_word(first) == first and first.verdict in (
        gc.Verdict.GARBAGE,
        gc.Verdict.KEPT,
    )
    [second] = await judge.look([newer])
    assert judge.last_word(first).verdict is gc.Verdict.KEPT and judge.last_word(second) == second


@virtual
async def test_what_a_footer_can_still_name_is_no_garbage() -> None:
    footer = (await owned(World(), "only")).machine.ownership.commit.committed
    assert footer is not None
    footer = replace(footer, epoch=5)
    for state, verdicts in (
        (FooterState.OPEN, [gc.Verdict.GARBAGE, gc.Verdict.MAY_BE_NAMED, gc.Verdict.MAY_BE_NAMED]),
        (FooterState.CLOSED, [gc.Verdict.GARBAGE, gc.Verdict.GARBAGE, gc.Verdict.MAY_BE_NAMED]),
    ):
        assert [
            gc.judge(901, epoch, replace(footer, state=state)) for epoch in (4, 5, 6)
        ] == verdicts
    assert gc.judge(901, 4, None) is gc.Verdict.UNKNOWN
    assert gc.judge(footer.chain[0].ledger, 4, footer) is gc.Verdict.NAMED


@virtual
async def test_a_dry_run_deletes_nothing_whatever_it_may_do() -> None:
    world = World()
    made = await owned(world, "only")
    left = await orphan(made)
    told: list[int] = []
    report = await gc.collect(
        made.keeper.ledgers,
        made.keeper.footers,
        dry_run=True,
        on_garbage=lambda ledger, _name: told.append(ledger),
    )
    assert (report.garbage, report.deleted, report.failed, told) == (
        1,
        0,
        0,
        [left],
    ) and left in world.bookkeeper.ledgers
