"""Bytes made by hand are those of protobuf, and columns survive the way there and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper_client import (
    AckedIndexes,
    Acks,
    LayoutItem,
    LayoutState,
    LedgerAcks,
    PartialBatch,
    Position,
)
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.columns import (
    ack_batch,
    ack_set_of,
    encode_acks,
    missing_of,
    source_message_of,
)
from cursorkeeper_client.ack_stream.messages import layout_runs

U32 = st.integers(0, 2**32 - 1)
PARTIALS = st.one_of(
    st.builds(
        PartialBatch,
        U32,
        st.integers(0, 65_536),
        st.sets(st.integers(0, 300), min_size=1).map(BitMap),
    ),
    st.builds(AckedIndexes, U32, st.integers(1, 100), st.just(((0, 3), (5, 5)))),
)
LEDGERS = st.builds(
    LedgerAcks,
    st.integers(0, 2**63),
    st.lists(U32, max_size=300).map(lambda xs: np.array(xs, dtype=np.uint32)),
    st.lists(st.tuples(U32, U32), max_size=20).map(
        lambda pairs: [x for pair in pairs for x in sorted(pair)]
    ),
    st.lists(PARTIALS, max_size=3),
    st.one_of(st.none(), st.sets(U32, max_size=50).map(BitMap)),
)
ACKS = st.builds(
    Acks,
    st.lists(LEDGERS, max_size=3),
    st.one_of(st.none(), st.builds(Position, st.integers(0, 2**63), st.integers(-1, 2**32))),
    st.one_of(
        st.none(),
        st.dictionaries(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1), max_size=3),
    ),
)


@given(ACKS, st.integers(1, 2**32 - 1), st.integers(1, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_a_batch_made_by_hand_is_what_protobuf_reads(
    acks: Acks, handle: int, seq: int, generation: int
) -> None:
    batch = ack_batch(handle, seq, generation, encode_acks(acks))
    read = pb.SourceMessage.FromString(source_message_of(batch)).ack_batch
    assert (read.handle, read.seq, read.generation) == (handle, seq, generation)
    assert read.ByteSize() == len(batch)  # what it costs of the credit
    assert read.HasField("mark_delete") == (acks.mark_delete is not None)
    assert acks.mark_delete in (None, (read.mark_delete.ledger, read.mark_delete.entry))
    assert read.HasField("properties") == (acks.properties is not None)
    assert dict(read.properties.values) == (acks.properties or {})
    assert len(read.ledgers) == len(acks.ledgers)
    for sent, got in zip(acks.ledgers, read.ledgers, strict=True):
        assert got.ledger_id == sent.ledger
        assert list(got.entries) == list(sent.entries)
        assert list(got.ranges) == list(sent.ranges)
        assert (BitMap.deserialize(got.roaring) if got.roaring else None) == sent.roaring
        for partial, said in zip(sent.partials, got.partial, strict=True):
            assert (said.entry, said.batch_size) == (partial.entry, partial.batch_size)
            if isinstance(partial, AckedIndexes):
                assert tuple((r.first, r.last) for r in said.acked) == partial.acked
            else:
                assert missing_of(said.ack_set) == partial.missing


@given(st.integers(1, 40), st.integers(0, 20))
def test_runs_of_a_layout_hold_every_ledger_and_touch(ledgers: int, ledgers_max: int) -> None:
    items = [LayoutItem(ledger, LayoutState.CLOSED, 10) for ledger in range(ledgers)]
    runs = layout_runs(items, ledgers_max)
    joined = [*runs[0], *(item for run in runs[1:] for item in run[1:])]
    assert joined == items
    assert all(before[-1] == after[0] for before, after in itertools.pairwise(runs))
    assert not ledgers_max or max(map(len, runs)) <= max(2, ledgers_max)


@given(st.sets(st.integers(0, 1000), min_size=1).map(BitMap))
def test_an_ack_set_is_pulsars_words(missing: BitMap) -> None:
    words = ack_set_of(missing)
    assert len(words) == missing.max() // 64 + 1
    assert [i for i in range(len(words) * 64) if words[i // 64] >> (i % 64) & 1] == list(missing)


@pytest.mark.parametrize("entries", [[-1], [2**32], np.array([[1]]), np.array([1.5])])
def test_what_is_no_column_of_entry_ids_is_an_error(entries: object) -> None:
    with pytest.raises(ValueError):
        encode_acks(Acks([LedgerAcks(1, entries)]))  # type: ignore[arg-type]


def test_ranges_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="first, last"):
        encode_acks(Acks([LedgerAcks(1, ranges=[1, 2, 3])]))
