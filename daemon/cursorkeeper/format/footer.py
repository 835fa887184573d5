"""The footer's bytes: JSON in the cursor's znode.

Owns the order and names of the members and the checksum, which is the last member and covers every
byte before `,"crc32c"`. Invariants: equal footers have equal bytes (only the compressed inline
record may differ between library versions); a footer that names a newer version or another cursor
is refused, and so is one whose znode has another version than it was written as; top-level members
this version does not know are kept.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

from google_crc32c import value as crc32c

from cursorkeeper.core.errors import DamageError, Refusal, RefusedError, ReplacedError, TooNewError
from cursorkeeper.core.footer import (
    FOOTER_VERSION,
    FORMAT_NATIVE,
    FORMAT_PULSAR,
    Base,
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
    Written,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import (
    BEFORE_FIRST,
    ENTRY_ID_MAX,
    LEDGER_ID_MAX,
    NUMBER_MAX,
    Position,
)
from cursorkeeper.core.values import CursorProperties, Record, Segment, Stamp
from cursorkeeper.format import record
from cursorkeeper.format.pulsar import cursor_info
from cursorkeeper.format.pulsar.values import PositionInfo

FOOTER_BYTES_MAX: Final = 16 * 1024
"""Without inline states, which have their own limit."""

PULSAR_BYTES_MAX: Final = 4 << 20
"""Bytes of an inline state in Pulsar's form, expanded; writers stay below
`inline_state_max_bytes`.
"""
_FORMATS: Final = (FORMAT_NATIVE, FORMAT_PULSAR)
_TAIL: Final = b',"crc32c"'
_TAIL_FORM: Final = re.compile(rb',"crc32c":"([0-9a-f]{8})"}')
_CRC_HEX: Final = re.compile("[0-9a-f]{8}")
_STATS: Final = (
    ("ledgers", "ledgers"),
    ("span", "span"),
    ("holes", "holes"),
    ("runs", "runs"),
    ("partialBatches", "partial_batches"),
    ("deltaBytes", "delta_bytes"),
)
_KNOWN: Final = frozenset(
    {
        "version",
        "format",
        "cursor",
        "topic",
        "subscription",
        "state",
        "epoch",
        "writer",
        "write",
        "generation",
        "markDelete",
        "base",
        "chain",
        "previous",
        "damaged",
        "stats",
        "cursorProperties",
        "truncated",
        "znode",
        "fencingToken",
        "crc32c",
    }
)

Json = Mapping[str, Any]


def encode(footer: Footer, settings: record.EncodeSettings = record.DEFAULTS) -> bytes:
    """The znode's content.

    Raises RefusedError(TOO_LARGE) over `FOOTER_BYTES_MAX`, inline states not counted.
    """
    name = CursorName(footer.topic, footer.subscription)
    body: dict[str, Any] = {
        "version": footer.version,
        "format": footer.format,
        "cursor": name.canonical,
        "topic": footer.topic,
        "subscription": footer.subscription,
        "state": str(footer.state),
        "epoch": footer.epoch,
        "writer": footer.writer,
        "write": footer.write,
        "generation": footer.generation,
        "markDelete": list(footer.mark_delete),
        "base": _base_json(footer.base, name, settings),
        "chain": _chain_json(footer.chain),
        "previous": footer.previous
        and {
            "base": _base_json(footer.previous.base, name, settings),
            "chain": _chain_json(footer.previous.chain),
        },
        "stats": {key: getattr(footer.stats, attribute) for key, attribute in _STATS},
    }
    if footer.damaged:
        body["damaged"] = [list(address) for address in footer.damaged]
    if footer.cursor_properties is not None:
        stamp, values = footer.cursor_properties.stamp, footer.cursor_properties.values
        body["cursorProperties"] = {
            "stamp": list(stamp),
            "values": {key: values[key] for key in sorted(values)},
        }
    if footer.truncated is not None:
        body["truncated"] = footer.truncated.as_fields()
    if footer.written is not None:
        body["znode"] = footer.written._asdict()
    if footer.fencing_token:
        body["fencingToken"] = footer.fencing_token
    for key in sorted(footer.extra):
        if key in _KNOWN:
            raise ValueError(
                f"{key!r} is a member of the footer and cannot be kept as an unknown one"
            )
        body[key] = json.loads(json.dumps(footer.extra[key], sort_keys=True))
    raw = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()[:-1]
    data = raw + _TAIL + b':"%08x"}' % crc32c(raw)
    size = len(data) - _inline_bytes(body) - len(json.dumps(body.get("cursorProperties", "")))
    if size > FOOTER_BYTES_MAX:
        raise RefusedError(
            Refusal.TOO_LARGE,
            name.display,
            f"the footer has {size} bytes without inline state, {FOOTER_BYTES_MAX} are allowed",
            "snapshot, so that the chain becomes shorter",
        )
    return data


def decode(
    data: bytes, expected: CursorName | None = None, znode_version: int | None = None
) -> Footer:
    """The footer. `expected`: the cursor it is read for; None: any. `znode_version`: as it was read
    with the data; None: the bytes come from somewhere else.

    Raises TooNewError, ReplacedError, DamageError (place "footer").
    """
    try:
        footer = _decode(data, expected)
        if znode_version is not None and footer.written_as not in (None, znode_version):
            raise ReplacedError(
                f"its znode has version {znode_version}, and these bytes were written as version "
                f"{footer.written_as}"
            )
        return footer
    except DamageError as error:
        raise error.at("footer") from None


def _decode(data: bytes, expected: CursorName | None) -> Footer:
    body = _parse(data)
    _check_version(body)
    _check_crc(data)
    topic, subscription = _text(body, "topic"), _text(body, "subscription")
    own = expected is not None and topic == expected.topic and subscription == expected.subscription
    # a name keeps what was derived from it
    name = expected if expected is not None and own else CursorName(topic, subscription)
    if _text(body, "cursor") != _canonical(name):
        raise DamageError(
            f"cursor {body['cursor']!r} is not topic {topic!r} and subscription {subscription!r}"
        )
    if expected is not None and not own:
        raise DamageError(f"this is the footer of {name}, not of {expected}")
    previous, stats = body.get("previous"), _object(body, "stats")
    base, chain = _based_chain(body, name, "")
    footer = Footer(
        topic=topic,
        subscription=subscription,
        state=_state(_text(body, "state")),
        epoch=_number(body, "epoch", most=NUMBER_MAX),
        writer=_text(body, "writer"),
        write=_number(body, "write"),
        generation=_number(body, "generation", most=NUMBER_MAX),
        mark_delete=_position(body.get("markDelete"), "markDelete"),
        base=base,
        chain=chain,
        previous=None if previous is None else _previous(_object(body, "previous"), name),
        damaged=_addresses(body.get("damaged", []), "damaged"),
        stats=Stats(**{attribute: _number(stats, key) for key, attribute in _STATS}),
        cursor_properties=_properties(_object(body, "cursorProperties"))
        if "cursorProperties" in body
        else None,
        truncated=_truncation(_object(body, "truncated")) if "truncated" in body else None,
        written=_written(_object(body, "znode")) if "znode" in body else None,
        fencing_token=_fencing_token(body),
        extra={}
        if body.keys() <= _KNOWN
        else {key: value for key, value in body.items() if key not in _KNOWN},
    )
    if footer.format != body["format"]:
        raise DamageError(f"format {body['format']!r}, but what it names is {footer.format!r}")
    return footer


# --- checks before anything is believed -----------------------------------------------------------


def _parse(data: bytes) -> Json:
    try:
        body = _JSON.decode(data.decode())
    except DamageError:
        raise
    except (ValueError, RecursionError):
        raise DamageError("not JSON") from None
    if not isinstance(body, dict):
        raise DamageError("not a JSON object")
    return body


def _float(text: str) -> float:
    """Only in members that this version does not know: they are written back, and what is no number
    cannot be.
    """
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A member that comes twice is two answers to one question."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise DamageError(
            f"member {next(name for name in names if names.count(name) > 1)!r} comes twice"
        )
    return found


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_float, parse_constant=_float
)
"""Made once: `json.loads` with an argument makes one for each footer."""


def _check_version(body: Json) -> None:
    version = _number(body, "version")
    if version > FOOTER_VERSION:
        raise TooNewError(
            f"version {version}, this program reads up to {FOOTER_VERSION}: upgrade it first"
        )
    if version < 1:
        raise DamageError(f"unknown version {version}")
    if _text(body, "format") not in _FORMATS:
        raise TooNewError(
            f"format {body['format']!r}, this program reads {', '.join(map(repr, _FORMATS))}: "
            f"upgrade it first"
        )


def _check_crc(data: bytes) -> None:
    at = data.rfind(_TAIL)
    form = _TAIL_FORM.fullmatch(data, at) if at >= 0 else None
    if form is None:
        raise DamageError("crc32c is not the last member")
    crc = crc32c(data[:at])
    if crc != int(form[1], 16):
        raise DamageError(f"crc32c is {crc:08x} where the footer says {form[1].decode()}")


# --- base, chain, previous ------------------------------------------------------------------------


def _base_json(base: Base, name: CursorName, settings: record.EncodeSettings) -> dict[str, Any]:
    if isinstance(base, EmptyBase):
        return {"empty": list(base.mark_delete)}
    if isinstance(base, InlineBase):
        entry = record.encode(
            Record(name.record_hash, base.epoch, base.generation, base.sequence, base.state),
            settings,
        )
        return {"inline": b64encode(entry).decode()}
    if isinstance(base, PulsarBase):
        return {"pulsar": {"managedCursorInfo": b64encode(base.info).decode(), "epoch": base.epoch}}
    return {"snapshot": snapshot_json(base)}


def snapshot_json(base: SnapshotBase) -> dict[str, Any]:
    return {
        "ledger": base.ledger,
        "firstEntry": base.first_entry,
        "lastEntry": base.last_entry,
        "numParts": base.num_parts,
        "length": base.length,
        "crc32c": f"{base.crc32c:08x}",
    }


def _inline_bytes(body: Json) -> int:
    bases = [body["base"], body["previous"]["base"]] if body["previous"] else [body["base"]]
    return sum(
        len(base.get("inline", "")) + len(base.get("pulsar", {}).get("managedCursorInfo", ""))
        for base in bases
    )


def _base(body: Json, name: CursorName) -> Base:
    if len(body) != 1:
        raise DamageError(f"a base of {len(body)} kinds")
    if "empty" in body:
        return EmptyBase(_position(body["empty"], "empty"))
    if "inline" in body:
        return _inline(_text(body, "inline"), name)
    if "pulsar" in body:
        return _pulsar(_object(body, "pulsar"))
    if "snapshot" not in body:
        raise DamageError(f"unknown base {next(iter(body))!r}")
    inner = _object(body, "snapshot")
    crc = _text(inner, "crc32c")
    if not _CRC_HEX.fullmatch(crc):
        raise DamageError(f"snapshot crc32c {crc!r} is not eight hex digits")
    return SnapshotBase(
        ledger=_number(inner, "ledger"),
        first_entry=_number(inner, "firstEntry", most=ENTRY_ID_MAX),
        last_entry=_number(inner, "lastEntry", most=ENTRY_ID_MAX),
        num_parts=_number(inner, "numParts", 1, ENTRY_ID_MAX),
        length=_number(inner, "length"),
        crc32c=int(crc, 16),
    )


def _inline(text: str, name: CursorName) -> InlineBase:
    try:
        entry = b64decode(text, validate=True)
    except ValueError:
        raise DamageError("the inline state is not base64") from None
    try:
        value = record.decode(entry, name.record_hash)
    except DamageError as error:
        raise type(error)(f"inline state: {error.message}") from None
    if not isinstance(value.body, Segment):
        raise DamageError("the inline state is not a snapshot segment")
    return InlineBase(value.body, value.epoch, value.generation, value.sequence)


def _pulsar(body: Json) -> PulsarBase:
    try:
        info = b64decode(_text(body, "managedCursorInfo"), validate=True)
    except ValueError:
        raise DamageError("the inline state in Pulsar's form is not base64") from None
    base = PulsarBase(info, _number(body, "epoch", most=NUMBER_MAX))
    pulsar_state(base)  # checked now, so that nobody meets the damage later
    return base


def pulsar_state(base: PulsarBase) -> PositionInfo:
    """The state inside. Raises DamageError, TooNewError."""
    try:
        found = cursor_info.decode(cursor_info.unwrap(base.info, limit_bytes=PULSAR_BYTES_MAX)[0])
        if not found.is_inline or found.mark_delete is None:
            raise DamageError("holds no state: it names a cursor ledger, or no mark-delete")
        if found.crossing:
            raise DamageError("holds ranges across data ledgers, which this software never writes")
    except DamageError as error:
        raise type(error)(f"inline state in Pulsar's form: {error.message}") from None
    return cursor_info.inline_state(found)


def _chain_json(chain: Sequence[ChainLedger]) -> list[dict[str, int | str]]:
    return [
        {"ledger": item.ledger}
        | ({} if item.last_entry is None else {"lastEntry": item.last_entry})
        | ({} if item.format == FORMAT_NATIVE else {"format": item.format})
        for item in chain
    ]


def _chain(value: object) -> tuple[ChainLedger, ...]:
    if not isinstance(value, list):
        raise DamageError("chain is not a list")
    items = []
    for item in value:
        if not isinstance(item, dict):
            raise DamageError("chain holds something else than ledgers")
        last = item.get("lastEntry")
        form = _text(item, "format") if "format" in item else FORMAT_NATIVE
        if form not in _FORMATS:
            raise TooNewError(
                f"a ledger of format {form!r}, this program reads "
                f"{', '.join(map(repr, _FORMATS))}: upgrade it first"
            )
        end = None if last is None else _number(item, "lastEntry", BEFORE_FIRST, ENTRY_ID_MAX)
        items.append(ChainLedger(_number(item, "ledger"), end, form))
    return tuple(items)


def _based_chain(body: Json, name: CursorName, where: str) -> tuple[Base, tuple[ChainLedger, ...]]:
    """Base and chain, which must fit: without the base's ledger in the chain its segments would not
    be read.
    """
    base, chain = _base(_object(body, "base"), name), _chain(body.get("chain"))
    ledgers = [item.ledger for item in chain]
    if len(set(ledgers)) != len(ledgers):
        raise DamageError(f"the {where}chain names a ledger twice")
    if isinstance(base, SnapshotBase) and not any(
        c.ledger == base.ledger and c.format == FORMAT_NATIVE for c in chain
    ):
        raise DamageError(
            f"the {where}snapshot is in ledger {base.ledger}, which is not in the {where}chain"
        )
    return base, chain


def _previous(body: Json, name: CursorName) -> Previous:
    return Previous(*_based_chain(body, name, "previous "))


def _properties(body: Json) -> CursorProperties:
    pair, values = _pair(body.get("stamp")), _object(body, "values")
    if pair is None:
        raise DamageError("cursorProperties are not a stamp and a map of texts")
    for key in values:
        _encodable(key, "cursorProperties")
        _text(values, key, "cursorProperties")
    return CursorProperties(Stamp(_number(pair, "0"), _number(pair, "1")), values)


def _truncation(body: Json) -> Truncation:
    return Truncation(
        _number(body, "acks"),
        _number(body, "batches"),
        _number(body, "properties"),
        _text(body, "limit"),
    )


def _written(body: Json) -> Written:
    return Written(
        _number(body, "version"), _number(body, "epoch", most=NUMBER_MAX), _number(body, "write")
    )


def _fencing_token(body: Json) -> int:
    """Version 2 is version 1 with a fencing token."""
    has = "fencingToken" in body
    if has != (body["version"] == FOOTER_VERSION):
        raise DamageError(
            f"version {body['version']} {'with' if has else 'without'} a fencing token"
        )
    return _number(body, "fencingToken", least=1) if has else 0


def _addresses(value: object, name: str) -> tuple[EntryAddress, ...]:
    if not isinstance(value, list):
        raise DamageError(f"{name} is not a list")
    return tuple(EntryAddress(*_position(item, name)) for item in value)


# --- single members -------------------------------------------------------------------------------


def _canonical(name: CursorName) -> str:
    try:
        return name.canonical
    except UnicodeEncodeError:
        raise DamageError("the cursor's name is not Unicode text") from None


def _state(text: str) -> FooterState:
    try:
        return FooterState(text)
    except ValueError:
        raise DamageError(f"unknown state {text!r}") from None


def _text(body: Json, name: str, place: str = "") -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise DamageError(f"{place or name} is not a text")
    return _encodable(value, place or name)


def _encodable(text: str, name: str) -> str:
    """JSON can write half a character, and nothing that carries text further can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DamageError(f"{name} is not Unicode text") from None
    return text


def _number(body: Json, name: str, least: int = 0, most: int = LEDGER_ID_MAX) -> int:
    value = body.get(name)
    # JSON's true is a bool, which is another type
    if type(value) is not int or not least <= value <= most:
        raise DamageError(f"{name} is not a number in its range")
    return value


def _object(body: Json, name: str) -> dict[str, Any]:
    value = body.get(name)
    if not isinstance(value, dict):
        raise DamageError(f"{name} is not an object")
    return value


def _position(value: object, name: str) -> Position:
    pair = _pair(value)
    if pair is None:
        raise DamageError(f"{name} is not [ledger, entry]")
    position = Position(_number(pair, "0"), _number(pair, "1", BEFORE_FIRST))
    if position.entry > ENTRY_ID_MAX:
        raise DamageError(f"{name} is beyond the last entry id")
    return position


def _pair(value: object) -> Json | None:
    return {"0": value[0], "1": value[1]} if isinstance(value, list) and len(value) == 2 else None
