"""Delta bodies: they come back, they are as small as their bound says, and their order does not
matter.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.join import join
from cursorkeeper.core.positions import Position
from cursorkeeper.core.sizes import (
    cursor_properties_bytes,
    delta_body_bytes_ceiling,
    delta_body_bytes_max,
    delta_members,
    layout_bytes_max,
    mark_delete_properties_bytes,
    partials_bytes_max,
)
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.format import delta
from daemon.tests.format.reference import leb
from daemon.tests.format.strategies import (
    NUMBER_MAPS,
    PARTIAL_MAPS,
    TEXT_MAPS,
    deltas,
    layouts,
    normal,
)


@given(deltas())
def test_a_delta_comes_back_and_keeps_its_bound(value: Delta) -> None:
    body = delta.encode(value)
    assert delta.decode(body) == value
    assert len(body) <= min(
        delta_body_bytes_max(value), delta_body_bytes_ceiling(value, delta_members(value))
    )


@given(deltas(), deltas())
def test_equal_deltas_have_equal_bytes(one: Delta, other: Delta) -> None:
    assert (delta.encode(one) == delta.encode(other)) == (one == other)
    turned = Delta(
        one.mark_delete,
        one.mark_delete_properties,
        one.cursor_properties,
        one.layout,
        dict(reversed(one.acks.items())),
        dict(reversed(one.partials.items())),
    )
    assert delta.encode(turned) == delta.encode(one)


@settings(max_examples=40)
@given(st.lists(deltas(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_replay_in_any_order_with_repeats_gives_the_same(
    values: list[Delta], chance: random.Random
) -> None:
    read = [delta.decode(delta.encode(value)) for value in values]
    forward = normal(join(read))
    shuffled = read + chance.choices(read, k=3)
    chance.shuffle(shuffled)
    assert normal(join(reversed(read))) == forward
    assert normal(join(shuffled)) == forward


@given(NUMBER_MAPS, TEXT_MAPS, layouts(), PARTIAL_MAPS)
def test_the_sizes_of_single_fields_hold(
    numbers: MarkDeleteProperties,
    texts: CursorProperties,
    layout: tuple[LayoutItem, ...],
    partials: dict[PartialKey, Partial],
) -> None:
    assert len(
        delta.encode(Delta(mark_delete_properties=numbers))
    ) == 1 + mark_delete_properties_bytes(numbers)
    assert len(delta.encode(Delta(cursor_properties=texts))) == 1 + cursor_properties_bytes(texts)
    assert len(delta.encode(Delta(layout=layout))) <= 1 + layout_bytes_max(layout)
    assert len(delta.encode(Delta(partials=partials))) <= 1 + partials_bytes_max(partials.values())


def test_the_order_of_a_map_does_not_show() -> None:
    stamp = Stamp(1, 2)
    one, other = ({"b": 1, "a": 2}, {"a": 2, "b": 1})
    assert delta.encode(
        Delta(mark_delete_properties=MarkDeleteProperties(stamp, one))
    ) == delta.encode(Delta(mark_delete_properties=MarkDeleteProperties(stamp, other)))


@given(
    st.binary(max_size=60)
    | st.tuples(deltas(), st.integers(0, 1 << 20), st.integers(1, 255)).map(lambda t: mutated(*t))
)
def test_garbage_is_damage_or_a_delta(body: bytes) -> None:
    try:
        value = delta.decode(body)
    except DamageError:
        return
    assert delta.decode(delta.encode(value)) == value


def mutated(value: Delta, at: int, by: int) -> bytes:
    body = bytearray(delta.encode(value))
    body[at % len(body)] ^= by
    return bytes(body)


@given(deltas(), st.integers(0, 1 << 20))
def test_a_body_is_consumed_exactly(value: Delta, cut: int) -> None:
    body = delta.encode(value)
    with pytest.raises(DamageError):
        delta.decode(body[: cut % len(body)])
    with pytest.raises(DamageError, match="1 bytes follow"):
        delta.decode(body + b"\x00")


def test_the_claims_of_all_sections_are_bounded_together() -> None:
    everything = leb(5 << 2 | 1) + leb(0) + leb((1 << 32) - 1)
    assert len(delta.decode(b"\x10\x01\x01" + everything).acks[1]) == 1 << 32
    with pytest.raises(DamageError, match="are allowed"):
        delta.decode(b"\x10\x02\x01" + everything + b"\x01" + everything)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "cut off"),
        (b"\x40", "unknown field bits 0x40"),
        (b"\x01" + leb(1 << 63) + b"\x00", "no ledger id"),
        (b"\x01\x00" + leb((1 << 32) + 1), "no entry id"),
        (b"\x02\x01\x00\x00\x01\xff\x00", "not UTF-8"),
        (b"\x02\x02\x00\x00\x01b\x00\x01a\x00", "keys do not ascend"),
        (b"\x02\x02\x00\x00\x01a\x00\x01a\x00", "keys do not ascend"),
        (b"\x04\x01\x00\x00\x05abc", "text of 5 bytes where 3 are left"),
        (b"\x08\x00", "there are none"),
        (b"\x08\x02\x01\x00\x00\x00\x00\x00", "do not ascend"),
        (b"\x08\x01\x01\x03\x00", "unknown layout state 3"),
        (b"\x08\x01\x01\x00\x07", "cannot have 7 entries"),
        (b"\x10\x00", "there are none"),
        (b"\x10\x7f\x00\x00\x00", "127 ack sections are announced in 3 bytes"),
        (b"\x10\x02\x01\x00\x00\x00\x00\x01", "do not ascend"),
        (b"\x20\x00", "there are none"),
        (b"\x20\x02\x01\x05\x00\x01\x00\x00\x00\x05\x00\x01\x00\x00", "do not ascend"),
        (b"\x20\x01\x01\x05\x00\x02\x00\x00", "announces 2 missing indexes and holds 1"),
        (b"\x20\x01\x01\x05\x04\x01\x00\x04", "misses index 4"),
        (b"\x20\x01\x01" + leb(1 << 32) + b"\x04\x01\x00\x00", "no entry id"),
    ],
)
def test_damage_is_named(body: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        delta.decode(body)


@pytest.mark.parametrize(
    "value",
    [
        Delta(acks={1: BitMap()}),
        Delta(partials={PartialKey(1, 1): Partial(3, BitMap())}),
        Delta(mark_delete=Position(-1, 0)),
        Delta(layout=(LayoutItem(2, LayoutState.CLOSED, 1), LayoutItem(1, LayoutState.OPEN, 0))),
        Delta(layout=(LayoutItem(2, LayoutState.OPEN, 1),)),
    ],
)
def test_values_that_break_the_contract_are_not_written(value: Delta) -> None:
    with pytest.raises(ValueError, match=r"."):
        delta.encode(value)
