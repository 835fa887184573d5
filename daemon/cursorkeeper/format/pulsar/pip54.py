"""PIP-54 as proposed: partly acked batches as ranges of *acked* indexes instead of words of un-acked ones."""

from __future__ import annotations

from collections.abc import Mapping

from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar.values import Form, PositionInfo
from pyroaring import BitMap


def encode(info: PositionInfo, batch_sizes: Mapping[PartialKey, int]) -> bytes:
    """PositionInfo with field 5 in PIP-54's shape. Raises ValueError: a batch whose size is not given."""
    raise NotImplementedError


def decode(data: bytes, batch_sizes: Mapping[PartialKey, int]) -> PositionInfo:
    """The inverse. Raises PulsarFormatError, TooNewError; ValueError: a batch whose size is not given."""
    raise NotImplementedError


def decode_acked(data: bytes) -> tuple[PositionInfo, dict[PartialKey, BitMap]]:
    """The state without its batches, and per batch entry the *acked* indexes: no sizes are needed."""
    raise NotImplementedError


FORM = Form.RANGES
