"""Today's keeper takes a cursor over from a release: it claims, fences, reads, goes on, closes, and
finds all of it again.

Both of today's formats take over from both of the release's.
"""

from __future__ import annotations

import copy

import pytest

from cursorkeeper.bookkeeper.port import LedgerState
from cursorkeeper.core.footer import FooterState
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.runtime.gc import collect
from daemon.tests.releases.described import assert_as_confirmed, described, entries_of, set_of
from daemon.tests.releases.recorded import Json, Recorded, each
from daemon.tests.releases.restored import footer_of, next_owner, restored
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, World, acks, partial

FORMATS = {
    "native": None,
    "pulsar": PulsarStateWriter(WholeStateSettings(multiple=True, state_bytes_max=None)),
}
BATCH_SIZE = 20
into_each_format = pytest.mark.parametrize("writer", FORMATS.values(), ids=FORMATS)


def state_of(source: Source) -> Json:
    assert source.told.refused is None, source.told.refused
    return described(source.machine.acks, source.machine.generation)


def somewhere_new(told: Json) -> tuple[int, int]:
    """(ledger, entry) above everything that is known."""
    ledgers = [
        told["markDelete"][0],
        *map(int, told["acked"]),
        *(item[0] for item in told["layout"]),
        *(p[0] for p in told["partials"]),
    ]
    ledger = max(ledgers)
    acked = set_of(told["acked"].get(str(ledger), []))
    batches = [p[1] for p in told["partials"] if p[0] == ledger]
    return ledger, max(told["markDelete"][1], acked.max() if acked else 0, *batches, 0) + 5


async def more(source: Source, before: Json) -> Json:
    """Acks of every kind on top; returns what must be there then."""
    ledger, entry = somewhere_new(before)
    source.ack(acks(ledger, entry, entry + 1), properties={"more": 1})
    source.ack(partial(ledger, entry + 9, BATCH_SIZE, {0, 19}))
    await source.durable()
    then = copy.deepcopy(before)
    then["acked"].setdefault(str(ledger), []).append([entry, entry + 1])
    then["partials"] = sorted([*then["partials"], [ledger, entry + 9, BATCH_SIZE, [0, 19]]])
    then["markDeleteProperties"] = {"more": 1}
    return then


def as_kept(told: Json, writer: StateWriter | None) -> Json:
    """Pulsar's form keeps neither batch sizes nor the layout."""
    if writer is None:
        return told
    return {
        **told,
        "layout": [],
        "partials": [[ledger, entry, 0, missing] for ledger, entry, _, missing in told["partials"]],
    }


def named(recorded: Recorded) -> set[int]:
    """The ledgers that the release's last footer led to."""
    return set(footer_bytes.decode(recorded.footer, recorded.name).named_ledgers())


def closed_or_gone(world: World, ledger: int) -> bool:
    """Nobody can append to it any more."""
    found = world.bookkeeper.ledgers.get(ledger)
    return found is None or found.state is LedgerState.CLOSED


@each()
@into_each_format
def test_a_cursor_goes_on(recorded: Recorded, writer: StateWriter | None) -> None:
    @virtual
    async def story() -> None:
        world = await restored(recorded, writer)
        first = await next_owner(world, recorded, takeover=True)
        found = state_of(first)
        assert_as_confirmed(found, recorded)
        assert first.machine.epoch == recorded.epoch + 1
        assert all(closed_or_gone(world, ledger) for ledger in named(recorded))
        then = await more(first, found)
        assert await first.keeper.close() == []
        assert footer_of(world, recorded).state is FooterState.CLOSED
        second = await next_owner(world, recorded, takeover=False)
        assert state_of(second) == as_kept(then, writer)
        assert second.machine.epoch == recorded.epoch + 2
        for keeper in world.keepers:
            assert keeper.failures == []

    story()


@each()
def test_garbage_collection_takes_what_no_footer_can_name_and_nothing_else(
    recorded: Recorded,
) -> None:
    @virtual
    async def story() -> None:
        world = await restored(recorded)
        keeper = await world.keeper("collects")
        before = {own.ledger for own in recorded.ledgers}
        await collect(keeper.ledgers, keeper.footers)
        assert named(recorded) <= set(world.bookkeeper.ledgers) <= before, (
            "while the last owner may live"
        )
        first = await next_owner(world, recorded, takeover=True)
        found = state_of(first)
        assert await first.keeper.close() == []
        report = await collect(keeper.ledgers, keeper.footers)
        assert (report.unknown, report.failed) == (0, 0)
        assert set(world.bookkeeper.ledgers) == set(footer_of(world, recorded).named_ledgers())
        assert state_of(await next_owner(world, recorded, takeover=False)) == found

    story()


@each(deleted=True)
@into_each_format
def test_a_deleted_cursor_stays_deleted_and_epochs_go_on(
    recorded: Recorded, writer: StateWriter | None
) -> None:
    @virtual
    async def story() -> None:
        world = await restored(recorded, writer)
        asked = await next_owner(world, recorded, takeover=True)
        assert asked.told.refused is not None and asked.told.refused[0] == "NOT_FOUND"
        assert world.zookeeper.tree.get(recorded.path).data == recorded.footer
        made = await next_owner(world, recorded, create=True)
        assert made.machine.epoch == recorded.epoch + 1
        assert made.machine.generation == recorded.expected["generation"]
        assert not entries_of(state_of(made))
        then = await more(made, state_of(made))
        assert await made.keeper.close() == []
        assert state_of(await next_owner(world, recorded)) == as_kept(then, writer)

    story()
