"""Plans of states from footers alone: what regular acks weigh though nearly nothing is stored, even tasks, no needless pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import pytest
from cursorkeeper.cli.problems import CommandError
from cursorkeeper.core.footer import ChainLedger, EmptyBase, Footer, SnapshotBase, Stats
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.values import Segment, Slice
from cursorkeeper.core.window import WHOLE
from cursorkeeper.migration.patience import Patience
from cursorkeeper_clients.bookkeeper.errors import GatewayRetry, Outcome
from cursorkeeper_clients.bookkeeper.port import LedgerStore, ReadChunk
from cursorkeeper_pipeline.source.away import AWAY_IN_A_ROW_MAX
from cursorkeeper_pipeline.source.options import MIB, Options
from cursorkeeper_pipeline.source.shards import Found
from cursorkeeper_pipeline.source.splitting import Splitter, cuts, starts_in
from cursorkeeper_pipeline.source.state_plan import IN_MEMORY, Item, is_large, item_of, piece_bytes, pieces_of, pieces_wanted
from cursorkeeper_pipeline.source.state_size import runs_max, state_bytes
from pyroaring import BitMap

from pipeline.tests.fleet_maker import footer_of, loads, name_of, pareto_fleet, planned, shares_of, skew

NAME = name_of(1)
EVERY_SECOND = Stats(200, 1_000_000_000, 500_000_000, 0, 0, 0)


def options(table: str, **given: str) -> Options:
    return Options.parse({"table": table, "zookeeper": "z:1", "gateway": "g:1", **given})


def regular(**changes: object) -> Found:
    """A thousand million entries, every second acked."""
    base = SnapshotBase(9, 1, 122, 121, 86_900, 1)
    footer = footer_of(NAME, **{"base": base, "chain": (ChainLedger(9, 122),), "stats": EVERY_SECOND, **changes})
    return Found(NAME, footer, next(pareto_fleet(1)).stat)


def test_a_regular_cursor_is_as_large_as_what_it_holds() -> None:
    found, chosen = regular(), options("holes")
    assert isinstance(found.footer, Footer)
    assert state_bytes(found.footer) == 125_000_000 and runs_max(EVERY_SECOND) == 500_000_000
    item, counted = item_of(found, "holes"), item_of(found, "hole_stats")
    assert is_large(found, chosen) and item is not None and counted is not None
    assert item.state_bytes == counted.state_bytes == 125_000_000
    assert item.cost_bytes > 24 * 500_000_000 and 125_000_000 < counted.cost_bytes < 126_000_000
    pieces = pieces_of(found, "holes", shares_of(found, pieces_wanted(found.footer, chosen, piece_bytes([item.cost_bytes], chosen))))
    assert max(piece.cost_bytes for piece in pieces) < chosen.task_bytes / 4
    assert abs(sum(piece.state_bytes for piece in pieces) - 125_000_000) < len(pieces)


def test_deltas_alone_are_as_large_as_what_they_hold() -> None:
    found = regular(base=EmptyBase(FIRST), previous=None, stats=replace(EVERY_SECOND, delta_bytes=80_000))
    item = item_of(found, "holes")
    assert item is not None and item.state_bytes == 125_000_000 and item.cost_bytes > 24 * 500_000_000
    assert not is_large(found, options("holes")), "there is nothing to cut it at"


def test_runs_are_known_or_bounded() -> None:
    assert runs_max(Stats(3, 1_000, 100, 7)) == 7
    assert runs_max(Stats(3, 2_000_000_000, 1_999_999_990, 0)) == 13, "one consumer that is stuck: few acks part the holes"
    assert runs_max(Stats()) == 0


@pytest.mark.parametrize("cursors", [5_000, 20_000])
def test_a_mixed_pareto_fleet_is_packed_evenly(cursors: int) -> None:
    """Random and regular cursors, by cost and by what weighs most in it."""
    fleet = list(pareto_fleet(cursors))
    for table in ("holes", "hole_stats"):
        parts = planned(fleet, options(table))
        names = [item.topic for part in parts for item in part.items if item.piece is None or item.piece.part_no == 0]
        assert sorted(names) == sorted(found.name.topic for found in fleet)
        found = loads(fleet, parts)
        assert len(parts) >= 10 and skew([load.cost for load in found]) <= 1.2
        if table == "holes":
            assert skew([load.rows for load in found]) <= 1.2
        else:
            assert skew([load.state for load in found]) <= 1.2 and skew([load.stored for load in found]) <= 2
        assert max(item.state_bytes for part in parts for item in part.items) <= IN_MEMORY * options(table).split_bytes


def test_pieces_are_as_many_as_tasks_need_and_no_more_than_a_plan_may_read() -> None:
    base = SnapshotBase(9, 0, 100, 100, 100 * MIB, 1)
    footer = footer_of(NAME, base=base, stats=Stats(1, 800_000_000, 0, 0, 0, 0))
    small = options("hole_stats", splitBytes=str(MIB))
    assert pieces_wanted(footer, options("hole_stats"), piece_bytes([100 * MIB], options("hole_stats"))) == 13
    assert pieces_wanted(footer, small, piece_bytes([100 * MIB], small)) == 25, "four tasks do not need a hundred, memory needs them"
    assert pieces_wanted(footer, small, piece_bytes([1000 * MIB], small)) == 25
    places, inside = cuts(base, 100, 1_000)
    assert len(places) == 34 and inside == 1, "a third of it is read"
    places, inside = cuts(replace(base, length=86_900), 100, 1_000)
    assert list(places) == list(range(100)) and inside == 10, "it is nothing to read all of it, and one segment is many rows"


def test_cuts_inside_a_segment() -> None:
    slices = (Slice(5, 100, 149, True, BitMap()), Slice(7, 0, 149, True, BitMap()))
    starts = starts_in(Segment(slices=slices), 3, 4)
    assert [(start.at, start.position) for start in starts] == [
        ((3, 0), Position(5, 100)), ((3, 50), Position(7, 0)), ((3, 100), Position(7, 50)), ((3, 150), Position(7, 100)),
    ]  # fmt: skip
    assert {start.of for start in starts} == {200}
    assert len(starts_in(Segment(slices=(Slice(5, 0, 1, True, BitMap()),)), 0, 9)) == 2, "no more than entries"


class Away:
    """A store whose bookies are gone."""

    async def read(self, ledger: int, *_: int) -> AsyncIterator[ReadChunk]:
        raise GatewayRetry("BOOKIE_UNREACHABLE", Outcome.UNKNOWN, ledger=ledger)
        yield


async def test_a_plan_leaves_lost_cursors_whole_and_ends_if_all_are_lost() -> None:
    splitter, footer = Splitter(cast(LedgerStore, Away()), Patience(0.0)), regular().footer
    assert isinstance(footer, Footer)
    for _ in range(AWAY_IN_A_ROW_MAX):
        assert [share.window for share in await splitter.shares(NAME, footer, 9)] == [WHOLE]
    assert [share.window for share in await splitter.shares(NAME, footer, 1)] == [WHOLE], "nothing is asked"
    with pytest.raises(CommandError, match=r"25 cursors one after another.*BOOKIE_UNREACHABLE"):
        await splitter.shares(NAME, footer, 9)


def test_items_are_small() -> None:
    item = item_of(regular(), "holes")
    assert isinstance(item, Item) and item.ledger == 9 and item.piece is None
