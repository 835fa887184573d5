"""Pulsar's state as ours and back: PositionInfo <-> `core.state.AckState`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import LayoutItem, Stamp
from cursorkeeper.format.pulsar.values import Form, PositionInfo


def to_ack_state(
    info: PositionInfo, layout: Iterable[LayoutItem] = (), *, stamp: Stamp, cursor_properties: Mapping[str, str] | None = None
) -> AckState:
    """The same state as the daemon keeps it, settled. Batch sizes are not known (0). Raises ValueError: unresolved crossing ranges."""
    raise NotImplementedError


def from_ack_state(state: AckState, *, form: Form = Form.LONG_ARRAY) -> PositionInfo:
    """The same state as Pulsar writes it. The state is not changed; nothing is truncated."""
    raise NotImplementedError
