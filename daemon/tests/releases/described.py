"""A state of today's code in the words of the recordings, and the comparison with what was
confirmed.
"""

from __future__ import annotations

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutState
from daemon.tests.releases.recorded import Json, Recorded


def described(state: AckState, generation: int) -> Json:
    """As a recording's `expected`."""
    acked = {
        ledger: _above(state, ledger)
        for ledger in sorted(state.ledgers)
        if not state.layout.is_trimmed(ledger)
    }
    mark_delete, cursor = state.mark_delete_properties, state.cursor_properties
    return {
        "generation": generation,
        "markDelete": list(state.mark_delete),
        "acked": {str(ledger): runs(entries) for ledger, entries in acked.items() if entries},
        "partials": [
            [*key, partial.batch_size, runs(partial.missing)]
            for key, partial in state.iter_partials()
        ],
        "markDeleteProperties": dict(sorted(mark_delete.values.items()))
        if mark_delete is not None
        else {},
        "cursorProperties": dict(sorted(cursor.values.items())) if cursor is not None else {},
        "layout": [
            [item.ledger, LayoutState(item.state).name, item.entries] for item in state.layout
        ],
    }


def assert_as_confirmed(found: Json, recorded: Recorded) -> None:
    """Exactly what was confirmed; or, where more had been sent, nothing less than that and nothing
    that was never sent.
    """
    if recorded.sent is None:
        assert found == recorded.expected
        return
    confirmed, sent = recorded.expected, recorded.sent
    assert found["generation"] == confirmed["generation"]
    assert (
        Position(*confirmed["markDelete"])
        <= Position(*found["markDelete"])
        <= Position(*sent["markDelete"])
    )
    assert entries_of(confirmed) <= entries_of(found) <= entries_of(sent)
    assert indexes_of(sent, found) <= indexes_of(found, found) <= indexes_of(confirmed, found)


def entries_of(told: Json) -> set[tuple[int, int]]:
    """Every entry above mark-delete that is wholly acked."""
    return {(int(ledger), entry) for ledger, own in told["acked"].items() for entry in set_of(own)}


def indexes_of(told: Json, found: Json) -> set[tuple[int, int, int]]:
    """Every batch index that is not acked, of the batches that were found."""
    wanted = {(ledger, entry) for ledger, entry, *_ in found["partials"]}
    return {
        (ledger, entry, index)
        for ledger, entry, _, own in told["partials"]
        if (ledger, entry) in wanted
        for index in set_of(own)
    }


def runs(entries: BitMap) -> list[int | list[int]]:
    """Each run as [first, last], one of a single entry as that entry."""
    found: list[list[int]] = []
    for entry in entries:
        if found and found[-1][1] == entry - 1:
            found[-1][1] = entry
        else:
            found.append([entry, entry])
    return [first if first == last else [first, last] for first, last in found]


def set_of(told: list[int | list[int]]) -> BitMap:
    """The other way round."""
    found = BitMap()
    for run in told:
        first, last = (run, run) if isinstance(run, int) else run
        found.add_range(first, last + 1)
    return found


def _above(state: AckState, ledger: int) -> BitMap:
    entries = state.acked_of(ledger)
    if ledger == state.mark_delete.ledger:
        entries.remove_range(0, state.mark_delete.entry + 1)
    return entries
