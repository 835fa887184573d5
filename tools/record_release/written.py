"""The files of a recording: per cursor a manifest, and the entries of its ledgers; the README
beside them has the form.

Owns the form and the reading of everything that is stored of a cursor. Does not own the stories.
Invariant: what is read here is never recovered, fenced or changed.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerState
from cursorkeeper_client import CursorState
from tools.record_release.stage import Cursor, Json, Stage
from tools.record_release.truth import ranges

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


async def dump(stage: Stage, cursor: Cursor, *, settled: bool = True) -> tuple[Json, bytes]:
    """(what the manifest says of the stored bytes, all entries one after the other).

    `settled`: see `Stage.settle`.
    """
    name = cursor.name
    if settled:
        await stage.settle(cursor)
    await stage.zookeeper.sync(name.path())
    node = await stage.zookeeper.get(name.path())
    ledgers, body = [], b""
    for info in await stage.ledgers(cursor):
        entries = await stage.entries(info.ledger)
        body += b"".join(entries)
        ledgers.append(_described(info, entries))
    told = {"path": name.path(), "version": node.version, "data": node.data.decode()}
    cursor_names = {"topic": name.topic, "subscription": name.subscription}
    return {
        "cursor": cursor_names,
        "znode": told,
        "ledgers": ledgers,
        "sha256": hashlib.sha256(body).hexdigest(),
    }, body


def _described(info: LedgerInfo, entries: list[bytes]) -> Json:
    return {
        "ledger": info.ledger,
        "state": info.state.name,
        "lastEntry": info.last_entry if info.state is LedgerState.CLOSED else None,
        "ensemble": info.ensemble,
        "writeQuorum": info.write_quorum,
        "ackQuorum": info.ack_quorum,
        "digest": info.digest.name,
        "customMetadata": {
            key: value.decode() for key, value in sorted(info.custom_metadata.items())
        },
        "entries": [len(entry) for entry in entries],
    }


def state_json(state: CursorState) -> Json:
    """What a daemon recovered, as `Truth.described` says it."""
    return {
        "generation": state.generation,
        "markDelete": list(state.mark_delete),
        "acked": {str(ledger): ranges(entries) for ledger, entries in state.acked.items()},
        "partials": [
            [*key, partial.batch_size, ranges(partial.missing)]
            for key, partial in state.partials.items()
        ],
        "markDeleteProperties": dict(sorted(state.mark_delete_properties.items())),
        "cursorProperties": dict(sorted(state.cursor_properties.items())),
        "layout": [[item.ledger, item.state.name, item.entries] for item in state.layout],
    }


class Folder:
    """Where a recording goes: empty before, complete after `finish`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: list[str] = []
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise SystemExit(
                f"{path} is not empty: what a release wrote is recorded once. Give another "
                f"folder, or remove it first"
            )

    def put(self, story: str, manifest: Json, body: bytes) -> None:
        (self.path / f"{story}.json").write_text(pretty(manifest))
        if body:
            (self.path / f"{story}.entries.xz").write_bytes(lzma.compress(body, filters=_FILTERS))
        self._names.append(story)

    def finish(self, shared: Json) -> None:
        """Writes what all recorded cursors share."""
        (self.path / "release.json").write_text(pretty({**shared, "cursors": sorted(self._names)}))


def pretty(value: dict[str, Any], depth: int = 2, indent: str = "") -> str:
    """JSON with a line for each member of the outer objects and each item of their lists of
    objects.
    """
    inner = indent + " "
    lines = [
        f"{inner}{json.dumps(key)}: {_item(member, depth - 1, inner)}"
        for key, member in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}" + ("" if indent else "\n")


def _item(value: Any, depth: int, indent: str) -> str:
    if depth > 0 and isinstance(value, dict) and value:
        return pretty(value, depth, indent)
    if depth > 0 and isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + " "
        return "[\n" + ",\n".join(f"{inner}{json.dumps(item)}" for item in value) + f"\n{indent}]"
    return json.dumps(value)
