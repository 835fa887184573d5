"""Many delta bodies read as columns: field by field across all bodies, instead of body by body.

Owns the fast path of replay: one numpy operation reads the same number of ten thousand bodies. Does
not own the meaning of the bytes (`delta`, `sections`) nor the words for damage: whatever is not
plain raises `Unusual`, and the caller reads the same bodies one by one. Invariant: what this
accepts, `delta.decode` accepts with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from cursorkeeper.core.bitmaps import from_sorted, from_unsorted
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.sizes import EXPANSION_MAX
from cursorkeeper.core.values import Delta, Partial, PartialKey
from cursorkeeper.format import leb, sections
from cursorkeeper.format.fields import Containers, Field, read_partials
from cursorkeeper.format.sections import Mode

Places = NDArray[np.intp]
Numbers = NDArray[np.uint64]

BODIES_BYTES_MAX: Final = 1 << 18
"""Bytes read at once: every ack of small sections becomes numbers of eight bytes, and a byte may
hold eight acks. The sets of so few bytes cannot lie in more containers than a record may name.
"""
BIG_SECTION_BYTES: Final = 2048
"""A section of this size is sorted already and costs less when it is read alone."""
LONG_RUN: Final = 16
"""From this length a run is added as a range instead of member by member."""
_FEW: Final = 24
"""Below this many bodies a loop is faster than columns."""
_PADDING: Final = bytes(64)
_MARK_DELETE: Final = np.uint64(Field.MARK_DELETE)
_ACKS: Final = np.uint64(Field.ACKS)
_PARTIALS: Final = np.uint64(Field.PARTIALS)
_OTHERS: Final = ~(_MARK_DELETE | _ACKS | _PARTIALS)


class Unusual(Exception):
    """These bodies must be read one by one."""


class Columns(NamedTuple):
    """What was read: `deltas` hold the parts outside of `acks`; `rest` = indexes of bodies that
    were not read.
    """

    deltas: list[Delta]
    acks: dict[int, BitMap]
    rest: list[int]


def read(bodies: Sequence[bytes]) -> Columns:
    """All bodies with nothing but mark-delete, acks and partly acked batches, together at most
    `BODIES_BYTES_MAX`. Raises Unusual.
    """
    data = np.frombuffer(b"".join((*bodies, _PADDING)), np.uint8)
    sizes = np.fromiter(map(len, bodies), np.intp, len(bodies))
    if int(sizes.sum()) > BODIES_BYTES_MAX:
        raise Unusual
    ends = np.cumsum(sizes)
    begins = ends - sizes
    bits, places = _read_numbers(data, begins)
    others = bits & _OTHERS
    plain, rest = np.flatnonzero(others == 0), np.flatnonzero(others).tolist()
    deltas = _read_mark_deletes(data, places, plain[(bits[plain] & _MARK_DELETE) != 0])
    with_acks = plain[(bits[plain] & _ACKS) != 0]
    heads = _read_heads(data, bodies, places, begins, ends, with_acks)
    partly = plain[(bits[plain] & _PARTIALS) != 0]
    for row in partly.tolist():
        deltas.append(Delta(partials=_read_partials(bodies[row], int(places[row] - begins[row]))))
        places[row] = ends[row]
    if not np.array_equal(places[plain], ends[plain]):
        raise Unusual
    try:
        return Columns(deltas, _decode(data, heads), rest)
    except DamageError:
        raise Unusual from None


def _read_numbers(data: leb.Bytes, places: Places) -> tuple[Numbers, Places]:
    """One LEB128 at each place, and the places after them."""
    byte = data[places]
    values = (byte & 0x7F).astype(np.uint64)
    places = places + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while more.size:
        byte = data[places[more]]
        if shift > 63 or (shift == 63 and bool(np.any(byte > 1))) or not byte.all():
            raise Unusual
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        places[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    return values, places


def _read_mark_deletes(data: leb.Bytes, places: Places, rows: Places) -> list[Delta]:
    """The largest one; `places` moves on."""
    if not rows.size:
        return []
    ledgers, at = _read_numbers(data, places[rows])
    entries, at = _read_numbers(data, at)
    if int(ledgers.max()) > LEDGER_ID_MAX or int(entries.max()) > ENTRY_ID_MAX + 1:
        raise Unusual
    places[rows] = at
    ledger = ledgers.max()
    return [Delta(Position(int(ledger), int(entries[ledgers == ledger].max()) - 1))]


def _read_partials(body: bytes, pos: int) -> dict[PartialKey, Partial]:
    try:
        partials, pos = read_partials(body, pos, EXPANSION_MAX, Containers())
    except DamageError:
        raise Unusual from None
    if pos != len(body):
        raise Unusual
    return partials


# --- section heads --------------------------------------------------------------------------------


class _Heads(NamedTuple):
    """Every section of every body. `at` and `size` say where its bytes are in the joined data."""

    ledger: Numbers
    mode: Numbers
    first: Numbers
    at: Places
    size: Places

    def of(self, chosen: NDArray[np.bool_]) -> _Heads:
        return _Heads(
            self.ledger[chosen],
            self.mode[chosen],
            self.first[chosen],
            self.at[chosen],
            self.size[chosen],
        )


def _read_heads(
    data: leb.Bytes,
    bodies: Sequence[bytes],
    places: Places,
    begins: Places,
    ends: Places,
    rows: Places,
) -> _Heads:
    """The n-th section of all bodies at once; when few bodies have that many, the rest of each in a
    loop.
    """
    found: list[_Heads] = []
    counts, at = _read_numbers(data, places[rows])
    if not counts.all() or bool(np.any(counts > (ends[rows] - begins[rows]).astype(np.uint64))):
        raise Unusual
    places[rows] = at
    left = counts.astype(np.intp)
    ledgers = np.zeros(rows.size, np.uint64)
    is_first = True
    while rows.size > _FEW or (rows.size and is_first):
        gaps, at = _read_numbers(data, places[rows])
        packed, at = _read_numbers(data, at)
        firsts, at = _read_numbers(data, at)
        sizes = packed >> np.uint64(2)
        ledgers = ledgers + gaps
        is_bad = (
            (gaps > LEDGER_ID_MAX)
            | (ledgers > LEDGER_ID_MAX)
            | ((packed & np.uint64(3)) > Mode.BITS)
            | (firsts > ENTRY_ID_MAX)
        )
        is_bad |= (at > ends[rows]) | (sizes > np.maximum(ends[rows] - at, 0).astype(np.uint64))
        if is_bad.any() or not (is_first or gaps.all()):
            raise Unusual
        step = sizes.astype(np.intp)
        found.append(_Heads(ledgers, packed & np.uint64(3), firsts, at, step))
        places[rows] = at + step
        left -= 1
        going_on = left > 0
        rows, left, ledgers = rows[going_on], left[going_on], ledgers[going_on]
        is_first = False
    for row, count, ledger in zip(rows.tolist(), left.tolist(), ledgers.tolist(), strict=True):
        begin = int(begins[row])
        heads, pos = _read_heads_of_one(bodies[row], int(places[row]) - begin, begin, count, ledger)
        found.append(heads)
        places[row] = begin + pos
    return (
        _Heads(*(np.concatenate(column) for column in zip(*found, strict=True)))
        if found
        else _NO_HEADS
    )


def _read_heads_of_one(
    body: bytes, pos: int, begin: int, count: int, ledger: int
) -> tuple[_Heads, int]:
    """`count` further sections of one body; each ledger is above `ledger`."""
    rows: list[tuple[int, int, int, int, int]] = []
    for _ in range(count):
        try:
            gap, pos = leb.read(body, pos)
            mode, size, first, pos = sections.read_head(body, pos)
        except DamageError:
            raise Unusual from None
        ledger += gap
        if not gap or ledger > LEDGER_ID_MAX or size > len(body) - pos:
            raise Unusual
        rows.append((ledger, mode, first, begin + pos, size))
        pos += size
    columns = np.array(rows, np.uint64).T
    return _Heads(
        columns[0], columns[1], columns[2], columns[3].astype(np.intp), columns[4].astype(np.intp)
    ), pos


_NO_HEADS: Final = _Heads(
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
    np.empty(0, np.intp),
    np.empty(0, np.intp),
)


# --- section bodies -------------------------------------------------------------------------------


class _Acks:
    """Collects acks as columns of `rank of the ledger << 32 | entry`, and long runs as ranges."""

    def __init__(self, heads: _Heads) -> None:
        self.ledgers, ranks = np.unique(heads.ledger, return_inverse=True)
        self.ranks: Numbers = ranks.astype(np.uint64).reshape(-1)
        self.columns: list[Numbers] = []
        self.bitmaps: dict[int, BitMap] = {}

    def bitmap(self, rank: int) -> BitMap:
        return self.bitmaps.setdefault(rank, BitMap())

    def taken(self) -> dict[int, BitMap]:
        keys = np.concatenate(self.columns) if self.columns else np.empty(0, np.uint64)
        if self.ledgers.size == 1:
            self.bitmaps[0] = from_unsorted(keys.astype(np.uint32)) | self.bitmap(0)
        else:
            keys.sort()
            entries = (keys & np.uint64(ENTRY_ID_MAX)).astype(np.uint32)
            edges = np.searchsorted(
                keys, np.arange(self.ledgers.size + 1, dtype=np.uint64) << np.uint64(32)
            ).tolist()
            for rank in range(self.ledgers.size):
                part = entries[edges[rank] : edges[rank + 1]]
                if part.size:
                    known = self.bitmaps.get(rank)
                    self.bitmaps[rank] = (
                        from_sorted(part) if known is None else known | from_sorted(part)
                    )
        ledgers = self.ledgers.tolist()
        return {ledgers[rank]: self.bitmaps[rank] for rank in sorted(self.bitmaps)}


def _decode(data: leb.Bytes, heads: _Heads) -> dict[int, BitMap]:
    """Raises DamageError or Unusual."""
    if not heads.ledger.size:
        return {}
    acks = _Acks(heads)
    is_big = heads.size >= BIG_SECTION_BYTES
    if is_big.any():
        _decode_big(data, heads.of(is_big), acks.ranks[is_big], acks)
    for mode, decode in (
        (Mode.GAPS, _decode_gaps),
        (Mode.RUNS, _decode_runs),
        (Mode.BITS, _decode_bits),
    ):
        chosen = ~is_big & (heads.mode == mode)
        if chosen.any():
            decode(data, heads.of(chosen), acks.ranks[chosen] << np.uint64(32), acks)
    return acks.taken()


def _room(data: leb.Bytes) -> int:
    """Acks that the big sections, and the runs of the others, may claim each, so that all together
    stay within `EXPANSION_MAX`: every other section claims at most eight a byte. Whatever claims
    more is counted record by record.
    """
    return EXPANSION_MAX // 2 - 8 * data.size


def _decode_big(data: leb.Bytes, heads: _Heads, ranks: Numbers, acks: _Acks) -> None:
    room = _room(data)
    for rank, mode, first, at, size in zip(
        *(column.tolist() for column in (ranks, *heads[1:])), strict=True
    ):
        entries = sections.decode(mode, first, data[at : at + size].tobytes(), room)
        room -= len(entries)
        acks.bitmaps[rank] = acks.bitmap(rank) | entries


def _gathered(data: leb.Bytes, heads: _Heads) -> tuple[leb.Bytes, Places]:
    """The bytes of all sections one after the other, and where each one ends in them."""
    ends = np.cumsum(heads.size)
    total = int(ends[-1])
    return data[np.repeat(heads.at - (ends - heads.size), heads.size) + np.arange(total)], ends


def _columns_of(data: leb.Bytes, heads: _Heads) -> tuple[Numbers, Places]:
    """The numbers of all sections, and how many each has."""
    stream, ends = _gathered(data, heads)
    if not np.all(stream[ends[heads.size > 0] - 1] < 0x80):
        raise Unusual
    numbers, last_bytes = leb.decode_column(stream)
    return numbers, np.diff(np.searchsorted(last_bytes, ends), prepend=0)


def _running(steps: Numbers, starts: Places, counts: Places, firsts: Numbers) -> Numbers:
    """Sums within each section, so that the element at `starts` becomes `firsts`; each section has
    `counts` elements.
    """
    sums = np.cumsum(steps)
    sums -= np.repeat(sums[starts] - firsts, counts)  # modulo 2^64, which comes out right
    return sums


def _decode_gaps(data: leb.Bytes, heads: _Heads, keys: Numbers, acks: _Acks) -> None:
    if not heads.size.any():
        acks.columns.append(keys | heads.first)
        return
    gaps, counts = _columns_of(data, heads)
    counts += 1
    starts = np.cumsum(counts) - counts
    steps = np.empty(gaps.size + counts.size, np.uint64)
    is_further = np.ones(steps.size, np.bool_)
    is_further[starts] = False
    steps[starts] = 0
    steps[is_further] = gaps + np.uint64(1)
    entries = _running(steps, starts, counts, heads.first)
    _check(entries)
    acks.columns.append(np.repeat(keys, counts) | entries)


def _decode_runs(data: leb.Bytes, heads: _Heads, keys: Numbers, acks: _Acks) -> None:
    numbers, counts = _columns_of(data, heads)
    if not np.all(counts & 1):
        raise Unusual
    starts = np.cumsum(counts) - counts
    is_gap = (np.arange(numbers.size) - np.repeat(starts, counts)) & 1 == 1
    numbers[is_gap] += np.uint64(2)
    edges = _running(numbers, starts, counts, heads.first + numbers[starts])
    _check(edges)
    run_lasts = np.flatnonzero(~is_gap)
    lasts = edges[run_lasts]
    firsts = edges[run_lasts - 1]
    firsts[np.cumsum((counts + 1) // 2) - (counts + 1) // 2] = heads.first
    sizes = lasts - firsts + np.uint64(1)
    if int(sizes.sum()) > _room(data):
        raise Unusual
    of_run = np.repeat(keys, (counts + 1) // 2)
    is_short = sizes < LONG_RUN
    short_sizes = sizes[is_short]
    short_keys = np.repeat(of_run[is_short], short_sizes.astype(np.intp))
    acks.columns.append(short_keys | sections.expand_runs(firsts[is_short], short_sizes))
    is_long = ~is_short
    ranks = of_run[is_long] >> np.uint64(32)
    for rank, first, last in zip(
        ranks.tolist(), firsts[is_long].tolist(), lasts[is_long].tolist(), strict=True
    ):
        acks.bitmap(rank).add_range(first, last + 1)


def _decode_bits(data: leb.Bytes, heads: _Heads, keys: Numbers, acks: _Acks) -> None:
    if not heads.size.all():
        raise Unusual
    stream, ends = _gathered(data, heads)
    if not np.all(stream[ends - 1]) or not np.all(stream[ends - heads.size] & 1):
        raise Unusual
    bits = np.flatnonzero(np.unpackbits(stream, bitorder="little"))
    # modulo 2^64
    of_byte = np.repeat(heads.first - (8 * (ends - heads.size)).astype(np.uint64), heads.size)
    entries = of_byte[bits >> 3] + bits.astype(np.uint64)
    _check(entries)
    acks.columns.append(np.repeat(keys, heads.size)[bits >> 3] | entries)


def _check(entries: Numbers) -> None:
    if int(entries.max()) > ENTRY_ID_MAX:
        raise Unusual
