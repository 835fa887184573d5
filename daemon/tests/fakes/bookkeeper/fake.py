"""A BookKeeper in memory that misbehaves on purpose, shared by any number of fake gateways.

Owns: the ledgers, how many bookies are up, damage, and the plan of faults. Does not own:
connections and calls (`fake_gateway`), appends on their way (`fake_handle`), one ledger's rules
(`fake_ledger`). Invariants: no threads, no clock but the loop's, no chance but the given
`random.Random`: under a virtual-time loop a run is repeated by its seed. The contract suite of the
real client passes on it. Not modelled: which bookie holds which entry. Bookies are a number, and
those that are down are taken to be the worst ones for the ledger at hand.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from cursorkeeper.bookkeeper.errors import NO_SUCH_LEDGER_REASON, NoSuchLedger, Outcome
from cursorkeeper.bookkeeper.port import LedgerEnd, LedgerSpec
from daemon.tests.fakes.bookkeeper.faults import Fault, Faults
from daemon.tests.fakes.bookkeeper.gateway import FakeGateway, FakeProcess
from daemon.tests.fakes.bookkeeper.ledger import Damage, FakeLedger

__all__ = ["Damage", "FakeBookKeeper", "FakeGateway", "FakeLedger", "Fault", "Faults"]


class FakeBookKeeper:
    """The shared store. `ledgers` is public for tests: what the bookies really hold."""

    def __init__(
        self,
        rng: random.Random,
        *,
        bookies: int = 3,
        entry_bytes_max: int = 1 << 20,
        faults: Faults | None = None,
    ) -> None:
        self.rng, self.bookies, self.bookies_up = rng, bookies, bookies
        self.entry_bytes_max = entry_bytes_max
        self.faults = faults or Faults()
        self.ledgers: dict[int, FakeLedger] = {}
        self.processes: list[FakeProcess] = []
        self.acks_stalled = False
        self.creates_asked = 0
        """So often a ledger was asked for, whether or not there were enough bookies."""
        self._next_ledger = 0
        self._instances = 0

    def gateway(
        self,
        *,
        role: str = "writer",
        entries_max: int = 4096,
        bytes_max: int = 32 << 20,
        append_timeout_s: float = 30.0,
    ) -> FakeGateway:
        """A client of a gateway process of its own."""
        return FakeGateway(
            self,
            FakeProcess(self),
            role=role,
            entries_max=entries_max,
            bytes_max=bytes_max,
            append_timeout_s=append_timeout_s,
        )

    def fence_behind(self, ledger: int) -> LedgerEnd:
        """Somebody else fences it, now: auto-recovery, or another gateway."""
        return self.ledger(ledger).recover(self.rng)

    def stall_acks(self, stalled: bool = True) -> None:
        """Bookies store but do not answer appends, until called with False."""
        self.acks_stalled = stalled
        for process in self.processes:
            for handle in process.handles.values():
                handle.wake()

    def damage(self, ledger: int, entry: int, how: Damage) -> None:
        """From now on every read of that entry is spoilt."""
        self.ledger(ledger).damage[entry] = how

    def lose_ledger(self, ledger: int) -> None:
        """An operator's mistake: the ledger is gone."""
        del self.ledgers[ledger]

    def ledger(self, ledger: int) -> FakeLedger:
        """Raises `NoSuchLedger`."""
        found = self.ledgers.get(ledger)
        if found is None:
            raise NoSuchLedger(
                NO_SUCH_LEDGER_REASON, Outcome.NOT_DONE, ledger=ledger, bookkeeper_code=-25
            )
        return found

    def new_ledger(self, spec: LedgerSpec, custom_metadata: Mapping[str, bytes]) -> FakeLedger:
        """The metadata of a new ledger; ids grow, with gaps as in life."""
        self._next_ledger += self.rng.randint(1, 3)
        made = FakeLedger(
            self._next_ledger, spec, custom_metadata, int(asyncio.get_running_loop().time() * 1000)
        )
        self.ledgers[made.ledger] = made
        return made

    def restore(
        self,
        ledger: int,
        spec: LedgerSpec,
        custom_metadata: Mapping[str, bytes],
        entries: Sequence[bytes],
        *,
        closed: bool,
    ) -> FakeLedger:
        """A ledger as it was left elsewhere, under its own id: closed, or open with every entry
        acknowledged. New ids are above it.
        """
        made = self.ledgers[ledger] = FakeLedger(ledger, spec, custom_metadata, 0)
        for payload in entries:
            made.ack(made.store(payload))
        if closed:
            made.close_at(len(entries) - 1)
        self._next_ledger = max(self._next_ledger, ledger)
        return made

    def new_instance(self) -> str:
        """The name of a new gateway process."""
        self._instances += 1
        return f"fake-gateway-{self._instances}"

    def can_create(self, spec: LedgerSpec) -> bool:
        """A new ensemble needs that many bookies."""
        return self.bookies_up >= spec.ensemble

    def can_add(self, ledger: FakeLedger) -> bool:
        """Enough for another ensemble, or the ack quorum is left of this one."""
        return self.can_create(ledger.spec) or self._left_of(ledger) >= ledger.spec.ack_quorum

    def can_recover(self, ledger: FakeLedger) -> bool:
        """Whether those left certainly hold every acknowledged entry: what fencing and reading
        need.
        """
        return self._left_of(ledger) >= ledger.spec.ensemble - ledger.spec.ack_quorum + 1

    def _left_of(self, ledger: FakeLedger) -> int:
        return ledger.spec.ensemble - (self.bookies - self.bookies_up)
