"""The footer's bytes: JSON in the cursor's znode.

Owns the order of the members, the names and ranges of those that `core.footer` has in another form,
and the checksum, which is the last member and covers every byte before `,"crc32c"`. Invariants:
equal footers have equal bytes (only the compressed inline record may differ between library
versions); a footer that names a newer version or another cursor is refused, and so is one whose
znode has another version than it was written as; top-level members this version does not know are
kept.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Final, TypeVar

from google_crc32c import value as crc32c
from msgspec import (
    UNSET,
    Meta,
    MsgspecError,
    Struct,
    UnsetType,
    ValidationError,
    convert,
    structs,
    to_builtins,
)
from msgspec import json as canonical_json

from cursorkeeper.core.errors import DamageError, Refusal, RefusedError, ReplacedError, TooNewError
from cursorkeeper.core.footer import (
    FOOTER_VERSION,
    FORMAT_NATIVE,
    FORMAT_PULSAR,
    Base,
    ChainLedger,
    EmptyBase,
    Entry,
    EntryAddress,
    Footer,
    FooterState,
    InlineBase,
    Number,
    Previous,
    PulsarBase,
    Small,
    SnapshotBase,
    Stats,
    Text,
    Truncation,
    Written,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.shape import worded
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
T = TypeVar("T")


class _Snapshot(Struct, rename="camel"):
    ledger: Number
    first_entry: Small
    last_entry: Small
    num_parts: Annotated[int, Meta(ge=1, le=ENTRY_ID_MAX)]
    length: Number
    crc32c: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]


class _Pulsar(Struct, rename="camel"):
    managed_cursor_info: str
    epoch: Small


class _Base(Struct, forbid_unknown_fields=True):
    """The member that is there names the kind of the base; there is exactly one."""

    empty: tuple[Number, Entry] | UnsetType = UNSET
    inline: str | UnsetType = UNSET
    pulsar: _Pulsar | UnsetType = UNSET
    snapshot: _Snapshot | UnsetType = UNSET


class _Based(Struct):
    """Where reading begins, and the ledgers to read."""

    base: _Base
    chain: tuple[ChainLedger, ...]


class _Properties(Struct):
    stamp: tuple[Number, Number]
    values: dict[Text, Text]


class _Version(Struct):
    version: Number


class _Format(_Version):
    format: Text


class _Form(Struct):
    format: Text = FORMAT_NATIVE


class _Forms(Struct):
    """What ledgers are written in."""

    chain: tuple[_Form, ...]


class _AllForms(_Forms):
    previous: _Forms | None = None


class _Footer(_Format, rename="camel", kw_only=True):
    """All members but the checksum, in their order; UNSET are those that may be left out."""

    cursor: Text
    topic: Text
    subscription: Text
    state: FooterState
    epoch: Small
    writer: Text
    write: Number
    generation: Small
    mark_delete: tuple[Number, Entry]
    base: _Base
    chain: tuple[ChainLedger, ...]
    previous: _Based | None = None
    stats: Stats
    damaged: tuple[tuple[Number, Entry], ...] | UnsetType = UNSET
    cursor_properties: _Properties | UnsetType = UNSET
    truncated: Truncation | UnsetType = UNSET
    znode: Written | UnsetType = UNSET
    fencing_token: Annotated[int, Meta(ge=1, le=LEDGER_ID_MAX)] | UnsetType = UNSET


_KNOWN: Final = {*_Footer.__struct_encode_fields__, "crc32c"}

Json = Mapping[str, Any]


def encode(footer: Footer, settings: record.EncodeSettings = record.DEFAULTS) -> bytes:
    """The znode's content.

    Raises RefusedError(TOO_LARGE) over `FOOTER_BYTES_MAX`, inline states not counted.
    """
    name = CursorName(footer.topic, footer.subscription)
    properties, previous = footer.cursor_properties, footer.previous
    told = _Footer(
        version=footer.version,
        format=footer.format,
        cursor=name.canonical,
        topic=footer.topic,
        subscription=footer.subscription,
        state=footer.state,
        epoch=footer.epoch,
        writer=footer.writer,
        write=footer.write,
        generation=footer.generation,
        mark_delete=footer.mark_delete,
        base=_told_base(footer.base, name, settings),
        chain=footer.chain,
        previous=_Based(_told_base(previous.base, name, settings), previous.chain)
        if previous
        else None,
        stats=footer.stats,
        damaged=footer.damaged or UNSET,
        cursor_properties=_Properties(properties.stamp, dict(sorted(properties.values.items())))
        if properties
        else UNSET,
        truncated=footer.truncated or UNSET,
        znode=footer.written or UNSET,
        fencing_token=footer.fencing_token or UNSET,
    )
    raw = None if footer.extra else _canonical(told)
    if raw is not None and len(data := _ended(raw)) <= FOOTER_BYTES_MAX:
        return data
    body = to_builtins(told)
    for item in [*body["chain"], *(body["previous"] or {}).get("chain", ())]:
        if item.get("format") == FORMAT_NATIVE:  # a default is left out that is the same object
            del item["format"]
    for key in sorted(footer.extra):
        if key in _KNOWN:
            raise ValueError(
                f"{key!r} is a member of the footer and cannot be kept as an unknown one"
            )
        body[key] = json.loads(json.dumps(footer.extra[key], sort_keys=True))
    data = _ended(json.dumps(body, separators=(",", ":"), allow_nan=False).encode()[:-1])
    size = len(data) - _inline_bytes(body) - len(json.dumps(body.get("cursorProperties", "")))
    if size > FOOTER_BYTES_MAX:
        raise RefusedError(
            Refusal.TOO_LARGE,
            name.display,
            f"the footer has {size} bytes without inline state, {FOOTER_BYTES_MAX} are allowed",
            "snapshot, so that the chain becomes shorter",
        )
    return data


def _canonical(told: _Footer) -> bytes | None:
    """The members as `encode` writes them, all but the last brace. None: something in them is not
    plain, and is spelled member by member.
    """
    try:
        raw = _PLAIN.encode(told)
    except UnicodeEncodeError:
        return None
    is_plain = raw.isascii() and b"\x7f" not in raw
    # a ledger's default may be said all the same: then there is one more than the footer's own
    is_said = raw.count(b'"format":"native"') > (told.format == FORMAT_NATIVE)
    return raw[:-1] if is_plain and not is_said else None


def _ended(raw: bytes) -> bytes:
    """With the checksum, and the last brace."""
    return raw + _TAIL + b':"%08x"}' % crc32c(raw)


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
    extra: dict[str, Any] = {}
    told = _plain(data)
    if told is None:
        body = _parse(data)
        extra = {key: body.pop(key) for key in [*body] if key not in _KNOWN}
        _check_version(body)
        _check_crc(data)
        _check_forms(_shaped(body, _AllForms))
        told = _shaped(body, _Footer)
    topic, subscription = told.topic, told.subscription
    own = expected is not None and topic == expected.topic and subscription == expected.subscription
    # a name keeps what was derived from it
    name = expected if expected is not None and own else CursorName(topic, subscription)
    if told.cursor != name.canonical:
        raise DamageError(
            f"cursor {told.cursor!r} is not topic {topic!r} and subscription {subscription!r}"
        )
    if expected is not None and not own:
        raise DamageError(f"this is the footer of {name}, not of {expected}")
    # version 2 is version 1 with a fencing token
    if bool(told.fencing_token) != (told.version == FOOTER_VERSION):
        raise DamageError(
            f"version {told.version} {'with' if told.fencing_token else 'without'} a fencing token"
        )
    properties = told.cursor_properties
    footer = Footer(
        topic=topic,
        subscription=subscription,
        state=told.state,
        epoch=told.epoch,
        writer=told.writer,
        write=told.write,
        generation=told.generation,
        mark_delete=Position(*told.mark_delete),
        base=_base(told, name, ""),
        chain=told.chain,
        previous=Previous(_base(told.previous, name, "previous "), told.previous.chain)
        if told.previous
        else None,
        damaged=tuple(EntryAddress(*address) for address in told.damaged or ()),
        stats=told.stats,
        cursor_properties=CursorProperties(Stamp(*properties.stamp), properties.values)
        if properties
        else None,
        truncated=told.truncated or None,
        written=told.znode or None,
        fencing_token=told.fencing_token or 0,
        extra=extra,
    )
    if footer.format != told.format:
        raise DamageError(f"format {told.format!r}, but what it names is {footer.format!r}")
    return footer


# --- checks before anything is believed -----------------------------------------------------------


_PLAIN: Final = canonical_json.Encoder()
_OF_PLAIN: Final = canonical_json.Decoder(_Footer)


def _plain(data: bytes) -> _Footer | None:
    """What the bytes say, if they are those that `encode` writes of it: then nothing else is in
    them, no member twice and none that is not known. None: they are to be looked at one by one.
    """
    raw = data[: data.rfind(_TAIL)]
    try:
        told = _OF_PLAIN.decode(raw + b"}")
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    is_known = 1 <= told.version <= FOOTER_VERSION and told.format in _FORMATS
    return told if is_known and _canonical(told) == raw and _ended(raw) == data else None


def _parse(data: bytes) -> dict[str, Any]:
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
        counts = Counter(name for name, _ in pairs)
        raise DamageError(
            f"member {next(name for name in found if counts[name] > 1)!r} comes twice"
        )
    return found


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_float, parse_constant=_float
)
"""Made once: `json.loads` with an argument makes one for each footer."""


def _shaped(body: Json, kind: type[T]) -> T:
    try:
        return convert(body, kind)
    except ValidationError as error:
        raise DamageError(worded(error)) from None
    except UnicodeEncodeError:
        raise DamageError("a member is not Unicode text") from None


def _check_version(body: Json) -> None:
    version = _shaped(body, _Version).version
    if version > FOOTER_VERSION:
        raise TooNewError(
            f"version {version}, this program reads up to {FOOTER_VERSION}: upgrade it first"
        )
    if version < 1:
        raise DamageError(f"unknown version {version}")
    _check_format("format", _shaped(body, _Format).format)


def _check_format(what: str, form: str) -> None:
    if form not in _FORMATS:
        raise TooNewError(
            f"{what} {form!r}, this program reads {', '.join(map(repr, _FORMATS))}: upgrade it "
            f"first"
        )


def _check_forms(told: _AllForms) -> None:
    """Before the ledgers' shape: what is newer may look otherwise."""
    for item in told.chain + (told.previous.chain if told.previous else ()):
        _check_format("a ledger of format", item.format)


