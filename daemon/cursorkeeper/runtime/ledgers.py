"""How cursor ledgers are created: quorums, custom metadata, the smaller ensemble when bookies are
missing, and who asks when too few are left for any ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import Digest, LedgerSpec, LedgerStore
from cursorkeeper.core.footer import FORMAT_NATIVE
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import frozen
from cursorkeeper_client.back_off import BackOff

APPLICATION = b"cursorkeeper"
NOT_ENOUGH_BOOKIES = "NOT_ENOUGH_BOOKIES"
EVERYBODYS = frozenset({NOT_ENOUGH_BOOKIES, "CONNECTION_LOST"})
"""Why a ledger is not created, where that is true of every other one, too."""
ASKED_AGAIN_MIN_S, ASKED_AGAIN_MAX_S = 0.05, 0.8
"""While none can be created one request asks so often whether that is over."""
TOLD_MAX_S = 5.0
"""What was said longer ago is told to nobody. A cursor that tries again comes sooner."""


@frozen
class LedgerPolicy:
    """Quorums of cursor ledgers. `shrink`: with a bookie missing, create with an ensemble of the
    ack quorum rather than not at all; the daemon rolls back to the full one when bookies return.
    """

    ensemble: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    digest: Digest = Digest.CRC32C
    password: bytes = b""
    shrink: bool = True

    @property
    def full(self) -> LedgerSpec:
        """The wanted ensemble and quorums, as long as enough bookies are there."""
        return LedgerSpec(
            self.ensemble, self.write_quorum, self.ack_quorum, self.digest, self.password
        )

    @property
    def smallest(self) -> LedgerSpec:
        """The least that still meets the ack quorum."""
        return LedgerSpec(
            self.ack_quorum, self.ack_quorum, self.ack_quorum, self.digest, self.password
        )


class Scarcity:
    """Too few bookies for a new ledger are too few for everybody's, and a gateway that is away is
    away for all. So one cursor asks now and then, and the others are told what it was told: ten
    thousand that ask every two seconds keep busy what they wait for.
    """

    def __init__(self) -> None:
        self._reason: str | None = None
        self._ask_at_s = self._said_at_s = 0.0
        self._is_asked = False
        self._back_off = BackOff(ASKED_AGAIN_MIN_S, ASKED_AGAIN_MAX_S)

    def told(self) -> str | None:
        """Why no ledger can be created, as BookKeeper said a moment ago. None: ask. Whoever comes
        next is told the same as before, until there is an answer or it is time to ask again.
        """
        now = asyncio.get_running_loop().time()
        if now > self._said_at_s + TOLD_MAX_S:
            self.created()
        if self._reason is None:
            return None
        if now < self._ask_at_s:
            return self._reason
        self._is_asked, self._ask_at_s = True, now + ASKED_AGAIN_MAX_S
        return None

    def failed(self, error: bk.GatewayError) -> None:
        """A request failed, for this reason or another one. Of many that were on their way at once
        the first counts.
        """
        if error.reason in EVERYBODYS and (self._reason is None or self._is_asked):
            self._reason, self._is_asked = str(error), False
            self._said_at_s = asyncio.get_running_loop().time()
            self._ask_at_s = self._said_at_s + self._back_off.next_s()

    def created(self) -> None:
        """Ledgers are created again, or what was said of them is too old."""
        self._reason = None
        self._back_off.reset()


def custom_metadata(
    name: CursorName,
    epoch: int,
    generation: int,
    writer: str,
    deployment: str,
    *,
    form: str = FORMAT_NATIVE,
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> dict[str, bytes]:
    """What every cursor ledger says of itself; `repair` and garbage collection read it.
    `deployment`: the id of the root whose footers may name the ledger (`FooterStore.deployment`).
    `form`: how its entries are read; `more`: what else a reader needs.
    """
    return {
        "application": APPLICATION,
        "deployment": deployment.encode(),
        "cursor": name.canonical.encode(),
        "epoch": str(epoch).encode(),
        "generation": str(generation).encode(),
        "format": form.encode(),
        "writer": writer.encode(),
        **more,
    }


async def create(
    ledgers: LedgerStore, policy: LedgerPolicy, metadata: dict[str, bytes]
) -> tuple[int, bool]:
    """(ledger, whether its ensemble is smaller than wanted). Raises GatewayError."""
    try:
        return await ledgers.create(policy.full, metadata), False
    except bk.GatewayRetry as e:
        if not policy.shrink or e.reason != NOT_ENOUGH_BOOKIES or policy.smallest == policy.full:
            raise
    return await ledgers.create(policy.smallest, metadata), True
