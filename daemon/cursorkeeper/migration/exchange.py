"""The JSON lines of `export` and `import`: a header, layout, acked ranges per data ledger, partial
batches, an end line.

The end line counts what came before it, so that a cut-off file is never taken for a small state.
Everything in a file is checked before any of it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, LayoutState
from cursorkeeper.inspection import state_view
from cursorkeeper.problems import Kind, ProblemError

FORMAT = 1
RANGES_PER_LINE = 10_000
LAYOUT_PER_LINE = 10_000

U32 = NDArray[np.uint32]
StateName = Literal["OPEN", "CLOSED", "TRIMMED"]


class LayoutJson(msgspec.Struct, array_like=True, frozen=True):
    """[ledger, state, entries]"""

    ledger: int
    state: StateName
    entries: int


class _Line(
    msgspec.Struct, tag_field="type", forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """Every line says its type."""


class Header(_Line, tag="cursor"):
    """The first line. `at_least`: the cursor was open, its newest acks may be missing."""

    format: int
    topic: str
    subscription: str
    mark_delete: tuple[int, int]
    epoch: int = 0
    generation: int = 0
    at_least: bool = False
    mark_delete_properties: dict[str, int] | None = None
    cursor_properties: dict[str, str] | None = None
    layout: list[LayoutJson] = []


class LayoutLine(_Line, tag="layout"):
    items: list[LayoutJson]


class AcksLine(_Line, tag="acks"):
    """Acked entries of one data ledger above mark-delete: [first, last] pairs, inclusive."""

    ledger: int
    ranges: list[tuple[int, int]]


class PartialLine(_Line, tag="partial"):
    """A partly acked batch: the indexes not acked yet. `batch_size` 0: not known."""

    ledger: int
    entry: int
    missing: list[int]
    batch_size: int = 0


class EndLine(_Line, tag="end"):
    """The last line: its totals show that none is missing."""

    acked: int
    partials: int
    lines: int


AnyLine = Header | LayoutLine | AcksLine | PartialLine | EndLine
_DECODER = msgspec.json.Decoder(AnyLine)
_ENCODER = msgspec.json.Encoder()


# ---- out


def lines_of(footer: Footer, state: AckState, *, at_least: bool = False) -> Iterator[bytes]:
    count = EndLine(0, 0, 0)
    for line in _content(footer, state, at_least):
        _add(count, line)
        yield _ENCODER.encode(line) + b"\n"
    yield _ENCODER.encode(count) + b"\n"


def _add(count: EndLine, line: AnyLine) -> None:
    count.lines += 1
    count.partials += isinstance(line, PartialLine)
    if isinstance(line, AcksLine):
        count.acked += sum(last - first + 1 for first, last in line.ranges)


def _content(footer: Footer, state: AckState, at_least: bool) -> Iterator[AnyLine]:
    layout = [LayoutJson(i.ledger, cast(StateName, i.state.name), i.entries) for i in state.layout]
    properties, numbers = state.cursor_properties, state.mark_delete_properties
    yield Header(
        format=FORMAT,
        topic=footer.topic,
        subscription=footer.subscription,
        mark_delete=(state.mark_delete.ledger, state.mark_delete.entry),
        epoch=footer.epoch,
        generation=footer.generation,
        at_least=at_least,
        mark_delete_properties=None if numbers is None else dict(numbers.values),
        cursor_properties=None if properties is None else dict(properties.values),
        layout=layout[:LAYOUT_PER_LINE],
    )
    for begin in range(LAYOUT_PER_LINE, len(layout), LAYOUT_PER_LINE):
        yield LayoutLine(items=layout[begin : begin + LAYOUT_PER_LINE])
    for ledger in state.ledgers:
        pairs: list[Any] = []
        for rows in state_view.acked_runs(state, ledger):
            pairs += rows.tolist()
            begin = 0
            while len(pairs) - begin >= RANGES_PER_LINE:
                yield AcksLine(ledger=ledger, ranges=pairs[begin : begin + RANGES_PER_LINE])
                begin += RANGES_PER_LINE
            del pairs[:begin]
        if pairs:
            yield AcksLine(ledger=ledger, ranges=pairs)
    for key, partial in state.iter_partials():
        yield PartialLine(
            ledger=key.ledger,
            entry=key.entry,
            missing=list(partial.missing),
            batch_size=partial.batch_size,
        )


# ---- in


def parse(lines: Iterable[bytes], file: str) -> Iterator[AnyLine]:
    """Every line, checked, the end line last. Raises ProblemError naming file and line."""
    count, is_ended = EndLine(0, 0, 0), False
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            line = _DECODER.decode(raw)
            if is_ended:
                raise ValueError("there is something after the end line")
            if isinstance(line, Header) == bool(count.lines):
                raise ValueError(
                    "the header is not the first line"
                    if count.lines
                    else "the first line is no header"
                )
            _check(line)
        except (msgspec.DecodeError, ValueError) as e:
            raise ProblemError(
                f"{file}, line {number}: {e}",
                "give a file that `cursorkeeper export` wrote",
                Kind.USAGE,
            ) from None
        if isinstance(line, EndLine):
            is_ended = True
            if line != count:
                raise ProblemError(
                    f"{file}: holds {count.lines} lines with {count.acked} acked and "
                    f"{count.partials} partial batches, its end line says {line.lines}, "
                    f"{line.acked} and {line.partials}",
                    "a line is missing or was changed: export again",
                    Kind.USAGE,
                )
        _add(count, line)
        yield line
    if not is_ended:
        raise ProblemError(f"{file}: has no end line: it was cut off", "export again", Kind.USAGE)


def _check(line: AnyLine) -> None:
    """Ranges of numbers. Raises ValueError."""
    match line:
        case Header():
            if line.format != FORMAT:
                raise ValueError(f"format {line.format}, this program reads {FORMAT}")
            _check_ledger(line.mark_delete[0])
            if not -1 <= line.mark_delete[1] <= ENTRY_ID_MAX:
                raise ValueError(f"mark-delete entry {line.mark_delete[1]} is out of range")
        case AcksLine():
            _check_ledger(line.ledger)
            before = -1
            for first, last in line.ranges:
                if not before < first <= last <= ENTRY_ID_MAX:
                    raise ValueError(
                        f"range [{first}, {last}] is empty, out of range, or not above the one "
                        f"before it"
                    )
                before = last
        case PartialLine():
            _check_ledger(line.ledger)
            if (
                not 0 <= line.entry <= ENTRY_ID_MAX
                or not line.missing
                or min(line.missing) < 0
                or line.batch_size < 0
            ):
                raise ValueError(
                    f"the batch at {line.ledger}:{line.entry} is out of range, or misses nothing"
                )
            if line.batch_size and max(line.missing) >= line.batch_size:
                raise ValueError(
                    f"the batch at {line.ledger}:{line.entry} has no index {max(line.missing)}"
                )


def _check_ledger(ledger: int) -> None:
    if not 0 <= ledger <= LEDGER_ID_MAX:
        raise ValueError(f"ledger id {ledger} is out of range")


def layout_items(items: Iterable[LayoutJson]) -> Iterator[LayoutItem]:
    for item in items:
        yield LayoutItem(item.ledger, LayoutState[item.state], item.entries)


def range_column(line: AcksLine) -> U32:
    """first, last, first, last, ..."""
    return np.array(line.ranges, dtype=np.uint32).reshape(-1)