def _check_crc(data: bytes) -> None:
    at = data.rfind(_TAIL)
    form = _TAIL_FORM.fullmatch(data, at) if at >= 0 else None
    if form is None:
        raise DamageError("crc32c is not the last member")
    crc = crc32c(data[:at])
    if crc != int(form[1], 16):
        raise DamageError(f"crc32c is {crc:08x} where the footer says {form[1].decode()}")


# --- base, chain, previous ------------------------------------------------------------------------


def _told_base(base: Base, name: CursorName, settings: record.EncodeSettings) -> _Base:
    match base:
        case EmptyBase():
            return _Base(empty=base.mark_delete)
        case InlineBase():
            entry = record.encode(
                Record(name.record_hash, base.epoch, base.generation, base.sequence, base.state),
                settings,
            )
            return _Base(inline=b64encode(entry).decode())
        case PulsarBase():
            return _Base(pulsar=_Pulsar(b64encode(base.info).decode(), base.epoch))
        case SnapshotBase():
            return _Base(snapshot=_told_snapshot(base))


def _told_snapshot(base: SnapshotBase) -> _Snapshot:
    return _Snapshot(
        base.ledger,
        base.first_entry,
        base.last_entry,
        base.num_parts,
        base.length,
        f"{base.crc32c:08x}",
    )


