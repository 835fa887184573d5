"""What a broker says it holds in memory: the answer of `GET
/admin/v2/persistent/.../internalStats`, which `pulsar-admin topics stats-internal` prints too.

Owns the reading of that JSON, which comes from outside and is never believed: one cursor that
cannot be read is an error of that cursor alone. It tells whole entries only; which messages of a
batch are acked is not in it. `individuallyDeletedMessages` may be long: a million ranges, 30 MB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

import msgspec
from pyroaring import BitMap

from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.shape import worded
from cursorkeeper.format.pulsar.values import Form, PositionInfo

GROWTH_MAX: Final = 16_000_000
"""So many entries at most has an open ledger got since its length was told."""
_POSITION: Final = re.compile(r"([0-9]{1,19}):(-1|[0-9]{1,19})")
_RANGE: Final = re.compile(r"\(([0-9]{1,19}):(-1|[0-9]{1,19})\.\.([0-9]{1,19}):([0-9]{1,19})\]")
_RANGES: Final = re.compile(rf"\[(?:{_RANGE.pattern}(?:,{_RANGE.pattern})*+)?\]")
T = TypeVar("T")
_Count = Annotated[int, msgspec.Meta(ge=0, le=ENTRY_ID_MAX + 1)]


class InternalsError(ValueError):
    """What is wrong with a broker's answer, and where in it."""


class _Ledger(msgspec.Struct, rename="camel"):
    ledger_id: Annotated[int, msgspec.Meta(ge=0, le=LEDGER_ID_MAX)] = 0
    entries: _Count = 0


class _Cursor(msgspec.Struct, rename="camel"):
    mark_delete_position: str
    individually_deleted_messages: str


class _Internals(msgspec.Struct, rename="camel"):
    ledgers: list[_Ledger]
    cursors: dict[str, Any]
    """Each is looked at by itself."""
    current_ledger_entries: _Count = 0


@dataclass(frozen=True, slots=True)
class TopicInternals:
    """`cursors`: what each holds in memory, or why it cannot be read. `entries_by_ledger`: the
    topic's data ledgers, the open one with what it holds by now.
    """

    entries_by_ledger: Mapping[int, int] = field(default_factory=dict)
    cursors: Mapping[str, PositionInfo | InternalsError] = field(default_factory=dict)


def read_json(data: bytes, what: str) -> Any:
    """Raises InternalsError."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InternalsError(f"{what} is not JSON: {error}") from None


def is_internals(value: Any) -> bool:
    """Whether an object looks like one topic's answer."""
    return isinstance(value, dict) and "cursors" in value and "ledgers" in value


def parse(value: Any) -> TopicInternals:
    """One topic's answer. Raises InternalsError where nothing of it can be used."""
    if not is_internals(value):
        raise InternalsError("no internalStats: an object with `ledgers` and `cursors` is expected")
    told = _converted(value, _Internals)
    ledgers = [row.ledger_id for row in told.ledgers]
    if ledgers != sorted(set(ledgers)):
        raise InternalsError("ledgers: each must come after the one before it")
    entries = {row.ledger_id: row.entries for row in told.ledgers}
    if ledgers:
        entries[ledgers[-1]] = max(entries[ledgers[-1]], told.current_ledger_entries)
    return TopicInternals(
        entries, {name: _cursor(cursor, entries) for name, cursor in told.cursors.items()}
    )


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InternalsError(worded(error)) from None


def _cursor(value: Any, ledgers: Mapping[int, int]) -> PositionInfo | InternalsError:
    try:
        told = _converted(value, _Cursor)
        mark_delete = parse_position(told.mark_delete_position)
        acked = parse_ranges(told.individually_deleted_messages, mark_delete)
        _check_bounds(acked, ledgers)
        return PositionInfo(mark_delete, acked, form=Form.RANGES if acked else None)
    except InternalsError as error:
        return error


def _check_bounds(acked: Mapping[int, BitMap], ledgers: Mapping[int, int]) -> None:
    """The open ledger may have grown, or a new one begun, between the broker's reading of the one
    and of the other.
    """
    last = max(ledgers, default=-1)
    for ledger, entries in acked.items():
        room = ledgers.get(ledger, 0) + (GROWTH_MAX if ledger >= last else 0)
        if (ledger in ledgers or ledger > last) and entries.max() >= room:
            raise InternalsError(
                f"individuallyDeletedMessages: {ledger}:{entries.max()} is acked, and the topic "
                f"ends before it"
            )


def parse_position(text: str) -> Position:
    """ "12:4" as a position. Raises InternalsError."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise InternalsError(f"markDeletePosition: {text[:40]!r} is not LEDGER:ENTRY")
    position = Position(int(found[1]), int(found[2]))
    if position.ledger > LEDGER_ID_MAX or position.entry > ENTRY_ID_MAX:
        raise InternalsError(f"markDeletePosition: {text} is out of range")
    return position


def parse_ranges(text: str, mark_delete: Position) -> dict[int, BitMap]:
    """ "[(12:5..12:7],(12:8..12:9]]" as entries above mark-delete, per ledger. Raises
    InternalsError.
    """
    if _RANGES.fullmatch(text) is None:
        raise InternalsError(
            f"individuallyDeletedMessages: not a list of ranges (L:E..L:E]: {text[:60]!r}"
        )
    found: dict[int, BitMap] = {}
    for match in _RANGE.finditer(text):
        ledger, lower, upper_ledger, upper = map(int, match.groups())
        if ledger != upper_ledger:
            raise InternalsError(
                f"individuallyDeletedMessages: {match[0]} goes from one ledger to another"
            )
        if upper <= lower or upper > ENTRY_ID_MAX or ledger > LEDGER_ID_MAX:
            raise InternalsError(
                f"individuallyDeletedMessages: {match[0]} ends before it begins, or is out of range"
            )
        if ledger >= mark_delete.ledger:
            found.setdefault(ledger, BitMap()).add_range(lower + 1, upper + 1)
    if mark_delete.ledger in found:
        found[mark_delete.ledger].remove_range(0, mark_delete.entry + 1)
    return {ledger: found[ledger] for ledger in sorted(found) if found[ledger]}
