"""States to encode: random ones with the corners in them. Sets of numbers (`oracle.Plain`), and the
same as our values.
"""

from __future__ import annotations

from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from daemon.tests.format.pulsar.oracle import Plain

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
LEDGERS = (
    st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 1 << 32, LEDGER_ID_MAX])
    | st.integers(0, 300)
    | st.integers(0, LEDGER_ID_MAX)
)
TEXTS = st.text(max_size=8)
FORMS = st.sampled_from(Form)


@st.composite
def entries(draw: st.DrawFn, low: int = 0) -> set[int]:
    """Entry ids from `low` on, with words' edges and runs across them. Not empty."""
    out: set[int] = set()
    for _ in range(draw(st.integers(1, 8))):
        first = low + draw(
            st.sampled_from([0, 1, 62, 63, 64, 65, 127, 128, 65_535, 65_536, 131_071])
            | st.integers(0, 700)
        )
        length = draw(st.sampled_from([1, 1, 1, 2, 63, 64, 65, 128]) | st.integers(1, 200))
        out.update(range(first, first + length))
    if draw(st.booleans()):
        out.difference_update(range(low, low + 400, draw(st.integers(2, 9))))
    return out or {low}


@st.composite
def plains(draw: st.DrawFn) -> Plain:
    """As a broker would hold it: nothing at or below mark-delete, no entry both acked and partly
    acked.
    """
    ledger = draw(LEDGERS)
    mark_delete = (ledger, draw(st.sampled_from([-1, 0, 63, 64]) | st.integers(-1, 1_000)))
    acked: dict[int, set[int]] = {}
    batches: dict[tuple[int, int], set[int]] = {}
    above = (
        st.just(ledger)
        | st.integers(ledger, min(ledger + 200, LEDGER_ID_MAX))
        | st.integers(ledger, LEDGER_ID_MAX)
    )
    for each in draw(st.lists(above, max_size=4, unique=True)):
        low = mark_delete[1] + 1 if each == ledger else 0
        acked[each] = draw(entries(low))
        entry = draw(st.integers(low, low + 900))
        if entry not in acked[each] and draw(st.booleans()):
            batches[each, entry] = draw(
                st.sets(
                    st.integers(0, 70) | st.sampled_from([63, 64, 1_023, 65_535]),
                    min_size=1,
                    max_size=80,
                )
            )
    properties = draw(st.dictionaries(TEXTS, INT64, max_size=3))
    return Plain(mark_delete, acked, batches, properties)


def value(plain: Plain, form: Form) -> PositionInfo:
    """The same as our value."""
    return PositionInfo(
        Position(*plain.mark_delete),
        {ledger: BitMap(plain.acked[ledger]) for ledger in sorted(plain.acked)},
        {PartialKey(*key): BitMap(plain.batches[key]) for key in sorted(plain.batches)},
        plain.properties,
        form=form if plain.acked else None,
    )


WIDE = st.integers(0, ENTRY_ID_MAX)
