"""How cursor ledgers are created: quorums, custom metadata, and the smaller ensemble when bookies
are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import Digest, LedgerSpec, LedgerStore
from cursorkeeper.core.footer import FORMAT_NATIVE
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import frozen

APPLICATION = b"cursorkeeper"


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
        if not policy.shrink or e.reason != "NOT_ENOUGH_BOOKIES" or policy.smallest == policy.full:
            raise
    return await ledgers.create(policy.smallest, metadata), True
