"""Replay in batches is replay one by one, only faster: the same state and the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import Delta, OpenRecord, Partial, PartialKey, Record, Segment
from cursorkeeper.format import columns, delta, few, record, replay
from cursorkeeper.format.codec import Codec
from daemon.tests.format.reference import leb, section
from daemon.tests.format.strategies import RECORDS, bitmaps, deltas, normal

Merge = Callable[..., Delta]
MERGES = pytest.mark.parametrize("merge", [replay.merge_deltas, replay.merge_many])


@MERGES
@settings(max_examples=40)
@given(st.lists(deltas(), max_size=12))
def test_the_merge_is_the_join(merge: Merge, values: list[Delta]) -> None:
    bodies = [delta.encode(value) for value in values]
    assert normal(merge(bodies)) == normal(join(values))


SMALL_SETS = st.sampled_from(
    [
        BitMap([0]),
        BitMap([7, 9]),
        BitMap(range(5, 90)),
        BitMap(range(0, 99, 3)),
        BitMap([1 << 20, (1 << 32) - 1]),
        BitMap([*range(10), *range(20, 25), *range(100, 3_000)]),
        BitMap(n for n in range(500) if n * n % 7 < 3),
    ]
)
PLAIN = st.builds(
    Delta,
    st.none() | st.builds(Position, st.integers(0, 3), st.integers(-1, 3)),
    acks=st.dictionaries(st.integers(0, 60), SMALL_SETS, max_size=30),
    partials=st.dictionaries(
        st.builds(PartialKey, st.integers(0, 3), st.integers(0, 9)),
        st.sampled_from([Partial(9, BitMap([1])), Partial(9, BitMap([2]))]),
    ),
)


@MERGES
@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(PLAIN, min_size=30, max_size=60))
def test_many_plain_bodies_take_the_columns(merge: Merge, values: list[Delta]) -> None:
    bodies = [delta.encode(value) for value in values]
    assert columns.read(bodies).rest == []
    assert normal(merge(bodies)) == normal(join(values))


@MERGES
@given(st.lists(PLAIN, min_size=1, max_size=40), st.integers(0, 1 << 30), st.integers(1, 255))
def test_damage_is_found_as_one_by_one(merge: Merge, values: list[Delta], at: int, by: int) -> None:
    bodies = [bytearray(delta.encode(value)) for value in values]
    index = at % len(bodies)
    bodies[index][at // 64 % len(bodies[index])] ^= by
    changed = [bytes(body) for body in bodies]
    try:
        expected = join([delta.decode(body) for body in changed])
    except DamageError as error:
        with pytest.raises(DamageError) as caught:
            merge(changed, "entry {}".format)
        assert str(caught.value) == f"entry {index}: {error.message}"
        return
    assert normal(merge(changed)) == normal(expected)


ACKS_ALONE = st.builds(
    Delta,
    st.none() | st.builds(Position, st.integers(0, 3), st.integers(-1, 3)),
    acks=st.dictionaries(st.integers(0, 60), SMALL_SETS, max_size=6),
)


@given(st.lists(ACKS_ALONE, max_size=12))
def test_few_numbers_are_read_one_by_one(values: list[Delta]) -> None:
    bodies = [delta.encode(value) for value in values]
    assert normal(few.read(bodies)) == normal(join(values))


@given(
    st.lists(ACKS_ALONE, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_few_numbers_of_other_bytes_are_read_as_each_body_or_not_at_all(
    values: list[Delta], flips: list[tuple[int, int]]
) -> None:
    bodies = [bytearray(delta.encode(value)) for value in values]
    for at, by in flips:
        body = bodies[at % len(bodies)]
        body[at // 64 % len(body)] ^= by
    changed = [bytes(body) for body in bodies]
    try:
        found = few.read(changed)
    except columns.Unusual:
        return
    assert normal(found) == normal(join([delta.decode(body) for body in changed]))


def test_many_bytes_and_what_is_not_acks_are_left_to_others() -> None:
    partly = delta.encode(Delta(partials={PartialKey(1, 2): Partial(9, BitMap([1]))}))
    for bodies in ([partly], [bytes(few.BYTES_MAX + 1)]):
        with pytest.raises(columns.Unusual):
            few.read(bodies)


HUGE = [
    # 2^32 acks: as much as is allowed
    b"\x10\x01\x01" + leb(5 << 2 | 1) + leb(0) + leb((1 << 32) - 1),
    b"\x10\x01" + leb(1 << 63) + b"\x00\x00",
    b"\x10\x01\x01" + leb((1 << 62) << 2) + b"\x00",
    b"\x10\x01\x01\x00" + leb(1 << 32),
    b"\x10" + leb(1 << 63) + b"\x01\x00\x00",
    b"\x01" + leb((1 << 63) - 1) + leb(1 << 32),
    b"\x01" + leb(1 << 63) + leb(1),
    b"\x01\x01" + leb((1 << 32) + 1),
    b"\x10\x02" + leb((1 << 63) - 1) + b"\x00\x00\x01\x00\x00",
    b"\x10\x01\x01" + leb(12 << 2) + b"\x00" + b"\xff\xff\xff\xff\x0f" * 2 + b"\x00\x00",
    b"\x10\x01\x01\x01\x00",
    b"\x10\x01\x01\x02\x00",
    b"\x10\x01\x01\x09\x00\x01\x01",
    b"\x80\x01",
    b"\x10\x02\x05\x00\x00\x00\x00\x01",
    b"\x10\x02\x01" + leb(1 << 32) + b"\x00\x01\x00\x00",
    b"\x10\x02\x01"
    + leb(5 << 2 | 1)
    + leb(0)
    + leb((1 << 32) - 1)
    + b"\x01"
    + leb(5 << 2 | 1)
    + leb(0)
    + leb((1 << 32) - 1),
    b"\x10\x01\x05\x04\x00\x80",
    b"\x10\x02\x05\x04\x00\x80\x01\x04\x00\x01",
]


@MERGES
@pytest.mark.parametrize("body", HUGE, ids=bytes.hex)
@pytest.mark.parametrize("neighbours", [0, 40])
def test_numbers_at_the_edge_are_judged_as_one_by_one(
    merge: Merge, body: bytes, neighbours: int
) -> None:
    bodies = [delta.encode(Delta(acks={3: BitMap([5]), 4: BitMap([5])}))] * neighbours + [body]
    try:
        expected = join([delta.decode(b) for b in bodies])
    except DamageError as error:
        with pytest.raises(DamageError, match=f"delta body {neighbours}: ") as caught:
            merge(bodies)
        assert caught.value.message == error.message
        return
    assert normal(merge(bodies)) == normal(expected)


@MERGES
@given(bitmaps(), bitmaps())
def test_sections_of_any_shape_share_a_pass(merge: Merge, one: BitMap, other: BitMap) -> None:
    bodies = [
        b"\x10\x01\x05" + section(one),
        b"\x10\x02\x05" + section(other) + b"\x01" + section(one),
    ] * 20
    assert merge(bodies).acks == {5: one | other, 6: one}


@MERGES
def test_many_chunks_are_one_delta(merge: Merge) -> None:
    rng = np.random.default_rng(3)
    values = [
        Delta(acks={int(rng.integers(5)): BitMap(rng.integers(0, 60_000, 1_000).tolist())})
        for _ in range(900)
    ]
    bodies = [delta.encode(value) for value in values]
    assert sum(map(len, bodies)) > 3 * replay.CHUNK_BYTES
    assert normal(merge(bodies)) == normal(join(values))


@MERGES
def test_nothing_is_nothing(merge: Merge) -> None:
    assert merge([]) == Delta()
    assert replay.split_bodies([], 1) == []


# --- headers --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(RECORDS, max_size=6), st.sampled_from(Codec))
def test_split_together_is_split_one_by_one(values: list[Record], codec: Codec) -> None:
    entries = [record.encode(value, record.EncodeSettings(codec=codec)) for value in values]
    assert replay.split_bodies(entries, None) == [
        record.split_body(entry, None) for entry in entries
    ]


@given(st.integers(0, 1 << 30), st.randoms(use_true_random=False))
def test_the_first_bad_entry_is_named(bit: int, chance: random.Random) -> None:
    bodies = [
        *(Delta(acks={1: BitMap(range(n, 3_000, 3 + n))}) for n in range(6)),
        OpenRecord("c", 1, 1, "w"),
        Segment(),
    ]
    good = [record.encode(Record(7, 1, 1, n, body)) for n, body in enumerate(bodies)]
    index = chance.randrange(len(good))
    bad = bytearray(good[index])
    bad[bit // 8 % len(bad)] ^= 1 << bit % 8
    entries = [*good[:index], bytes(bad), *good[index + 1 :]]
    with pytest.raises(DamageError) as caught:
        replay.split_bodies(entries, 7, "entry {}".format)
    assert caught.value.place == f"entry {index}"
    with pytest.raises(DamageError, match=caught.value.message[:20].replace("(", ".")):
        record.split_body(bytes(bad), 7)
    with pytest.raises(DamageError, match="another cursor"):
        replay.split_bodies(good, 8)
    with pytest.raises(DamageError, match="cut off"):
        replay.split_bodies([good[0][: chance.randrange(3, 40)]], 7)
