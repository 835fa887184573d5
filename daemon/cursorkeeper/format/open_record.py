"""The body of the open record: JSON, so that a person with nothing but a hex dump learns whose
ledger it is.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import msgspec

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.values import OpenRecord


def encode(record: OpenRecord) -> bytes:
    """UTF-8 JSON without spaces: cursor (canonical name), epoch, generation, writer."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def decode(body: bytes) -> OpenRecord:
    """The inverse of `encode`; members it does not know are ignored. Raises DamageError."""
    try:
        found = msgspec.json.decode(body, type=OpenRecord)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"an open record that is none: {error}") from None
    if found.epoch < 0 or found.generation < 0:
        raise DamageError("an open record with a negative number")
    return found
