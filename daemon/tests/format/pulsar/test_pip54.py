"""PIP-54's own messages: ranges of acked batch indexes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import pip54
from cursorkeeper.format.pulsar.errors import PulsarFormatError
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from daemon.tests.format.pulsar import oracle
from daemon.tests.format.pulsar.oracle import MESSAGES, Plain
from daemon.tests.format.pulsar.strategies import plains, value


def message(plain: Plain, sizes: dict[tuple[int, int], int]) -> Any:
    """By protobuf's library, index by index."""
    out = MESSAGES["Pip54PositionInfo"](ledgerId=plain.mark_delete[0], entryId=plain.mark_delete[1])
    oracle.add_ranges(out, plain.acked)
    oracle.add_properties(out, plain.properties)
    for key in sorted(plain.batches):
        made = out.batchDeletedIndexes.add()
        made.position.ledgerId, made.position.entryId = key
        acked = [index for index in range(sizes[key]) if index not in plain.batches[key]]
        for index in acked:
            if index - 1 in acked:
                made.batchDeletedIndexes[-1].upperIndex = index
            else:
                made.batchDeletedIndexes.add(lowerIndex=index, upperIndex=index)
    return out


@given(plains(), st.data())
def test_against_protobuf(plain: Plain, data: st.DataObject) -> None:
    plain.batches = {
        key: {index % 200 for index in missing} for key, missing in plain.batches.items()
    }
    sizes = {
        key: max(missing) + 1 + data.draw(st.integers(0, 3))
        for key, missing in plain.batches.items()
    }
    info = value(plain, Form.RANGES)
    batch_sizes = {PartialKey(*key): size for key, size in sizes.items()}
    data_bytes = message(plain, sizes).SerializeToString()
    assert pip54.encode(info, batch_sizes) == data_bytes
    back, acked = pip54.decode_acked(data_bytes)
    assert back == replace(info, batches={})
    untouched = {key for key, missing in plain.batches.items() if len(missing) == sizes[key]}
    assert acked == {
        PartialKey(*key): BitMap(set(range(sizes[key])) - missing)
        for key, missing in plain.batches.items()
        if key not in untouched
    }
    kept = {key: missing for key, missing in info.batches.items() if tuple(key) not in untouched}
    assert pip54.decode(data_bytes, batch_sizes) == replace(info, batches=kept)


def test_a_batch_with_every_index_acked_is_an_acked_entry() -> None:
    out = message(
        Plain((12, 4), {12: {7}}, {(12, 9): set(), (13, 0): {1}}), {(12, 9): 10, (13, 0): 3}
    )
    info = pip54.decode(out.SerializeToString(), {PartialKey(12, 9): 10, PartialKey(13, 0): 3})
    assert info == PositionInfo(
        Position(12, 4), {12: BitMap([7, 9])}, {PartialKey(13, 0): BitMap([1])}, form=Form.RANGES
    )


def test_sizes_are_needed_and_must_fit() -> None:
    info = PositionInfo(Position(12, 4), batches={PartialKey(12, 9): BitMap([1, 5])})
    for sizes in ({}, {PartialKey(12, 9): 5}, {PartialKey(12, 9): 0}, {PartialKey(12, 9): 70_000}):
        with pytest.raises(ValueError):
            pip54.encode(info, sizes)
    data = pip54.encode(info, {PartialKey(12, 9): 8})
    with pytest.raises(ValueError, match="12:9"):
        pip54.decode(data, {})
    with pytest.raises(ValueError, match="index 7 of a batch of 7"):
        pip54.decode(data, {PartialKey(12, 9): 7})


def test_overlapping_ranges_and_repeated_entries_are_their_union() -> None:
    out = MESSAGES["Pip54PositionInfo"](ledgerId=12, entryId=4)
    for rows in ([(5, 8), (2, 3), (3, 6)], [(0, 0)]):
        made = out.batchDeletedIndexes.add()
        made.position.ledgerId, made.position.entryId = 12, 9
        for lower, upper in rows:
            made.batchDeletedIndexes.add(lowerIndex=lower, upperIndex=upper)
    assert pip54.decode_acked(out.SerializeToString())[1] == {
        PartialKey(12, 9): BitMap([0, *range(2, 9)])
    }


@pytest.mark.parametrize("lower, upper", [(3, 2), (0, 65_536), (1 << 31, (1 << 32) - 1)])
def test_impossible_ranges(lower: int, upper: int) -> None:
    out = MESSAGES["Pip54PositionInfo"](ledgerId=12, entryId=4)
    made = out.batchDeletedIndexes.add()
    made.position.ledgerId, made.position.entryId = 12, 9
    made.batchDeletedIndexes.add(lowerIndex=lower, upperIndex=upper)
    with pytest.raises(PulsarFormatError):
        pip54.decode_acked(out.SerializeToString())


@pytest.mark.parametrize(
    "element",
    [
        "12 04 08 00 10 01",
        "0a 04 08 0c 10 09 12 02 08 00",
        "0a 04 08 0c 10 09 10 01",
        "0a 02 08 0c",
        "0a 0d 08 0c 10 ff ff ff ff ff ff ff ff ff 01",
    ],
)
def test_broken_elements(element: str) -> None:
    content = bytes.fromhex(element)
    with pytest.raises(PulsarFormatError):
        pip54.decode_acked(b"\x08\x0c\x10\x04\x2a" + bytes([len(content)]) + content)


def test_newer_elements() -> None:
    for element in ("0a 04 08 0c 10 09 18 01", "0a 04 08 0c 10 09 12 06 08 00 10 01 18 01"):
        content = bytes.fromhex(element)
        with pytest.raises(TooNewError):
            pip54.decode_acked(b"\x08\x0c\x10\x04\x2a" + bytes([len(content)]) + content)


@given(
    plains(),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 7)), min_size=1, max_size=3),
)
def test_flipped_bits(plain: Plain, flips: list[tuple[int, int]]) -> None:
    plain.batches = {
        key: {index % 200 for index in missing} for key, missing in plain.batches.items()
    }
    data = bytearray(
        message(
            plain, {key: max(missing) + 2 for key, missing in plain.batches.items()}
        ).SerializeToString()
    )
    for at, bit in flips:
        data[at % len(data)] ^= 1 << bit
    try:
        pip54.decode_acked(bytes(data))
    except DamageError as error:
        assert error.message
