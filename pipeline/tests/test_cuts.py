"""Where large cursors are cut: what regular acks weigh though nearly nothing is stored, no needless
pieces, bounded looks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from msgspec import structs
from pyroaring import BitMap

from cursorkeeper.bookkeeper.errors import GatewayRetry, Outcome
from cursorkeeper.bookkeeper.port import LedgerStore, ReadChunk
from cursorkeeper.core.footer import ChainLedger, EmptyBase, Footer, SnapshotBase, Stats
from cursorkeeper.core.positions import FIRST, Position
from cursorkeeper.core.values import Segment, Slice
from cursorkeeper.core.window import WHOLE
from cursorkeeper_pipeline.source.cuts import Splitter, cuts, pieces_wanted, starts_in
from cursorkeeper_pipeline.source.options import MIB, Options
from cursorkeeper_pipeline.source.state_size import state_bytes
from pipeline.tests.fleet_maker import footer_of, name_of

NAME = name_of(1)
EVERY_SECOND = Stats(200, 1_000_000_000, 500_000_000, 0, 0, 0)
OPTIONS = Options.parse({"table": "holes", "zookeeper": "z:1", "gateway": "g:1"})


def regular(**changes: object) -> Footer:
    """A thousand million entries, every second acked."""
    base = SnapshotBase(9, 1, 122, 121, 86_900, 1)
    return footer_of(
        NAME, **{"base": base, "chain": (ChainLedger(9, 122),), "stats": EVERY_SECOND, **changes}
    )


def test_a_regular_cursor_is_as_large_as_what_it_holds() -> None:
    assert state_bytes(regular()) == 125_000_000 and pieces_wanted(regular(), OPTIONS) == 8
    only_deltas = regular(
        base=EmptyBase(FIRST),
        previous=None,
        stats=structs.replace(EVERY_SECOND, delta_bytes=80_000),
    )
    assert state_bytes(only_deltas) == 125_000_000 and pieces_wanted(only_deltas, OPTIONS) == 1, (
        "there is nothing to cut it at"
    )
    assert (
        pieces_wanted(regular(stats=structs.replace(EVERY_SECOND, span=100_000_000)), OPTIONS) == 1
    )


def test_a_look_reads_no_more_than_a_third_of_the_snapshot() -> None:
    base = SnapshotBase(9, 0, 100, 100, 100 * MIB, 1)
    places, inside = cuts(base, 100, 1_000)
    assert len(places) == 34 and inside == 1, "a third of it is read"
    places, inside = cuts(replace(base, length=86_900), 100, 1_000)
    assert list(places) == list(range(100)) and inside == 10, (
        "it is nothing to read all of it, and one segment is many entries"
    )


def test_cuts_inside_a_segment() -> None:
    slices = (Slice(5, 100, 149, True, BitMap()), Slice(7, 0, 149, True, BitMap()))
    starts = starts_in(Segment(slices=slices), 3, 4)
    assert [(start.at, start.position) for start in starts] == [
        ((3, 0), Position(5, 100)),
        ((3, 50), Position(7, 0)),
        ((3, 100), Position(7, 50)),
        ((3, 150), Position(7, 100)),
    ]
    assert len(starts_in(Segment(slices=(Slice(5, 0, 1, True, BitMap()),)), 0, 9)) == 2, (
        "no more than entries"
    )


class Away:
    """A store whose bookies are gone."""

    async def read(self, ledger: int, *_: int) -> AsyncIterator[ReadChunk]:
        raise GatewayRetry("BOOKIE_UNREACHABLE", Outcome.UNKNOWN, ledger=ledger)
        yield


async def test_a_cursor_whose_bookies_are_gone_is_left_whole() -> None:
    splitter = Splitter(cast(LedgerStore, Away()), replace(OPTIONS, wait_s=0.0))
    assert await splitter.windows(NAME, regular(), 9) == [WHOLE]
    assert await splitter.windows(NAME, regular(), 1) == [WHOLE], "nothing is asked"
