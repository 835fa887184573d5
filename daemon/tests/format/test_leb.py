"""LEB128: one number, one encoding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.sizes import leb_size
from cursorkeeper.format import leb
from daemon.tests.format import reference

NUMBERS = (
    st.integers(0, (1 << 64) - 1)
    | st.integers(0, 300)
    | st.sampled_from([(1 << k) - d for k in range(7, 64, 7) for d in (0, 1)])
)


def written(n: int) -> bytes:
    out = bytearray()
    leb.append(out, n)
    return bytes(out)


@given(NUMBERS)
def test_a_number_comes_back_from_the_bytes_of_the_reference(n: int) -> None:
    data = written(n)
    assert data == reference.leb(n)
    assert leb.read(data + b"\x7f", 0) == (n, len(data))
    assert leb_size(n) == len(data)


@given(st.lists(st.integers(0, (1 << 32) - 1) | st.integers(0, 200), max_size=80))
def test_a_column_has_the_bytes_of_its_numbers(numbers: list[int]) -> None:
    data = leb.encode_column(np.array(numbers, np.int64))
    assert data == b"".join(map(written, numbers))
    values, ends = leb.decode_column(np.frombuffer(data, np.uint8))
    assert values.tolist() == numbers
    assert (ends + 1).tolist() == np.cumsum([leb_size(n) for n in numbers]).tolist()


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_zigzag_comes_back(n: int) -> None:
    assert leb.unzigzag(leb.zigzag(n)) == n
    assert leb.zigzag(n) < 1 << 64


def test_zigzag_alternates() -> None:
    assert [leb.zigzag(n) for n in (0, -1, 1, -2, 2)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n", [-1, 1 << 64])
def test_numbers_outside_are_refused(n: int) -> None:
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        leb.append(bytearray(), n)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut off"),
        (b"\x80", "cut off"),
        (b"\x80\x00", "not minimal"),
        (b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\xff" * 10 + b"\x01", "more than 10 bytes"),
    ],
)
def test_damage_is_named(data: bytes, words: str) -> None:
    with pytest.raises(DamageError, match=words):
        leb.read(data, 0)


@given(st.binary(max_size=12))
@example(b"\x81\x00")
@example(b"\x05\x80\x80\x00\x05")
@example(b"\x80\x80\x80\x80\x10")
@example(b"\xff\xff\xff\xff\x0f")
def test_a_column_accepts_what_one_by_one_accepts(data: bytes) -> None:
    expected: list[int] | None = []
    pos = 0
    try:
        while pos < len(data):
            number, pos = leb.read(data, pos)
            expected.append(number)
        if any(n >= 1 << 32 for n in expected):
            expected = None
    except DamageError:
        expected = None
    try:
        found: list[int] | None = leb.decode_column(np.frombuffer(data, np.uint8))[0].tolist()
    except DamageError:
        found = None
    assert found == expected
