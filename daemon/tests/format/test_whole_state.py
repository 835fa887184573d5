"""Which whole state may be written, which part of one, and that the numbers are right before
anything is encoded.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cursorkeeper.core.limits import KIB, MIB
from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    MarkDeleteProperties,
    Partial,
    PartialKey,
    Stamp,
)
from cursorkeeper.core.whole_form import DoesNotFit, Taken
from cursorkeeper.format.pulsar import chunks, cursor_info, position_info, ranges
from cursorkeeper.format.pulsar.compression import expand
from cursorkeeper.format.pulsar.values import Compression, Form, PositionInfo
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from daemon.tests.support.calls import calls_of


def made(**values: Any) -> PulsarStateWriter:
    return PulsarStateWriter(WholeStateSettings(**values))


def state(
    entries: BitMap | None = None,
    *,
    properties: dict[str, int] | None = None,
    cursor_properties: dict[str, str] | None = None,
    partials: dict[PartialKey, Partial] | None = None,
) -> AckState:
    found = AckState(Position(10, -1))
    found.join_delta(
        Delta(
            mark_delete_properties=MarkDeleteProperties(Stamp(1, 1), properties)
            if properties
            else None,
            cursor_properties=CursorProperties(Stamp(1, 1), cursor_properties)
            if cursor_properties
            else None,
            acks={10: entries} if entries else {},
            partials=partials or {},
        )
    )
    found.settle()
    return found


def holes(span: int, every: int = 2) -> BitMap:
    """Every other entry acked, not the first."""
    return BitMap(range(1, span, every))


def read(taken: Taken | DoesNotFit, compression: Compression = Compression.NONE) -> PositionInfo:
    """As a reader joins it."""
    assert isinstance(taken, Taken)
    raw = b"".join(taken.entries[:-1]) if len(taken.entries) > 1 else taken.entries[0]
    if compression is not Compression.NONE:
        raw = expand(raw[4:], compression, int.from_bytes(raw[:4], "big"))
    return position_info.decode(raw)


# ---- one entry or several


@pytest.mark.parametrize("form", list(Form))
def test_r01_below_the_threshold_one_entry_byte_for_byte_and_above_it_slices_and_a_footer(
    form: Form,
) -> None:
    small, large = state(holes(100)), state(holes(200_000))
    writer = made(form=form, multiple=True, max_entry_bytes=1_000, state_bytes_max=None)
    one, many = writer.take(small), writer.take(large)
    assert isinstance(one, Taken) and isinstance(many, Taken)
    assert one.entries == (position_info.encode(read(one), form),)
    assert {len(entry) for entry in many.entries[:-2]} == {1_000}
    footer = chunks.parse_footer(many.entries[-1])
    assert footer is not None and footer.parts == len(many.entries) - 1
    assert footer.length_bytes == sum(map(len, many.entries[:-1])) == many.encoded_bytes
    assert read(many).acked[10] == holes(200_000)


@given(
    st.sets(st.integers(1, 3_000), min_size=1, max_size=60),
    st.sampled_from(Form),
    st.integers(64, 200),
    st.sampled_from(Compression),
)
@settings(max_examples=80, deadline=None)
def test_the_announced_size_is_the_encoded_size(
    entries: set[int], form: Form, slice_bytes: int, compression: Compression
) -> None:
    writer = made(
        form=form,
        multiple=True,
        max_entry_bytes=slice_bytes,
        compression=compression,
        state_bytes_max=None,
    )
    taken = writer.take(state(BitMap(entries)))
    info = read(taken, compression)
    assert taken.encoded_bytes == len(position_info.encode(info, form))
    assert (set(info.acked.get(10, ())) | set(range(max(0, info.mark_delete.entry + 1)))) >= entries


@pytest.mark.parametrize("compression", list(Compression))
def test_r06_compression_is_named_in_the_ledger_and_none_leaves_no_trace(
    compression: Compression,
) -> None:
    writer = made(compression=compression)
    taken = writer.take(state(holes(50_000)))
    assert isinstance(taken, Taken)
    if compression is Compression.NONE:
        assert chunks.COMPRESSION_KEY not in writer.ledger_metadata
        assert taken.entries[0] == position_info.encode(read(taken), Form.LONG_ARRAY)
        return
    assert writer.ledger_metadata[chunks.COMPRESSION_KEY] == compression.name.encode()
    assert len(taken.entries[0]) < taken.encoded_bytes / 2, (
        "the size that counts is the one before compression"
    )
    assert read(taken, compression).acked[10] == holes(50_000)


def test_r06_none_is_the_default() -> None:
    assert WholeStateSettings().compression is Compression.NONE


# ---- limits


def test_r10_the_subscriptions_properties_count() -> None:
    """PIP-299 counts all cursor metadata, though they are stored elsewhere."""
    plain = made(state_bytes_max=None).take(state(holes(1_000)))
    found = made(state_bytes_max=plain.encoded_bytes).take(
        state(holes(1_000), cursor_properties={"a": "b"})
    )
    assert isinstance(found, DoesNotFit)
    assert found.encoded_bytes == plain.encoded_bytes + len(b"\x42\x06\x0a\x01a\x12\x01b")
    assert f"managedLedgerMaxAckStateInBytesToPersist = {plain.encoded_bytes}" in found.reason
    assert str(found.encoded_bytes) in found.reason


def test_r10_the_example_of_pip_299() -> None:
    """5m may be kept; properties 1m, sequence ids 0, individually deleted messages 10m: all
    properties and 4m of the rest.
    """
    text = {f"key {n:04}": "x" * 1_000 for n in range(1_040)}
    many = state(holes(6_000_000), cursor_properties=text)
    writer = made(form=Form.LONG_ARRAY, multiple=True, truncate=True, state_bytes_max=5 * MIB)
    whole = made(multiple=True, state_bytes_max=None).take(many)
    beside = whole.encoded_bytes - len(position_info.encode(read(whole), Form.LONG_ARRAY))
    assert MIB < beside < 1.1 * MIB
    wide = state(BitMap(range(1, 60_000_000, 2)), cursor_properties=text)
    taken = writer.take(wide)
    assert (
        isinstance(taken, Taken) and taken.encoded_bytes > 10 * MIB and taken.truncated is not None
    )
    kept = sum(map(len, taken.entries[:-1]))
    assert 4 * MIB - 100 * KIB < kept <= 5 * MIB - beside
    acked = read(taken).acked[10]
    assert acked == BitMap(range(1, acked.max() + 1, 2)), "the oldest"
    assert taken.truncated.acks == 30_000_000 - len(acked)


def test_r10_sequence_ids_come_before_acks() -> None:
    producers = {f"producer-{n:03}": n for n in range(50)}
    whole = state(holes(100_000), properties=producers)
    size = position_info.encoded_bytes(
        PositionInfo(Position(10, -1), properties=producers), Form.LONG_ARRAY
    )
    taken = made(truncate=True, state_bytes_max=size + 100).take(whole)
    assert isinstance(taken, Taken) and taken.truncated is not None
    info = read(taken)
    assert (
        dict(info.properties) == producers
        and 0 < len(info.acked[10]) < 1_000
        and taken.truncated.properties == 0
    )
    fewer = made(truncate=True, state_bytes_max=size - 100).take(whole)
    assert isinstance(fewer, Taken) and fewer.truncated is not None
    left = read(fewer)
    assert (
        0 < len(left.properties) < 50
        and not left.acked
        and fewer.truncated.properties == 50 - len(left.properties)
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_r10_a_part_is_the_longest_prefix_that_fits(data: st.DataObject) -> None:
    """Acks and batch sets in one order of positions: all up to some position, nothing behind it,
    and no more would fit.
    """
    entries = BitMap(data.draw(st.sets(st.integers(1, 4_000), min_size=1, max_size=80)))
    inside = data.draw(st.sets(st.integers(1, 4_000), max_size=10)) - set(entries) - {0}
    form = data.draw(st.sampled_from(Form))
    budget = data.draw(st.integers(40, 400))
    before = state(
        entries, partials={PartialKey(10, e): Partial(0, BitMap([1, 70])) for e in inside}
    )
    taken = made(
        form=form, truncate=True, multiple=True, max_entry_bytes=64, state_bytes_max=budget
    ).take(before)
    assert isinstance(taken, Taken)
    info, whole = read(taken), position_info.decode(b"".join(_whole(before, form)))
    assert sum(map(len, taken.entries[:-1] or taken.entries)) <= budget
    places = sorted({*whole.acked.get(10, ()), *(k.entry for k in whole.batches)})
    kept = {*info.acked.get(10, ()), *(k.entry for k in info.batches)}
    assert kept == set(places[: len(kept)])
    if taken.truncated is None:
        assert len(kept) == len(places)
        return
    assert taken.truncated.acks + taken.truncated.batches == len(places) - len(kept) > 0
    following = places[len(kept)]
    more = PositionInfo(
        whole.mark_delete,
        {10: more_acked}
        if (more_acked := BitMap(e for e in whole.acked.get(10, ()) if e <= following))
        else {},
        {k: v for k, v in whole.batches.items() if k.entry <= following},
    )
    assert position_info.encoded_bytes(more, form) > budget


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("limit", ["state_bytes_max", "ranges_max"])
def test_a_part_of_many_ledgers_is_found_in_one_walk(form: Form, limit: str) -> None:
    """Hundreds of data ledgers: each is measured once, and only the one that is cut is searched.
    All but one of them measured again for each of them would hold up every cursor of the daemon for
    minutes.
    """
    ledgers = range(11, 411)
    before = state(holes(100), partials={PartialKey(300, 5_000): Partial(0, BitMap([1]))})
    before.join_delta(Delta(acks={ledger: holes(100) for ledger in ledgers}))
    writer = made(
        form=form, multiple=True, truncate=True, **{"state_bytes_max": None, limit: 8_000}
    )
    with calls_of(position_info.encoded_bytes, lambda given: len(given["info"].acked)) as measured:
        taken = writer.take(before)
    assert isinstance(taken, Taken) and taken.truncated is not None
    assert 0 < sum(measured) <= 3 * len(ledgers)
    info = read(taken)
    *complete, cut = info.acked
    assert complete == [10, *ledgers][: len(complete)] and all(
        info.acked[ledger] == holes(100) for ledger in complete
    )
    assert info.acked[cut] == BitMap(list(holes(100))[: len(info.acked[cut])])
    if limit == "ranges_max":
        assert ranges.count(info.acked) == 8_000
    else:
        assert 8_000 - 64 < position_info.encoded_bytes(info, form) <= 8_000
    assert taken.truncated.acks == 50 * 401 - sum(map(len, info.acked.values()))


def _whole(before: AckState, form: Form) -> list[bytes]:
    taken = made(form=form, multiple=False, state_bytes_max=None).take(before)
    assert isinstance(taken, Taken)
    return list(taken.entries)


def test_ranges_are_counted_as_pulsar_writes_them() -> None:
    rng = random.Random(3)
    entries = BitMap(rng.sample(range(1, 10_000), 3_000))
    count = ranges.count({10: entries})
    assert isinstance(made(ranges_max=count, state_bytes_max=None).take(state(entries)), Taken)
    refused = made(ranges_max=count - 1, state_bytes_max=None).take(state(entries))
    assert isinstance(refused, DoesNotFit) and f"{count} ranges" in refused.reason


def test_r23_one_entry_never_exceeds_the_frame() -> None:
    size = position_info.encoded_bytes(
        PositionInfo(Position(10, -1), {10: holes(10_000)}), Form.LONG_ARRAY
    )
    for most, fits in ((size, True), (size - 1, False)):
        found = made(entry_bytes_max=most).take(state(holes(10_000)))
        assert isinstance(found, Taken) is fits
        if isinstance(found, DoesNotFit):
            assert (
                "persistentUnackedRangesWithMultipleEntriesEnabled = true" in found.reason
                and str(most) in found.reason
            )


@pytest.mark.parametrize("compression", list(Compression))
def test_a_part_for_one_entry_fits_the_frame_with_any_codec(compression: Compression) -> None:
    rng = random.Random(5)
    wild = state(BitMap(rng.sample(range(1, 1_000_000), 200_000)))
    taken = made(truncate=True, entry_bytes_max=50_000, compression=compression).take(wild)
    assert isinstance(taken, Taken) and len(taken.entries) == 1 and len(taken.entries[0]) <= 50_000
    assert taken.truncated is not None and taken.truncated.acks > 0


# ---- inside the footer


def test_a_small_state_inline_is_pulsars_znode_value() -> None:
    value = made().inline(
        state(BitMap([3, 4]), properties={"k": 7}, cursor_properties={"a": "b"}), 1_000
    )
    assert value is not None
    found = cursor_info.decode(value)
    assert found.is_inline and found.acked[10] == BitMap([3, 4])
    assert (dict(found.properties), dict(found.cursor_properties)) == ({"k": 7}, {"a": "b"})


def test_a_state_that_may_not_be_written_is_not_inline_either() -> None:
    assert made(ranges_max=1, state_bytes_max=None).inline(state(BitMap([3, 5])), 1_000) is None
    assert made().inline(state(holes(1_000)), 1_000) is None, "too large"
    assert (
        made(truncate=True, ranges_max=1, state_bytes_max=None).inline(state(BitMap([3, 5])), 1_000)
        is None
    ), "never a part"


def test_an_inline_state_may_be_compressed() -> None:
    writer = made(inline_compression=Compression.ZSTD, inline_threshold_bytes=100)
    value = writer.inline(state(holes(1_000)), 6_000)
    assert value is not None and value[:2] == b"\x47\x78"
    raw, how = cursor_info.unwrap(value, limit_bytes=1 << 20)
    assert how is Compression.ZSTD and cursor_info.decode(raw).acked[10] == holes(1_000)
