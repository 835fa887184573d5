"""What a snapshot, and a source that opens, get of a range: its holes or its acks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.snapshot_plan import EntryRange, take_slice
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import Delta

LEDGER, HIGH_MAX = 7, 150_000
SPANS = st.tuples(st.integers(0, HIGH_MAX), st.integers(0, HIGH_MAX)).map(sorted)
SPARSE = st.sets(st.integers(0, HIGH_MAX), min_size=1, max_size=20)


@given(st.lists(SPANS, max_size=4), SPARSE, SPANS)
def test_a_slice_is_the_range_in_as_few_bytes_as_either_form_takes(
    runs: list[list[int]], singles: set[int], asked: list[int]
) -> None:
    acked = BitMap(singles)
    for first, last in runs:
        acked.add_range(first, last)
    state = AckState()
    state.join_delta(Delta(acks={LEDGER: acked}))
    high = acked.max()
    for first, last in ((min(asked[0], high), min(asked[1], high)), (0, high)):
        made = take_slice(EntryRange(LEDGER, first, last), state)
        asked_of = BitMap(range(first, last + 1))
        forms = {False: acked & asked_of, True: asked_of - acked}
        assert made.bitmap == forms[made.holes]
        assert (made.first, made.last) == (first, last)
        for form in forms.values():
            form.run_optimize()
        # two runs more or fewer, at most, where both have about as many members
        assert made.bitmap.__sizeof__() <= min(f.__sizeof__() for f in forms.values()) + 16
