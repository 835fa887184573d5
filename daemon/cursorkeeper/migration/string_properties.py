"""Serves who takes a cursor back to Pulsar, or compares: the string properties that Pulsar's
subscription has. Pure.

What a cursor of ours has as its own properties are Pulsar's string properties if an import made it.
If the broker plugin made it, they are the plugin's notes, and Pulsar's stay in Pulsar's znode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cursorkeeper.core.state import AckState

CREATED: Final = "pulsar.created"
IMPORTING: Final = "pulsar.importing"
ZNODE: Final = "pulsar.znode"
CLOSED: Final = "pulsar.closed"
NOTES: Final = frozenset({CREATED, IMPORTING, ZNODE, CLOSED})
"""What the plugin writes of a cursor; a test compares the names with its source."""


def string_properties(ours: AckState, theirs: Mapping[str, str]) -> Mapping[str, str]:
    """Of our state; `theirs`: those that Pulsar has now, which stay where ours was never told
    any.
    """
    if ours.cursor_properties is None or _is_the_plugins(ours):
        return theirs
    return dict(ours.cursor_properties.values)


def is_only_a_copy(ours: AckState) -> bool:
    """Whether Pulsar's state is the truth: a broker took it over in part and died, or ours is a
    copy that follows it.
    """
    return _is_the_plugins(ours) and IMPORTING in _values(ours)


def noted_znode(ours: AckState) -> str | None:
    """Which znode the plugin said that ours belongs to, as it writes it; empty: none. None: ours is
    not the plugin's.
    """
    return _values(ours).get(ZNODE, "") if _is_the_plugins(ours) else None


def _is_the_plugins(ours: AckState) -> bool:
    values = _values(ours)
    return CREATED in values and values.keys() <= NOTES


def _values(ours: AckState) -> Mapping[str, str]:
    return dict(ours.cursor_properties.values) if ours.cursor_properties is not None else {}
