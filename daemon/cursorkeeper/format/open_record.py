"""The body of the open record: JSON, so that a person with nothing but a hex dump learns whose
ledger it is.
"""

from __future__ import annotations

import json

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.values import OpenRecord


def encode(record: OpenRecord) -> bytes:
    """UTF-8 JSON without spaces: cursor (canonical name), epoch, generation, writer."""
    body = {
        "cursor": record.cursor,
        "epoch": record.epoch,
        "generation": record.generation,
        "writer": record.writer,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode(body: bytes) -> OpenRecord:
    """The inverse of `encode`; members it does not know are ignored. Raises DamageError."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise DamageError("an open record that is not JSON") from None
    if not isinstance(value, dict):
        raise DamageError("an open record that is not a JSON object")
    return OpenRecord(
        _text(value, "cursor"),
        _number(value, "epoch"),
        _number(value, "generation"),
        _text(value, "writer"),
    )


def _text(value: dict[str, object], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise DamageError(f"an open record without a text {name!r}")
    return text


def _number(value: dict[str, object], name: str) -> int:
    number = value.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise DamageError(f"an open record without a number {name!r}")
    return number
