"""Footers: the same bytes for the same footer, and no other bytes are taken for one."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pyroaring import BitMap

from cursorkeeper.core.errors import DamageError, Refusal, RefusedError, ReplacedError, TooNewError
from cursorkeeper.core.footer import (
    FORMAT_NATIVE,
    FORMAT_PULSAR,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    PulsarBase,
    SnapshotBase,
    Stats,
    Truncation,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import CursorProperties, Delta, Record, Segment, Slice, Stamp
from cursorkeeper.format import footer, record
from daemon.tests.format.strategies import FOOTERS

PLAIN = Footer(
    topic="persistent://t/ns/topic",
    subscription="sub",
    state=FooterState.OPEN,
    epoch=7,
    writer="host/pid/claim-nonce",
    write=3,
    generation=1,
    mark_delete=Position(812, 44),
    base=SnapshotBase(9001, 1, 240, 13, 12_583_000, 0x9AB10000),
    chain=(ChainLedger(9001, 5120), ChainLedger(9044)),
    previous=Previous(EmptyBase(Position(3, -1)), (ChainLedger(8000, -1),)),
    damaged=(EntryAddress(8000, 17),),
    stats=Stats(1000, 50_000_000, 49_871, 49_102, 12, 48_211),
)
NAME = CursorName(PLAIN.topic, PLAIN.subscription)
SNAPSHOT = {
    "ledger": 9001,
    "firstEntry": 1,
    "lastEntry": 240,
    "numParts": 13,
    "length": 12_583_000,
    "crc32c": "9ab10000",
}


def sealed(body: dict[str, object]) -> bytes:
    """A footer of any members with the right checksum."""
    raw = json.dumps(body, separators=(",", ":")).encode()[:-1]
    return raw + b',"crc32c":"%08x"}' % crc32c(raw)


def members() -> dict[str, object]:
    body: dict[str, object] = json.loads(footer.encode(PLAIN))
    del body["crc32c"]
    return body


@given(FOOTERS)
def test_a_footer_comes_back_with_what_it_does_not_know(value: Footer) -> None:
    data = footer.encode(value)
    assert footer.decode(data) == value
    assert footer.decode(data, CursorName(value.topic, value.subscription)) == value
    assert footer.encode(footer.decode(data)) == data


def spelled(value: Footer) -> Footer:
    """With its texts of characters that are spelled as they are, and nothing unknown."""

    def plain(text: str) -> str:
        return "".join(chr(32 + ord(c) % 95) for c in text)

    properties = value.cursor_properties
    return replace(
        value,
        topic=plain(value.topic),
        subscription=plain(value.subscription),
        writer=plain(value.writer),
        cursor_properties=properties
        and CursorProperties(
            properties.stamp, {plain(k): plain(v) for k, v in properties.values.items()}
        ),
        truncated=value.truncated
        and structs.replace(value.truncated, limit=plain(value.truncated.limit)),
        extra={},
    )


@given(FOOTERS.map(spelled).filter(lambda value: not isinstance(value.base, InlineBase)))
def test_nearly_all_footers_are_read_in_one_go(value: Footer) -> None:
    data = footer.encode(value)
    assert footer._plain(data) is not None and footer.decode(data) == value


@given(FOOTERS | FOOTERS.map(spelled))
def test_it_is_spelled_as_pythons_json_spells_it(value: Footer) -> None:
    raw = footer.encode(value).rpartition(b',"crc32c"')[0]
    assert json.dumps(json.loads(raw + b"}"), separators=(",", ":")).encode()[:-1] == raw


@given(FOOTERS | FOOTERS.map(spelled))
def test_a_footer_with_something_unknown_says_the_same(value: Footer) -> None:
    """Known members are read in one go where nothing else is there, and one by one where it is."""
    raw = footer.encode(replace(value, extra={})).rpartition(b',"crc32c"')[0] + b',"later":1'
    assert footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw)) == replace(
        value, extra={"later": 1}
    )


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(chr, range(127))),
        "\x7f",
        "".join(map(chr, range(128, 256))),
        "\N{GRINNING FACE}",
        "",
    ],
)
def test_any_text_is_spelled_so_and_comes_back(text: str) -> None:
    value = replace(PLAIN, writer=text)
    data = footer.encode(value)
    assert json.dumps(text).encode() in data and data.isascii()
    assert footer.decode(data) == value


def test_half_a_character_is_written_as_it_is_and_not_read() -> None:
    data = footer.encode(replace(PLAIN, writer="\ud800"))
    assert b'"writer":"\\ud800"' in data
    with pytest.raises(DamageError):
        footer.decode(data)


def test_what_was_pickled_has_the_same_bytes() -> None:
    """The text of a default is another object then."""
    again = pickle.loads(pickle.dumps(PLAIN))
    assert again == PLAIN and footer.encode(again) == footer.encode(PLAIN)


@pytest.mark.parametrize("inside", [b"[", b'{"a":'])
def test_what_is_nested_too_deep_is_damage_also_where_nobody_knows_it(inside: bytes) -> None:
    deep = inside * 1_100 + (b"]" * 1_100 if inside == b"[" else b"1" + b"}" * 1_100)
    raw = footer.encode(PLAIN).rpartition(b',"crc32c"')[0] + b',"later":' + deep
    with pytest.raises(DamageError, match="footer: not JSON"):
        footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw))


def test_a_default_that_is_said_is_read_and_not_said_again() -> None:
    said = footer.encode(PLAIN).replace(b'{"ledger":9044}', b'{"ledger":9044,"format":"native"}')
    raw = said.rpartition(b',"crc32c"')[0]
    read = footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw))
    assert read == PLAIN and footer.encode(read) == footer.encode(PLAIN)


def test_the_bytes_are_these() -> None:
    assert footer.encode(PLAIN) == (
        b'{"version":1,"format":"native","cursor":"persistent://t/ns/topic|sub","topic":"persistent://t/ns/topic","subscription":"sub",'
        b'"state":"open","epoch":7,"writer":"host/pid/claim-nonce","write":3,"generation":1,"markDelete":[812,44],'
        b'"base":{"snapshot":{"ledger":9001,"firstEntry":1,"lastEntry":240,"numParts":13,"length":12583000,"crc32c":"9ab10000"}},'
        b'"chain":[{"ledger":9001,"lastEntry":5120},{"ledger":9044}],'
        b'"previous":{"base":{"empty":[3,-1]},"chain":[{"ledger":8000,"lastEntry":-1}]},'
        b'"stats":{"ledgers":1000,"span":50000000,"holes":49871,"runs":49102,"partialBatches":12,"deltaBytes":48211},"damaged":[[8000,17]],"crc32c":"5f545e4e"}'
    )


def test_a_write_says_the_version_that_it_makes() -> None:
    """Whatever puts these bytes at another version is none of ours; a release that copies the
    member changes epoch or write.
    """
    written = PLAIN.written_at(5)
    data = footer.encode(written)
    assert b',"damaged":[[8000,17]],"znode":{"version":5,"epoch":7,"write":3},"crc32c":' in data
    assert footer.decode(data, NAME, 5) == footer.decode(data, NAME) == written
    for version in (0, 4, 6):
        with pytest.raises(
            ReplacedError, match=f"has version {version}, and these bytes were written as version 5"
        ):
            footer.decode(data, NAME, version)
    copied = replace(written, write=4)
    assert copied.written_as is None and footer.decode(footer.encode(copied), NAME, 6) == copied
    assert footer.decode(footer.encode(PLAIN), NAME, 17) == PLAIN, "an earlier release's"


def test_a_fencing_token_and_nothing_else_makes_version_2() -> None:
    """Whoever does not compare tokens must not take the cursor; a footer without one is what it was
    before there were tokens.
    """
    fenced = replace(PLAIN, fencing_token=4711)
    plain, data = (footer.encode(value).rpartition(b',"crc32c"')[0] for value in (PLAIN, fenced))
    assert data == plain.replace(b'{"version":1,', b'{"version":2,', 1) + b',"fencingToken":4711'
    assert footer.decode(footer.encode(fenced)) == fenced
    assert footer.decode(footer.encode(replace(fenced, fencing_token=0))) == PLAIN


@pytest.mark.parametrize("twice", [b'"epoch":8,"writer"', b'"writer":"another","writer"'])
def test_a_member_that_comes_twice_is_damage(twice: bytes) -> None:
    raw = footer.encode(PLAIN).rpartition(b',"crc32c"')[0].replace(b'"writer"', twice, 1)
    with pytest.raises(DamageError, match="comes twice"):
        footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw))


def test_of_several_members_that_come_twice_the_first_is_named() -> None:
    raw = footer.encode(PLAIN).rpartition(b',"crc32c"')[0] + b',"writer":"x","epoch":8'
    with pytest.raises(DamageError, match="member 'epoch' comes twice"):
        footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw))


def test_an_unknown_number_that_could_not_be_written_back_is_damage() -> None:
    raw = footer.encode(PLAIN).rpartition(b',"crc32c"')[0] + b',"later":1e999'
    with pytest.raises(DamageError, match="not JSON"):
        footer.decode(raw + b',"crc32c":"%08x"}' % crc32c(raw))


def test_the_checksum_is_last_and_covers_what_is_before() -> None:
    data = footer.encode(PLAIN)
    head, tail = data[: data.rindex(b',"crc32c"')], data[data.rindex(b',"crc32c"') :]
    assert tail == b',"crc32c":"%08x"}' % crc32c(head)
    assert footer.decode(sealed(members())) == PLAIN


@given(FOOTERS, st.integers(0, 1 << 30))
def test_a_flipped_bit_is_found(value: Footer, bit: int) -> None:
    data = bytearray(footer.encode(value))
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    with pytest.raises(DamageError) as caught:
        footer.decode(bytes(data))
    assert caught.value.place == "footer"


@given(FOOTERS, st.integers(0, 1 << 30), st.binary(max_size=30))
def test_cut_off_prolonged_and_strange_footers_are_found(
    value: Footer, at: int, junk: bytes
) -> None:
    data = footer.encode(value)
    for wrong in (data[: at % len(data)], data + b" ", data + data, junk):
        with pytest.raises(DamageError):
            footer.decode(wrong)


def test_the_order_of_unknown_members_does_not_show() -> None:
    one = footer.encode(replace(PLAIN, extra={"b": {"y": 1, "x": 2}, "a": 1}))
    assert one == footer.encode(replace(PLAIN, extra={"a": 1, "b": {"x": 2, "y": 1}}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 0}, "unknown version 0"),
        ({"version": 2}, "version 2 without a fencing token"),
        ({"fencingToken": 7}, "version 1 with a fencing token"),
        ({"version": 2, "fencingToken": 0}, "fencingToken: Expected `int` >= 1"),
        ({"version": 2, "fencingToken": 1 << 63}, "fencingToken: Expected `int` <= "),
        ({"version": "1"}, "version: Expected `int`, got `str`"),
        ({"cursor": "x|y"}, "is not topic"),
        ({"topic": "\ud800"}, "topic: Expected `str` matching"),
        ({"state": "ajar"}, "state: Invalid enum value 'ajar'"),
        ({"epoch": -1}, "epoch: Expected `int` >= 0"),
        ({"epoch": True}, "epoch: Expected `int`, got `bool`"),
        ({"epoch": 1.5}, "epoch: Expected `int`, got `float`"),
        ({"epoch": 1 << 63}, "epoch: Expected `int` <= 4294967295"),
        ({"writer": None}, "writer: Expected `str`, got `null`"),
        ({"markDelete": [1]}, "markDelete: Expected `array` of length 2"),
        ({"markDelete": [1, -2]}, r"markDelete\[1\]: Expected `int` >= -1"),
        ({"markDelete": [1, 1 << 32]}, r"markDelete\[1\]: Expected `int` <= 4294967295"),
        ({"base": {}}, "base of 0 kinds"),
        ({"base": {"tape": 1}}, "base: Object contains unknown field `tape`"),
        ({"base": {"inline": "!"}}, "not base64"),
        ({"base": {"inline": "QUI="}}, "inline state: no record"),
        ({"base": {"snapshot": {"crc32c": "9AB10000"}}}, "crc32c: Expected `str` matching"),
        ({"chain": None}, "chain: Expected `array`, got `null`"),
        ({"chain": [1]}, r"chain\[0\]: Expected `object`, got `int`"),
        (
            {"chain": [{"ledger": 1, "lastEntry": -2}]},
            r"chain\[0\].lastEntry: Expected `int` >= -1",
        ),
        ({"damaged": {}}, "damaged: Expected `array`, got `object`"),
        ({"damaged": [[1, -2]]}, r"damaged\[0\]\[1\]: Expected `int` >= -1"),
        ({"damaged": [7]}, r"damaged\[0\]: Expected `array`, got `int`"),
        ({"previous": []}, "previous: Expected `object . null`, got `array`"),
        ({"stats": {}}, "stats: Object missing required field `ledgers`"),
        ({"epoch": 1 << 32}, "epoch: Expected `int` <= 4294967295"),
        ({"generation": 1 << 32}, "generation: Expected `int` <= 4294967295"),
        ({"generation": 1.0}, "generation: Expected `int`, got `float`"),
        ({"writer": "\ud800"}, "writer: Expected `str` matching"),
        (
            {"chain": [{"ledger": 1, "lastEntry": 1 << 32}]},
            "lastEntry: Expected `int` <= 4294967295",
        ),
        ({"chain": [{"ledger": 9001}, {"ledger": 9001}]}, "the chain names a ledger twice"),
        (
            {"chain": [{"ledger": 9044}]},
            "the snapshot is in ledger 9001, which is not in the chain",
        ),
        (
            {"base": {"snapshot": SNAPSHOT | {"lastEntry": 1 << 32}}},
            "base.snapshot.lastEntry: Expected `int` <= 4294967295",
        ),
        (
            {"base": {"snapshot": SNAPSHOT | {"numParts": 0}}},
            "base.snapshot.numParts: Expected `int` >= 1",
        ),
        (
            {"previous": {"base": {"snapshot": SNAPSHOT}, "chain": []}},
            "the previous snapshot is in ledger 9001",
        ),
        (
            {"znode": {"version": 3, "epoch": 1 << 32, "write": 1}},
            "znode.epoch: Expected `int` <= 4294967295",
        ),
        (
            {"cursorProperties": {"stamp": [1, 1], "values": {"a": "\ud800"}}},
            r"cursorProperties.values\[...\]: Expected `str` matching",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_damage_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(DamageError, match=words) as caught:
        footer.decode(sealed(members() | change))
    assert not isinstance(caught.value, TooNewError)


@given(FOOTERS)
def test_a_footer_that_was_sent_to_another_process_has_the_same_bytes(made: Footer) -> None:
    """What is left out because it is the default is so by its value."""
    assert footer.encode(pickle.loads(pickle.dumps(made))) == footer.encode(made)


def test_a_form_that_need_not_be_said_is_left_out_when_it_is_written_back() -> None:
    said = members() | {"chain": [{"ledger": 9001, "lastEntry": None, "format": "native"}]}
    found = footer.decode(sealed(said))
    assert found.chain == (ChainLedger(9001),)
    assert b'"chain":[{"ledger":9001}],' in footer.encode(found)


def test_what_is_newer_inside_may_look_otherwise() -> None:
    """It is refused as newer, never as damage, which might be repaired."""
    newer: list[object] = [{"format": "parquet", "file": 7}]
    for change in (
        {"chain": newer},
        {"previous": {"base": {"empty": [3, -1]}, "chain": newer}},
    ):
        with pytest.raises(TooNewError, match="a ledger of format 'parquet'"):
            footer.decode(sealed(members() | change))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"version":NaN}'])
def test_what_is_no_json_is_damage(data: bytes) -> None:
    with pytest.raises(DamageError, match="footer: not JSON"):
        footer.decode(data)


def test_the_checksum_must_be_the_last_member() -> None:
    body = members()
    with pytest.raises(DamageError, match="not the last member"):
        footer.decode(json.dumps(body).encode())
    with pytest.raises(DamageError, match="not the last member"):
        footer.decode(json.dumps({"crc32c": "00000000"} | body, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "change", [{"version": 3}, {"format": "parquet"}, {"version": 3, "base": {"tape": 1}}]
)
def test_what_is_newer_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(
        TooNewError, match=r"footer: (version 3|format 'parquet'), this program reads"
    ):
        footer.decode(sealed(members() | change))


def test_a_footer_without_damaged_has_none() -> None:
    body = members()
    del body["damaged"]
    assert footer.decode(sealed(body)).damaged == ()


def test_another_cursor_is_refused() -> None:
    with pytest.raises(DamageError, match=r"this is the footer of .*\|sub, not of .*\|other"):
        footer.decode(footer.encode(PLAIN), CursorName(PLAIN.topic, "other"))


def test_an_inline_state_is_one_record_of_this_cursor() -> None:
    state = Segment(Position(1, -1), slices=(Slice(1, 0, 99, True, BitMap([4])),))
    value = replace(PLAIN, base=InlineBase(state, 7, 2, 55), chain=())
    assert footer.decode(footer.encode(value)) == value
    other = json.loads(footer.encode(replace(value, subscription="other")))
    with pytest.raises(DamageError, match="inline state: a record of another cursor"):
        footer.decode(sealed(members() | {"base": other["base"]}))
    delta = b64encode(record.encode(Record(NAME.record_hash, 1, 1, 1, Delta()))).decode()
    with pytest.raises(DamageError, match="not a snapshot segment"):
        footer.decode(sealed(members() | {"base": {"inline": delta}}))


def test_sixteen_kibibytes_without_inline_state() -> None:
    ledgers = tuple(ChainLedger((1 << 63) - 1 - n, (1 << 32) - 1) for n in range(64))
    full = replace(PLAIN, chain=ledgers, previous=Previous(PLAIN.base, ledgers), writer="w" * 200)
    assert len(footer.encode(full)) < footer.FOOTER_BYTES_MAX
    with pytest.raises(RefusedError, match="without inline state, 16384 are allowed") as caught:
        footer.encode(replace(full, chain=ledgers * 5))
    assert caught.value.code is Refusal.TOO_LARGE
    holes = BitMap(n * n for n in range(20_000))
    inline = InlineBase(Segment(slices=(Slice(1, 0, 400_000_000, True, holes),)), 7, 1, 1)
    assert len(footer.encode(replace(full, base=inline))) > footer.FOOTER_BYTES_MAX


def test_a_known_member_is_not_taken_for_an_unknown_one() -> None:
    with pytest.raises(ValueError, match="'chain' is a member"):
        footer.encode(replace(PLAIN, extra={"chain": []}))


# ---- what is in Pulsar's form


WHOLE = replace(
    PLAIN,
    base=EmptyBase(Position(812, 44)),
    chain=(ChainLedger(9101, None, FORMAT_PULSAR),),
    previous=None,
    damaged=(),
    cursor_properties=CursorProperties(Stamp(7, 2), {"b": "2", "a": "1"}),
    truncated=Truncation(5, 1, 0, "aLimit=3"),
)


def test_the_bytes_of_a_footer_that_names_whole_states_are_these() -> None:
    assert footer.encode(WHOLE).rpartition(b',"crc32c"')[0] == (
        b'{"version":1,"format":"pulsar","cursor":"persistent://t/ns/topic|sub","topic":"persistent://t/ns/topic","subscription":"sub",'
        b'"state":"open","epoch":7,"writer":"host/pid/claim-nonce","write":3,"generation":1,"markDelete":[812,44],'
        b'"base":{"empty":[812,44]},"chain":[{"ledger":9101,"format":"pulsar"}],"previous":null,'
        b'"stats":{"ledgers":1000,"span":50000000,"holes":49871,"runs":49102,"partialBatches":12,"deltaBytes":48211},'
        b'"cursorProperties":{"stamp":[7,2],"values":{"a":"1","b":"2"}},'
        b'"truncated":{"acks":5,"batches":1,"properties":0,"limit":"aLimit=3"}'
    )


@pytest.mark.parametrize(
    "part",
    [
        {"chain": (ChainLedger(9001), ChainLedger(2, None, FORMAT_PULSAR))},
        {"previous": Previous(EmptyBase(Position(1, 1)), (ChainLedger(3, 4, FORMAT_PULSAR),))},
        {"base": PulsarBase(bytes.fromhex("08ffffffffffffffffff01100c1804"), 3)},
        {"cursor_properties": CursorProperties(Stamp(1, 1), {})},
        {"truncated": Truncation(0, 0, 0, "")},
    ],
    ids=lambda part: next(iter(part)),
)
def test_a_footer_is_pulsars_as_soon_as_one_part_is(part: dict[str, Any]) -> None:
    """So that a program that does not know such a part refuses the footer, and does not read half
    of it.
    """
    assert PLAIN.format == FORMAT_NATIVE
    made = replace(PLAIN, **part)
    assert made.format == FORMAT_PULSAR and json.loads(footer.encode(made))["format"] == "pulsar"
    assert footer.decode(footer.encode(made)) == made


def test_the_format_must_be_what_the_parts_are() -> None:
    body = json.loads(footer.encode(WHOLE))
    del body["crc32c"]
    with pytest.raises(DamageError, match="format 'native', but what it names is 'pulsar'"):
        footer.decode(sealed(body | {"format": "native"}))
    with pytest.raises(DamageError, match="format 'pulsar', but what it names is 'native'"):
        footer.decode(sealed(members() | {"format": "pulsar"}))
    with pytest.raises(TooNewError, match="a ledger of format 'parquet'"):
        footer.decode(sealed(body | {"chain": [{"ledger": 1, "format": "parquet"}]}))


@pytest.mark.parametrize(
    ("info", "problem"),
    [
        ("not base64!", "is not base64"),
        (
            b64encode(bytes.fromhex("084d100c1804")).decode(),
            "it names a cursor ledger, or no mark-delete",
        ),
        (
            b64encode(bytes.fromhex("08ffffffffffffffffff01")).decode(),
            "markDeleteLedgerId is missing",
        ),
        (b64encode(b"\x08").decode(), "inline state in Pulsar's form"),
        (
            b64encode(bytes.fromhex("4778000000040804 10ffffffff7f00")).decode(),
            "inline state in Pulsar's form",
        ),
    ],
)
def test_a_state_inside_in_pulsars_form_is_checked_when_it_is_read(info: str, problem: str) -> None:
    body = json.loads(footer.encode(WHOLE)) | {
        "base": {"pulsar": {"managedCursorInfo": info, "epoch": 1}}
    }
    del body["crc32c"]
    with pytest.raises(DamageError) as caught:
        footer.decode(sealed(body))
    assert problem in str(caught.value) and caught.value.place == "footer"
