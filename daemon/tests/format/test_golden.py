"""Golden records: bytes that were written once and must be read, and written, for ever.

`golden.json` is not generated anew when the code changes: a difference here is a new version of the
format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.names import CursorName
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec
from daemon.tests.format.described import record_of

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
HASH = CursorName("persistent://public/default/orders", "billing").record_hash


@pytest.mark.parametrize("golden", GOLDEN["records"], ids=lambda golden: golden["name"])
def test_a_golden_record_is_read_and_written(golden: dict[str, Any]) -> None:
    entry = bytes.fromhex(golden["hex"])
    value = record_of(golden)
    assert record.decode(entry, value.cursor_hash) == value
    assert record.peek(entry).codec.name.lower() == golden["codec"]
    if golden["codec"] == "none":
        plain = record.EncodeSettings(codec=Codec.NONE, record_version=golden.get("version", 1))
        assert record.encode(value, plain).hex() == golden["hex"]


@pytest.mark.parametrize("golden", GOLDEN["damaged"], ids=lambda golden: golden["name"])
def test_a_damaged_record_is_refused_by_name(golden: dict[str, Any]) -> None:
    with pytest.raises(DamageError, match=golden["says"]) as caught:
        record.decode(bytes.fromhex(golden["hex"]), HASH)
    assert isinstance(caught.value, TooNewError) == ("newer version" in golden["name"])
