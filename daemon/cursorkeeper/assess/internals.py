"""What a broker says it holds in memory: the answer of `GET
/admin/v2/persistent/.../internalStats`, which `pulsar-admin topics stats-internal` prints too.

Owns the reading of that JSON, which comes from outside and is never believed: one cursor that
cannot be read is an error of that cursor alone. It tells whole entries only; which messages of a
batch are acked is not in it. A long `individuallyDeletedMessages` (a million ranges, 30 MB) is read
by columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import bitmaps
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.format.pulsar.values import Form, PositionInfo

RANGE: Final = b"(:..:]"
GROWTH_MAX: Final = 16_000_000
"""So many entries at most has an open ledger got since its length was told."""
_DIGITS: Final = b"0123456789-"
_SPACES: Final = bytes.maketrans(b"()[]:.,", b"       ")
_POSITION: Final = re.compile(r"(\d{1,19}):(-1|\d{1,19})")


class InternalsError(ValueError):
    """What is wrong with a broker's answer, and where in it."""


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
    cursors = value["cursors"]
    if not isinstance(cursors, dict):
        raise InternalsError("cursors: an object is expected")
    ledgers = _ledgers(value)
    return TopicInternals(ledgers, {name: _cursor(told, ledgers) for name, told in cursors.items()})


def _ledgers(value: dict[str, Any]) -> dict[int, int]:
    rows = value["ledgers"]
    if not isinstance(rows, list):
        raise InternalsError("ledgers: a list is expected")
    found: dict[int, int] = {}
    last = -1
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InternalsError(f"ledgers[{at}]: an object is expected")
        ledger = _number(row, "ledgerId", f"ledgers[{at}]", LEDGER_ID_MAX)
        if ledger <= last:
            raise InternalsError(f"ledgers[{at}]: ledger {ledger} does not come after {last}")
        last = ledger
        found[ledger] = _number(row, "entries", f"ledgers[{at}]", ENTRY_ID_MAX + 1)
    if found:
        found[last] = max(found[last], _number(value, "currentLedgerEntries", "", ENTRY_ID_MAX + 1))
    return found


def _number(row: dict[str, Any], key: str, where: str, high: int) -> int:
    value = row.get(key, 0)
    if type(value) is not int or not 0 <= value <= high:
        raise InternalsError(
            f"{where}{'.' if where else ''}{key}: {str(value)[:40]!r} is not a number from 0 to "
            f"{high}"
        )
    return value


def _cursor(told: Any, ledgers: Mapping[int, int]) -> PositionInfo | InternalsError:
    try:
        if not isinstance(told, dict):
            raise InternalsError("an object is expected")
        mark_delete = parse_position(told.get("markDeletePosition"))
        acked = parse_ranges(told.get("individuallyDeletedMessages"), mark_delete)
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


def parse_position(text: Any) -> Position:
    """ "12:4" as a position. Raises InternalsError."""
    found = _POSITION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InternalsError(f"markDeletePosition: {str(text)[:40]!r} is not LEDGER:ENTRY")
    position = Position(int(found[1]), int(found[2]))
    if position.ledger > LEDGER_ID_MAX or position.entry > ENTRY_ID_MAX:
        raise InternalsError(f"markDeletePosition: {text} is out of range")
    return position


def parse_ranges(text: Any, mark_delete: Position) -> dict[int, BitMap]:
    """ "[(12:5..12:7],(12:8..12:9]]" as entries above mark-delete, per ledger. Raises
    InternalsError.
    """
    if not isinstance(text, str):
        raise InternalsError("individuallyDeletedMessages: a text is expected")
    try:
        data = text.encode("ascii")
    except UnicodeEncodeError:
        raise InternalsError("individuallyDeletedMessages: not a list of ranges") from None
    skeleton = data.translate(None, _DIGITS)
    if skeleton == b"[]" and data == skeleton:
        return {}
    count = (len(skeleton) - 1) // (len(RANGE) + 1)
    if count < 1 or skeleton != b"[" + b",".join([RANGE] * count) + b"]":
        raise InternalsError(
            f"individuallyDeletedMessages: not a list of ranges (L:E..L:E]: {text[:60]!r}"
        )
    try:
        numbers = np.array(data.translate(_SPACES).split(), dtype=np.int64)
    except (ValueError, OverflowError):
        raise InternalsError("individuallyDeletedMessages: a number in it is not one") from None
    if numbers.size != 4 * count:
        raise InternalsError("individuallyDeletedMessages: a number is missing")
    return _entries(numbers.reshape(-1, 4), mark_delete)


def _entries(
    ranges: np.ndarray[Any, np.dtype[np.int64]], mark_delete: Position
) -> dict[int, BitMap]:
    lower_ledger, lower, upper_ledger, upper = ranges.T
    if (lower_ledger != upper_ledger).any():
        at = int(np.flatnonzero(lower_ledger != upper_ledger)[0])
        raise InternalsError(
            f"individuallyDeletedMessages: range {at} goes from ledger {lower_ledger[at]} to "
            f"{upper_ledger[at]}"
        )
    if (
        (lower < -1).any()
        or (upper <= lower).any()
        or (upper > ENTRY_ID_MAX).any()
        or (lower_ledger < 0).any()
    ):
        raise InternalsError(
            "individuallyDeletedMessages: a range ends before it begins, or is out of range"
        )
    found: dict[int, BitMap] = {}
    for ledger in np.unique(lower_ledger).tolist():
        mine = lower_ledger == ledger
        entries = _union(lower[mine] + 1, upper[mine])
        if ledger < mark_delete.ledger:
            continue
        if ledger == mark_delete.ledger and mark_delete.entry >= 0:
            entries.remove_range(0, mark_delete.entry + 1)
        if entries:
            found[ledger] = entries
    return found


def _union(
    first: np.ndarray[Any, np.dtype[np.int64]], last: np.ndarray[Any, np.dtype[np.int64]]
) -> BitMap:
    """Inclusive ranges as one set."""
    lengths = last - first + 1
    if int(lengths.sum()) > 64 * len(lengths):  # long ranges: each as a run
        entries = BitMap()
        for low, high in zip(first.tolist(), (last + 1).tolist(), strict=True):
            entries.add_range(low, high)
        return entries
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return bitmaps.from_unsorted((starts + np.arange(starts.size)).astype(np.uint32))
