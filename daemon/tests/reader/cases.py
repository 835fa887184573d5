"""A cursor as it is stored, and the two readings of it: the daemon's own, and that of
`java/reader`.

Owns the form of the cases (`testdata/format/README.md` says it for people) and what of a reading is
compared.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pyroaring import BitMap

from cursorkeeper.bookkeeper.port import LedgerSpec
from cursorkeeper.core import containers
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError, OverBudgetError, ReplacedError, TooNewError
from cursorkeeper.core.footer import Footer, FooterState
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import CursorProperties, MarkDeleteProperties
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.runtime.chain import ChainReader
from daemon.tests.fakes.bookkeeper.fake import Damage, FakeBookKeeper
from daemon.tests.support.virtual_loop import run

JAR = Path(__file__).parents[3] / "java" / "reader" / "target" / "cursorkeeper-reader.jar"
SPEC = LedgerSpec(3, 2, 2)
Json = dict[str, Any]


class KeptLedger(Protocol):
    """What a recording and the fake BookKeeper have in common."""

    @property
    def ledger(self) -> int: ...
    @property
    def entries(self) -> Sequence[bytes]: ...
    @property
    def custom_metadata(self) -> Mapping[str, bytes]: ...


@dataclass(frozen=True)
class Stored:
    """One cursor ledger. An entry is None where BookKeeper has no copy that it trusts."""

    entries: tuple[bytes | None, ...]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """`faults`: what was done to it after it was written, for people. `znode_version`: of the
    footer's znode, if that is known.
    """

    name: CursorName
    footer: bytes
    ledgers: dict[int, Stored]
    faults: tuple[str, ...] = ()
    znode_version: int | None = None

    def as_json(self) -> Json:
        """What `java/reader` takes."""
        return {
            "topic": self.name.topic,
            "subscription": self.name.subscription,
            "footer": self.footer.hex(),
            "znodeVersion": self.znode_version,
            "ledgers": {
                str(ledger): {
                    "metadata": own.metadata,
                    "entries": [None if e is None else e.hex() for e in own.entries],
                }
                for ledger, own in self.ledgers.items()
            },
        }

    @classmethod
    def of(cls, name: CursorName, footer: bytes, ledgers: Iterable[KeptLedger]) -> Case:
        """From ledgers as BookKeeper has them: recorded ones, or those of the fake."""
        told = {}
        for own in ledgers:
            told[own.ledger] = Stored(
                tuple(own.entries),
                {key: value.decode() for key, value in own.custom_metadata.items()},
            )
        return cls(name, footer, told)

    @classmethod
    def from_json(cls, told: Json) -> Case:
        """The inverse."""
        ledgers = {
            int(ledger): Stored(
                tuple(None if e is None else bytes.fromhex(e) for e in own["entries"]),
                own["metadata"],
            )
            for ledger, own in told["ledgers"].items()
        }
        name = CursorName(told["topic"], told["subscription"])
        return cls(name, bytes.fromhex(told["footer"]), ledgers, znode_version=told["znodeVersion"])


# ---- the daemon's own reading


def daemon_reading(case: Case) -> Json:
    """The settled state, or `refused` and why."""
    try:
        footer = footer_bytes.decode(case.footer, case.name, case.znode_version)
    except DamageError as error:
        return _refused(error)
    if footer.state is FooterState.DELETED:
        return {"state": "deleted"}
    # as the recovery of an owner would find it; one that is gone is met when it is read
    for ledger in footer.named_ledgers():
        own = case.ledgers.get(ledger)
        footer = footer.with_last_entry(ledger, len(own.entries) - 1 if own is not None else 0)
    event = run(_read(case, footer))
    if isinstance(event, ev.ChainMissing):
        return {"refused": "missing", "why": f"ledger {event.ledger}"}
    if isinstance(event, ev.ChainDamaged):
        kind = "too new" if event.too_new else "too large" if event.too_large else "damaged"
        return {"refused": kind, "why": event.reason}
    assert isinstance(event, ev.ChainRead)
    told = {
        "state": str(footer.state),
        "epoch": footer.epoch,
        "generation": footer.generation,
        "fellBack": event.fell_back,
    }
    return {**told, **described(event.state)}


async def _read(case: Case, footer: Footer) -> ev.Event:
    bookkeeper = FakeBookKeeper(random.Random(0))
    for ledger, own in case.ledgers.items():
        metadata = {
            "application": b"cursorkeeper",
            **{key: value.encode() for key, value in own.metadata.items()},
        }
        bookkeeper.restore(
            ledger, SPEC, metadata, [entry or b"" for entry in own.entries], closed=True
        )
        for at, entry in enumerate(own.entries):
            if entry is None:
                bookkeeper.damage(ledger, at, Damage.DIGEST)
    gateway = bookkeeper.gateway()
    await gateway.start()
    return await ChainReader(case.name, gateway).read(1, footer)


def _refused(error: DamageError) -> Json:
    kinds = {TooNewError: "too new", ReplacedError: "replaced", OverBudgetError: "too large"}
    return {"refused": kinds.get(type(error), "damaged"), "why": str(error)}


def described(state: AckState) -> Json:
    """Everything that a reader of the page knows of a cursor."""
    acked = {}
    for ledger in sorted(state.ledgers):
        entries = state.acked_of(ledger)
        if ledger == state.mark_delete.ledger:
            entries.remove_range(0, state.mark_delete.entry + 1)
        if entries:
            acked[str(ledger)] = runs(entries)
    return {
        "markDelete": list(state.mark_delete),
        "acked": acked,
        "batches": [
            [*key, partial.batch_size, runs(partial.missing)]
            for key, partial in state.iter_partials()
        ],
        "layout": [[item.ledger, item.state.name.lower(), item.entries] for item in state.layout],
        "markDeleteProperties": _properties(state.mark_delete_properties),
        "cursorProperties": _properties(state.cursor_properties),
        "highWaters": {
            str(ledger): acks.high_water
            for ledger, acks in sorted(state.ledgers.items())
            if acks.high_water
        },
    }


def _properties(told: MarkDeleteProperties | CursorProperties | None) -> Json | None:
    return None if told is None else {"stamp": list(told.stamp), "values": dict(told.values)}


def runs(entries: BitMap) -> list[list[int]]:
    """[first, last] of each."""
    firsts, lasts = containers.runs_of(entries)
    return [[first, last] for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]


# ---- the other reader


def java_reading(cases: Iterable[Case]) -> list[Json]:
    """All of them by one process."""
    assert JAR.exists(), f"{JAR} is not there: make jar"
    lines = "".join(json.dumps(case.as_json()) + "\n" for case in cases)
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-jar", str(JAR)]
    done = subprocess.run(
        command, input=lines.encode(), capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def difference(case: Case, ours: Json, theirs: Json) -> str:
    """Where the two readings are not one, for people. Of a cursor with several faults either may be
    reported.
    """
    if "refused" in ours and "refused" in theirs:
        is_same = len(case.faults) > 1 or ours["refused"] == theirs["refused"]
        return "" if is_same else f"the daemon says {ours}, the reader {theirs}"
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    return "; ".join(
        f"{key}: the daemon {ours.get(key)}, the reader {theirs.get(key)}" for key in keys
    )
