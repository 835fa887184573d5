"""One topic in a harness: the calls of a test without the names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from cursorkeeper.core.positions import Position
from cursorkeeper.core.values import PartialKey
from cursorkeeper.format.pulsar import names
from daemon.tests.interop.harness import Internals, Layout, PulsarHarness, Report
from daemon.tests.interop.states import settled


@dataclass(frozen=True)
class Topic:
    """`ledgers`: the fabricated data ledgers, all closed; Pulsar adds an open one behind them
    whenever it opens the topic.
    """

    pulsar: PulsarHarness
    name: str
    ledgers: tuple[tuple[int, int], ...]

    @property
    def managed(self) -> str:
        """Its name in a harness."""
        return names.managed_ledger_name(self.name)

    @property
    def ids(self) -> list[int]:
        """Of the data ledgers."""
        return [ledger for ledger, _ in self.ledgers]

    def open(self, **config: Any) -> Layout:
        return self.pulsar.open_ledger(self.managed, **config)

    def close(self) -> None:
        """A graceful unload."""
        self.pulsar.close_ledger(self.managed)

    def reopen(self, **config: Any) -> Layout:
        """A graceful unload, and a load."""
        self.close()
        return self.open(**config)

    def crash(self, **config: Any) -> Layout:
        """The process halts; a new one opens the topic."""
        self.pulsar.halt()
        self.pulsar.start()
        return self.open(**config)

    def subscribe(
        self, cursor: str, cursor_properties: Mapping[str, str] | None = None
    ) -> Internals:
        return self.pulsar.open_cursor(
            self.managed, names.encode_name(cursor), cursor_properties=cursor_properties
        )

    def ack(
        self,
        cursor: str,
        entries: Mapping[int, Iterable[int]] | None = None,
        *,
        positions: Iterable[tuple[int, int]] = (),
        batches: Mapping[Any, Iterable[int]] | None = None,
    ) -> None:
        """`entries`: ledger -> acked entries; `batches`: (ledger, entry) -> indexes that remain
        un-acked.
        """
        whole = {ledger: BitMap(acked) for ledger, acked in (entries or {}).items()}
        partly = {PartialKey(*at): BitMap(missing) for at, missing in (batches or {}).items()}
        self.pulsar.delete(
            self.managed, names.encode_name(cursor), whole, positions=positions, batches=partly
        )

    def mark_delete(
        self, cursor: str, position: tuple[int, int], properties: Mapping[str, int] | None = None
    ) -> None:
        self.pulsar.mark_delete(self.managed, names.encode_name(cursor), position, properties)

    def set_cursor_properties(self, cursor: str, properties: Mapping[str, str]) -> None:
        self.pulsar.set_cursor_properties(self.managed, names.encode_name(cursor), properties)

    def report(self, cursor: str) -> Report:
        return self.pulsar.report(self.managed, names.encode_name(cursor))

    def internals(self, cursor: str) -> Internals:
        return self.pulsar.internals(self.managed, names.encode_name(cursor))

    def last_internals(self, cursor: str) -> str:
        """The same for a message: also of a cursor that has no process just now."""
        try:
            return str(self.internals(cursor))
        except Exception as e:  # whatever it is, the message is about something else
            return f"Pulsar does not say: {e}"

    def wait(
        self, cursor: str, until: Callable[[Internals], bool], max_s: float = 120.0
    ) -> Internals:
        """Asks again until it is so. Raises AssertionError at the limit."""
        end = time.monotonic() + max_s
        while not until(now := self.internals(cursor)):
            assert time.monotonic() < end, f"{cursor}: not within {max_s:.0f} s: {now}"
        return now

    def write_ledger(
        self, cursor: str, entries: Iterable[bytes], metadata: Mapping[str, str] | None = None
    ) -> int:
        return self.pulsar.write_cursor_ledger(
            self.managed, names.encode_name(cursor), entries, metadata=metadata
        )

    def settled(self, mark_delete: Position, acked: Mapping[int, BitMap]) -> dict[int, BitMap]:
        """Which entries of the fabricated ledgers will not be delivered again."""
        return settled(self.ledgers, mark_delete, acked)