def snapshot_json(base: SnapshotBase) -> dict[str, Any]:
    told: dict[str, Any] = to_builtins(_told_snapshot(base))
    return told


def _inline_bytes(body: Json) -> int:
    bases = [body["base"], body["previous"]["base"]] if body["previous"] else [body["base"]]
    return sum(
        len(base.get("inline", "")) + len(base.get("pulsar", {}).get("managedCursorInfo", ""))
        for base in bases
    )


def _base(told: _Based | _Footer, name: CursorName, where: str) -> Base:
    """The base, which must fit its chain: without the base's ledger in the chain its segments would
    not be read.
    """
    ledgers = [item.ledger for item in told.chain]
    if len(set(ledgers)) != len(ledgers):
        raise DamageError(f"the {where}chain names a ledger twice")
    match [member for member in structs.astuple(told.base) if member is not UNSET]:
        case [(ledger, entry)]:
            return EmptyBase(Position(ledger, entry))
        case [str() as text]:
            return _inline(text, name)
        case [_Pulsar() as inner]:
            return _pulsar(inner)
        case [_Snapshot() as inner]:
            if not any(c.ledger == inner.ledger and c.format == FORMAT_NATIVE for c in told.chain):
                raise DamageError(
                    f"the {where}snapshot is in ledger {inner.ledger}, which is not in the "
                    f"{where}chain"
                )
            fields = structs.asdict(inner) | {"crc32c": int(inner.crc32c, 16)}
            return SnapshotBase(**fields)
        case kinds:
            raise DamageError(f"a base of {len(kinds)} kinds")


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


def _pulsar(told: _Pulsar) -> PulsarBase:
    try:
        info = b64decode(told.managed_cursor_info, validate=True)
    except ValueError:
        raise DamageError("the inline state in Pulsar's form is not base64") from None
    base = PulsarBase(info, told.epoch)
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
