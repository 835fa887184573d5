"""Which bodies of records are compressed."""

from __future__ import annotations

import random

import pytest
import zstandard
from pyroaring import BitMap

from cursorkeeper.core.values import Delta, Partial, PartialKey
from cursorkeeper.format import delta
from cursorkeeper.format.codec import (
    COMPRESS_FROM_BYTES,
    SMALL_BYTES,
    Codec,
    _repeats,
    compress,
    expand,
)

REGULAR: dict[str, Delta] = {
    "acks at equal distances": Delta(acks={5: BitMap(range(0, 1_400, 14))}),
    "one regular stretch and another": Delta(
        acks={5: BitMap([*range(0, 1_400, 14), *range(9_000, 10_700, 17)])}
    ),
    "the same of many ledgers": Delta(
        acks={at: BitMap([1_000 + at, 2_000 + at]) for at in range(40)}
    ),
    "one ack each, growing": Delta(acks={at: BitMap([1_000 + at]) for at in range(60)}),
    "equal partly acked batches": Delta(
        partials={PartialKey(5, 1_000 + at): Partial(100, BitMap([1, 4, 9])) for at in range(30)}
    ),
}


@pytest.mark.parametrize("what", REGULAR)
def test_small_bodies_that_repeat_themselves_are_compressed(what: str) -> None:
    body = delta.encode(REGULAR[what])
    assert COMPRESS_FROM_BYTES < len(body) < SMALL_BYTES
    codec, stored = compress(body, Codec.ZSTD, 1)
    assert codec is Codec.ZSTD and len(stored) < len(body)
    assert expand(stored, codec, len(body)) == body


def test_of_acks_here_and_there_hardly_a_small_body_is_tried_and_nothing_is_lost() -> None:
    rng, bodies = random.Random(7), list[bytes]()
    for _ in range(200):
        acks = {at: BitMap(rng.sample(range(50_000), 5)) for at in range(20)}
        bodies.append(delta.encode(Delta(acks=acks)))
    small = [body for body in bodies if len(body) < SMALL_BYTES]
    assert len(small) > 100
    assert sum(map(_repeats, small)) <= len(small) // 10
    best = sum(min(len(body), len(zstandard.compress(body, 1))) for body in small)
    assert best > 0.99 * sum(map(len, small)), "what it would have saved"


def test_bodies_that_are_not_small_are_always_tried() -> None:
    rng = random.Random(7)
    body = delta.encode(Delta(acks={5: BitMap(rng.sample(range(20_000), 1_000))}))
    assert len(body) > SMALL_BYTES
    assert compress(body, Codec.ZSTD, 1)[0] is Codec.ZSTD
    assert compress(body, Codec.NONE, 1) == (Codec.NONE, body)
