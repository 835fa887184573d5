"""docs/reference/pulsar-format.md is what the code does: its examples are decoded from the page
itself and written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.core import containers
from cursorkeeper.core.limits import BATCH_SIZE_MAX
from cursorkeeper.format.pulsar import chunks, cursor_info, ledger_info, names, position_info
from cursorkeeper.format.pulsar.layout import layout_items
from cursorkeeper.format.pulsar.messages import POSITION_INFO
from cursorkeeper.format.pulsar.values import Compression, Form, ManagedCursorInfo, PositionInfo
from cursorkeeper.format.pulsar.wire import VARINT_BYTES_MAX, Kind, read_field

PAGE = (Path(__file__).parents[4] / "docs/reference/pulsar-format.md").read_text()
EXAMPLES = re.findall(
    r"```(hex|znode|header|footer|topic)\n(.*?)```\n```json\n(.*?)```", PAGE, re.DOTALL
)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def described(info: PositionInfo | ManagedCursorInfo) -> dict[str, Any]:
    """A state as the page tells it: what is empty is left out."""
    told = {
        "markDelete": str(info.mark_delete),
        "acked": {str(ledger): list(entries) for ledger, entries in info.acked.items()},
        "batches": {
            f"{key.ledger}:{key.entry}": list(missing) for key, missing in info.batches.items()
        },
        "properties": dict(info.properties),
        "crossing": [f"({c.lower}, {c.upper}]" for c in info.crossing],
        "unknown": info.unknown.hex(),
    }
    if isinstance(info, ManagedCursorInfo):
        told |= {
            "cursorsLedger": info.cursors_ledger,
            "cursorProperties": dict(info.cursor_properties),
        }
    elif info.form is not None:
        told["form"] = info.form.value
    return {name: value for name, value in told.items() if value or name == "cursorsLedger"}


def state(data: bytes) -> dict[str, Any]:
    info, notes = position_info.decode_with_notes(data)
    assert notes == ()
    assert position_info.encode(info, info.form or Form.RANGES) == data
    return described(info)


def znode(data: bytes) -> dict[str, Any]:
    info = cursor_info.decode(data)
    assert cursor_info.encode(info) == data
    return described(info)


def header(data: bytes) -> dict[str, Any]:
    wrapped = cursor_info.wrap(bytes(44), Compression.ZLIB, 0)
    assert wrapped.startswith(data)
    assert cursor_info.unwrap(wrapped, limit_bytes=44) == (bytes(44), Compression.ZLIB)
    kind, size = read_field(data, 6, len(data)), read_field(data, 8, len(data))
    assert (kind.kind, size.kind) == (Kind.VARINT, Kind.VARINT)
    return {"compression": Compression(kind.value).name, "uncompressedSize": size.value}


def footer(data: bytes) -> dict[str, Any]:
    found = chunks.parse_footer(data)
    assert found is not None
    assert (
        chunks.entries_of(
            bytes(found.length_bytes), compression=None, max_entry_bytes=1_000_000, multiple=True
        )[-1]
        == data
    )
    return {"numParts": found.parts, "length": found.length_bytes}


def topic(data: bytes) -> dict[str, Any]:
    info = ledger_info.decode(data)
    assert ledger_info.encode(info) == data
    rows = [
        {
            "ledger": x.ledger,
            "entries": x.entries,
            "sizeBytes": x.size_bytes,
            "timestampMs": x.timestamp_ms,
        }
        for x in info.ledgers
    ]
    return {
        "ledgers": [
            {name: value for name, value in row.items() if value is not None} for row in rows
        ],
        "layout": [[item.ledger, item.state.name, item.entries] for item in layout_items(info)],
    }


READ: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "hex": state,
    "znode": znode,
    "header": header,
    "footer": footer,
    "topic": topic,
}


@pytest.mark.parametrize("kind, told, meaning", EXAMPLES)
def test_examples_are_what_they_say(kind: str, told: str, meaning: str) -> None:
    assert READ[kind](bytes.fromhex(told)) == json.loads(meaning)


def test_every_block_is_an_example() -> None:
    assert len(EXAMPLES) == 13
    assert PAGE.count("```") == 4 * len(EXAMPLES)
    assert {kind for kind, _, _ in EXAMPLES} == set(READ)


def test_chunk_sizes() -> None:
    rows = re.findall(
        r"^\| (\d+) B \| (\d+) B \| (.*) \|$", section("Chunks and footer"), re.MULTILINE
    )
    assert len(rows) == 4
    for length, size, told in rows:
        entries = chunks.entries_of(
            bytes(int(length)), compression=None, max_entry_bytes=int(size), multiple=True
        )
        found = chunks.parse_footer(entries[-1])
        parts = [f"{len(entry)} B" for entry in (entries[:-1] if found else entries)]
        assert told == ", ".join(parts + ([f"footer of {found.parts} parts"] if found else []))


def test_field_tables() -> None:
    rows = re.findall(r"^\| (\d) \| (\w+) \|", section("PositionInfo"), re.MULTILINE)
    assert rows == [
        *((str(number), known.name) for number, known in POSITION_INFO.fields.items()),
        (str(position_info.IDLE_SINCE), "idleSince"),
    ]
    for codec in Compression:
        assert re.search(rf"\b{codec.value} {codec.name}\b", section("Compression header"))


def test_names() -> None:
    rows = re.findall(r"^\| (`.*`) \| `(.*)` \|$", section("Names"), re.MULTILINE)
    (plain, encoded), (where, path) = rows
    assert names.encode_name(plain.strip("`")) == encoded
    found = re.fullmatch(r"`(.*)`, subscription `(.*)`", where)
    assert found is not None
    assert names.cursor_path(found[1], found[2]) == path


def test_limits() -> None:
    told = section("Limits")
    assert f"at most {BATCH_SIZE_MAX:,} messages" in told
    assert (
        f"span at most {containers.SPANNED_CONTAINERS_MAX * containers.CONTAINER_VALUES:,} entries"
        in told
    )
    assert VARINT_BYTES_MAX == 10 and "ten bytes" in told
    assert f"{ledger_info.VALUE_BYTES_MAX >> 20} MiB" in told
    assert f"at least {chunks.MAX_ENTRY_BYTES_MIN} bytes" in told
    assert f'"{chunks.COMPRESSION_KEY}"' in PAGE


def test_links_inside_the_page() -> None:
    titles = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
        for title in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    }
    targets = set(re.findall(r"\]\(#([\w-]+)\)", PAGE))
    assert targets == titles
