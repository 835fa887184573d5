"""Drives Pulsar's own managed-ledger classes: a child process that answers JSON lines
(`java/interop`), one per Pulsar version.

Owns the process, its command line and limits, and what the answers mean as values. Does not own the
stack it connects to. Invariants: every call has a limit, at which the child is killed and the call
raises; a child is ended by its own handle and ends by itself when this process does (its stdin
closes); errors of Pulsar are `PulsarError`, of the process `HarnessError` with its log's end.

Pulsar answers before it has ended what it began: it may still be switching a cursor to a new
ledger, and a close then fails with BadVersion, or the switch overtakes it and the znode is not the
closed one. So the process answers a step when every cursor concerned is at rest, and closes only
such cursors; `flush`, `switch_ledger` and `append` alone are not waited for.

Names are Pulsar's: a managed ledger is called `tenant/ns/persistent/topic` (the znode without
`/managed-ledgers/`), cursors by their encoded subscription name. Calls block.

Settings of `open_ledger` and what they are in `ManagedLedgerConfig` (defaults are the library's
unless said): `longArray` (persistIndividualAckAsLongArray; true here), `openCacheSet`,
`batchIndex`, `maxRanges` 10,000, `maxBatches` 10,000, `maxRangesInMetadataStore` 1,000,
`entriesPerLedger` 50,000, `cursorEntriesPerLedger` 50,000, `markDeletesPerSecond` 0 (no limit: each
ack is persisted before its callback), `forceRecovery`, `ensemble` 1 (all quorums). Of the factory:
`cursorCompression` NONE, `cursorCompressionThreshold` 16,384, `ledgerCompression`,
`ledgerCompressionThreshold`. Retention is without end: nothing is trimmed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from daemon.tests.interop import runs

VERSIONS = {"4.2.4": "pulsar-4.2", "5.0.0-M1": "pulsar-5.0"}
"""Pulsar version -> its module in `java/interop`."""

_MODULES = Path(__file__).resolve().parents[3] / "java" / "interop"
_TAIL_BYTES = 6_000
_OPENS = ("java.nio", "jdk.internal.misc", "java.io", "java.util.zip", "java.lang")


class HarnessError(Exception):
    """The process did not start, died, or did not answer in time."""


class PulsarError(Exception):
    """Pulsar's own classes refused. `kind` is the exception's simple name."""

    def __init__(self, op: str, kind: str, message: str) -> None:
        super().__init__(f"{op}: {kind}: {message}")
        self.kind, self.message = kind, message


class TornMessage(PulsarError):
    """Two flushes of one cursor met in the message that they share, and its serializer refused it:
    a race of Pulsar's, since 5.0. What the cursor holds then, nobody knows.
    """


def error_of(op: str, answer: Mapping[str, Any]) -> PulsarError:
    """What Pulsar raised, by what the process says of its type."""
    return (TornMessage if answer.get("torn") else PulsarError)(op, answer["kind"], answer["error"])


@dataclass(frozen=True)
class Layout:
    """A topic's data ledgers `(ledger, entries)`, ascending, the last one open; and the last
    confirmed entry.
    """

    ledgers: tuple[tuple[int, int], ...]
    last_confirmed: Position


@dataclass(frozen=True)
class Report:
    """What a real cursor says. `acked`: entries above mark-delete that `isMessageDeleted` calls
    deleted, asked one by one over the layout. `ranges`: its range set as it is. `batches`: un-acked
    batch indexes of partly acked entries. Never an empty bitmap.
    """

    mark_delete: Position
    acked: Mapping[int, BitMap]
    ranges: Mapping[int, BitMap]
    batches: Mapping[PartialKey, BitMap]
    properties: Mapping[str, int]
    cursor_properties: Mapping[str, str]
    layout: Layout


@dataclass(frozen=True)
class Internals:
    """What `ManagedCursorImpl` tells about itself; see `Report.internals` in the Java source for
    where each comes from.
    """

    state: str
    cursor_ledger: int
    cursor_ledger_last_entry: int
    mark_delete: Position
    persistent_mark_delete: Position | None
    ranges: int
    fully_persistable: bool
    backlog: int
    ledger_writes: int
    ledger_write_bytes: int
    ledger_write_errors: int
    znode_writes: int
    znode_write_errors: int
    individually_deleted: str


class PulsarHarness:
    """One process of one version, connected to one cluster. A context manager: starts, and is
    killed at the end.
    """

    def __init__(
        self,
        version: str,
        zookeeper: str,
        folder: Path,
        *,
        heap_mib: int = 384,
        call_max_s: float = 180.0,
        **client: int,
    ) -> None:
        """`client`: frameBytes, addTimeoutSeconds, readTimeoutSeconds,
        cursorPositionFlushSeconds.
        """
        self.version, self.zookeeper = version, zookeeper
        self._folder, self._heap_mib, self._call_max_s, self._client = (
            folder,
            heap_mib,
            call_max_s,
            client,
        )
        self._log, self._temp = folder / f"harness-{version}.log", folder / f"harness-{version}.tmp"
        self._process: subprocess.Popen[bytes] | None = None

    # --- the process ------------------------------------------------------------------------------

    def start(self) -> PulsarHarness:
        """Start and connect. Raises `HarnessError` if the classes were not built."""
        if self._process is not None:
            raise HarnessError("the harness is running already")
        shutil.rmtree(self._temp, ignore_errors=True)
        self._temp.mkdir(parents=True)
        command = self._command_line()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )
        try:
            answer = self._call("connect", zookeeper=self.zookeeper, client=self._client)
            if answer["version"] != self.version:
                raise HarnessError(
                    f"the class path holds managed-ledger {answer['version']}, not "
                    f"{self.version}: make interop-classes"
                )
        except BaseException:
            self.kill()
            raise
        return self

    def kill(self) -> None:
        """SIGKILL, and wait. Nothing to do if it is not running. Nothing is closed: the cluster
        sees a crashed broker.
        """
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(10)
        # native libraries, unpacked; a killed JVM leaves them
        shutil.rmtree(self._temp, ignore_errors=True)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()

    def halt(self) -> None:
        """`Runtime.halt`: a crash without a signal. Returns when the process is gone."""
        process = self._running()
        with self._limit(self._call_max_s):
            self._write({"op": "halt"})
            process.wait(self._call_max_s)
        self.kill()

    def restart(self) -> PulsarHarness:
        """Crash if it runs, then start again and connect."""
        self.kill()
        return self.start()

    def __enter__(self) -> PulsarHarness:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    # --- topics -----------------------------------------------------------------------------------

    def fabricate(
        self, ledger: str, entries: Sequence[int], *, max_s: float | None = None
    ) -> tuple[tuple[int, int], ...]:
        """A topic with closed data ledgers of these sizes and no data: enough for cursors, and
        cheap. Answers `(ledger, entries)`. An empty one (0) vanishes when Pulsar opens the topic.
        `open_ledger` adds an open ledger behind them.
        """
        answer = self._call("fabricate", max_s, ledger=ledger, entries=list(entries))
        return tuple((ledger_id, count) for ledger_id, count in answer["ledgers"])

    def open_ledger(self, ledger: str, *, max_s: float | None = None, **config: object) -> Layout:
        """Opens the topic and, with it, recovers every cursor that it has."""
        return _layout(self._call("open_ledger", max_s, ledger=ledger, config=config))

    def close_ledger(self, ledger: str, *, max_s: float | None = None) -> None:
        """A graceful unload: cursors are closed in order."""
        self._call("close_ledger", max_s, ledger=ledger)

    def layout(self, ledger: str) -> Layout:
        """As it is now."""
        return _layout(self._call("layout", ledger=ledger))

    def append(self, ledger: str, count: int, *, entry_bytes: int = 8) -> Layout:
        """Real entries, to the open data ledger and the ones that it rolls over to."""
        return _layout(self._call("append", ledger=ledger, count=count, bytes=entry_bytes))

    # --- cursors ----------------------------------------------------------------------------------

    def open_cursor(
        self,
        ledger: str,
        cursor: str,
        *,
        latest: bool = False,
        properties: Mapping[str, int] | None = None,
        cursor_properties: Mapping[str, str] | None = None,
    ) -> Internals:
        """Creates it if it is not there; the topic must be open."""
        return _internals(
            self._call(
                "open_cursor",
                ledger=ledger,
                cursor=cursor,
                start="Latest" if latest else "Earliest",
                properties=dict(properties or {}),
                cursorProperties=dict(cursor_properties or {}),
            )
        )

    def close_cursor(self, ledger: str, cursor: str) -> None:
        """In order: the state goes to the znode, or to the cursor ledger if it has too many
        ranges.
        """
        self._call("close_cursor", ledger=ledger, cursor=cursor)

    def delete(
        self,
        ledger: str,
        cursor: str,
        entries: Mapping[int, BitMap] | None = None,
        *,
        positions: Iterable[tuple[int, int]] = (),
        batches: Mapping[PartialKey, BitMap] | None = None,
        max_s: float | None = None,
    ) -> None:
        """One `asyncDelete`: `positions` in their order, then `batches` (entry -> batch indexes
        that *remain* un-acked), then `entries` (whole ledgers' worth, as runs). Answers when
        Pulsar's callback came.
        """
        self._call(
            "delete",
            max_s,
            ledger=ledger,
            cursor=cursor,
            positions=[list(at) for at in positions],
            batches=[[*at, words(missing)] for at, missing in (batches or {}).items()],
            runs=[[of, runs.encode(bitmap)] for of, bitmap in (entries or {}).items()],
        )

    def mark_delete(
        self,
        ledger: str,
        cursor: str,
        position: tuple[int, int],
        properties: Mapping[str, int] | None = None,
    ) -> None:
        """`asyncMarkDelete` with properties; answers when Pulsar's callback came."""
        self._call(
            "mark_delete",
            ledger=ledger,
            cursor=cursor,
            position=list(position),
            properties=dict(properties or {}),
        )

    def set_cursor_properties(
        self, ledger: str, cursor: str, properties: Mapping[str, str]
    ) -> None:
        """Replaces all of them, in the znode."""
        self._call(
            "set_cursor_properties", ledger=ledger, cursor=cursor, cursorProperties=dict(properties)
        )

    def throttle(self, ledger: str, cursor: str, mark_deletes_per_second: float) -> None:
        """From now on; 0 = no limit."""
        self._call(
            "throttle", ledger=ledger, cursor=cursor, markDeletesPerSecond=mark_deletes_per_second
        )

    def flush(self, ledger: str, cursor: str) -> Internals:
        """What Pulsar's timer does every minute: persist if dirty, if the throttle lets it. Does
        not wait for the write.
        """
        return _internals(self._call("flush", ledger=ledger, cursor=cursor))

    def switch_ledger(self, ledger: str, cursor: str) -> None:
        """Begins to switch to a new cursor ledger while the state says "Open", and does not wait:
        see `CursorLedgers` in the Java source for when Pulsar does so by itself.
        """
        self._call("switch_ledger", ledger=ledger, cursor=cursor)

    def report(self, ledger: str, cursor: str, *, max_s: float | None = None) -> Report:
        """The state, entry by entry. A million entries take about a tenth of a second."""
        return _report(self._call("report", max_s, ledger=ledger, cursor=cursor))

    def internals(self, ledger: str, cursor: str) -> Internals:
        """Counters and places."""
        return _internals(self._call("internals", ledger=ledger, cursor=cursor))

    # --- ledgers by their bytes -------------------------------------------------------------------

    def write_cursor_ledger(
        self,
        ledger: str,
        cursor: str,
        entries: Iterable[bytes],
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> int:
        """A closed ledger with Pulsar's metadata of a cursor ledger; answers its id."""
        encoded = [base64.b64encode(entry).decode() for entry in entries]
        answer = self._call(
            "write_cursor_ledger",
            ledger=ledger,
            cursor=cursor,
            entries=encoded,
            metadata=dict(metadata or {}),
        )
        return int(answer["id"])

    def read_ledger(self, ledger_id: int, *, last: int = 1) -> tuple[list[bytes], dict[str, str]]:
        """The last entries that a reader may see, without recovery, and the custom metadata."""
        answer = self._call("read_ledger", id=ledger_id, last=last)
        return [base64.b64decode(entry) for entry in answer["entries"]], dict(answer["metadata"])

    # --- calls ------------------------------------------------------------------------------------

    def _call(self, op: str, max_s: float | None = None, **arguments: object) -> Any:
        process = self._running()
        assert process.stdout
        limit_s = max_s or self._call_max_s
        with self._limit(limit_s) as expired:
            self._write({"op": op, **arguments})
            line = process.stdout.readline()
        if not line:
            why = (
                f"did not answer within {limit_s:.0f} s and was killed"
                if expired.is_set()
                else f"ended with {process.wait(10)}"
            )
            self.kill()
            raise HarnessError(
                f"{op}: Pulsar {self.version} {why}. Its log {self._log} ends "
                f"with:\n{self.log_tail()}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise error_of(op, answer)
        return answer["ok"]

    def _write(self, request: Mapping[str, object]) -> None:
        process = self._running()
        assert process.stdin
        with suppress(BrokenPipeError):  # the answer's end of file says so too, with the reason
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()

    @contextmanager
    def _limit(self, seconds: float) -> Iterator[threading.Event]:
        """Kills the child at the limit, so that no read or write of its pipes waits longer."""
        process, expired = self._running(), threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            yield expired
        finally:
            timer.cancel()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise HarnessError(f"the harness of Pulsar {self.version} is not running")
        return self._process

    def _command_line(self) -> list[str]:
        target = _MODULES / VERSIONS[self.version] / "target"
        class_path = target / "interop.classpath"
        if not class_path.is_file():
            raise HarnessError(f"{class_path} is missing: build it with `make interop-classes`")
        opens = [
            argument
            for package in _OPENS
            for argument in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")
        ]
        jvm = [
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",
            "-Djava.net.preferIPv4Stack=true",
            f"-Djava.io.tmpdir={self._temp}",
        ]
        classes = f"{target / 'classes'}{os.pathsep}{class_path.read_text().strip()}"
        return [
            "java",
            *jvm,
            "-Dio.netty.tryReflectionSetAccessible=true",
            *opens,
            "-cp",
            classes,
            "io.cursorkeeper.interop.Main",
        ]

    def log_tail(self) -> str:
        """The end of what the process logged."""
        if not self._log.is_file():
            return "(nothing)"
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or "(nothing)"


def words(bits: BitMap) -> list[int]:
    """As `BitSet.toLongArray`: signed 64-bit words, trailing zeros cut."""
    unsigned = [0] * (bits.max() // 64 + 1) if bits else []
    for bit in bits:
        unsigned[bit // 64] |= 1 << (bit % 64)
    return [word - (1 << 64) if word >> 63 else word for word in unsigned]


def bits(signed_words: Iterable[int]) -> BitMap:
    """The inverse of `words`."""
    return BitMap(
        64 * at + bit
        for at, word in enumerate(signed_words)
        for bit in range(64)
        if word >> bit & 1
    )


def _layout(answer: Any) -> Layout:
    return Layout(
        tuple((ledger, entries) for ledger, entries in answer["ledgers"]),
        Position(*answer["lastConfirmed"]),
    )


def _report(answer: Any) -> Report:
    return Report(
        mark_delete=Position(*answer["markDelete"]),
        acked={ledger: runs.decode(text) for ledger, text in answer["acked"]},
        ranges={ledger: runs.decode(text) for ledger, text in answer["ranges"]},
        batches={
            PartialKey(ledger, entry): bits(remaining)
            for ledger, entry, remaining in answer["batches"]
        },
        properties=dict(answer["properties"]),
        cursor_properties=dict(answer["cursorProperties"]),
        layout=_layout(answer["layout"]),
    )


def _internals(answer: Any) -> Internals:
    return Internals(
        state=answer["state"],
        cursor_ledger=answer["cursorLedger"],
        cursor_ledger_last_entry=answer["cursorLedgerLastEntry"],
        mark_delete=Position(*answer["markDelete"]),
        persistent_mark_delete=Position(*answer["persistentMarkDelete"])
        if answer["persistentMarkDelete"]
        else None,
        ranges=answer["ranges"],
        fully_persistable=answer["fullyPersistable"],
        backlog=answer["backlog"],
        ledger_writes=answer["ledgerWrites"],
        ledger_write_bytes=answer["ledgerWriteBytes"],
        ledger_write_errors=answer["ledgerWriteErrors"],
        znode_writes=answer["znodeWrites"],
        znode_write_errors=answer["znodeWriteErrors"],
        individually_deleted=answer["individuallyDeleted"],
    )
