"""Which role may do what with whose ledger, as the gateway decides it; for the fake gateway.

Owns: the table of the contract (`ledgers.proto`, "Whose ledgers"), by custom metadata alone. Does
not own: roles that are switched off, and tokens: a fake has every role and asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cursorkeeper.bookkeeper.errors import GatewayRefused, Outcome

Custom = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Access:
    """What one caller may do. Every method raises `GatewayRefused` NOT_DONE if it may not."""

    role: str
    deployment: str = ""

    def sees(self, custom: Custom) -> bool:
        """Whether it may know the ledger at all."""
        return is_ours(custom) or (is_pulsar_cursor(custom) and self.role != "writer")

    def may_read(self, ledger: int, custom: Custom) -> None:
        """Read, and ask for the metadata."""
        if not self.sees(custom):
            raise _refused("NOT_OURS", ledger)

    def may_see_the_end(self, ledger: int, custom: Custom) -> None:
        """Know where it ends, and nothing that is in it."""
        if not is_of_a_topic(custom) or self.role == "writer":
            self.may_read(ledger, custom)

    def may_create(self, custom: Custom) -> None:
        """A new one with this metadata."""
        self._may_write(-1, custom)

    def may_append(self, creator: str, custom: Custom) -> bool:
        """Whether it may use the handle of a ledger that a caller of this role created."""
        return self.role == creator and (self.role != "writer" or self._acts_for(custom))

    def may_fence(self, ledger: int, custom: Custom) -> None:
        """Never Pulsar's: that could depose a live broker."""
        if not is_ours(custom):
            raise _refused("NOT_OURS", ledger)
        self.may_end(ledger, custom)

    def may_end(self, ledger: int, custom: Custom) -> None:
        """Raises GatewayRefused where the caller may neither close nor delete the ledger."""
        self._may_write(ledger, custom)
        if is_ours(custom) and not self._acts_for(custom):
            raise _refused("OTHER_DEPLOYMENT", ledger)

    def _acts_for(self, custom: Custom) -> bool:
        return custom.get("deployment", b"") == self.deployment.encode()

    def _may_write(self, ledger: int, custom: Custom) -> None:
        if is_pulsar_cursor(custom):
            if self.role != "migrator":
                raise _refused("MIGRATORS_ONLY", ledger)
        elif not is_ours(custom):
            raise _refused("NOT_OURS", ledger)
        elif self.role != "writer":
            raise _refused("WRITERS_ONLY", ledger)


def is_ours(custom: Custom) -> bool:
    """Whether the ledger is of a cursor of ours."""
    return custom.get("application") == b"cursorkeeper"


def is_of_a_topic(custom: Custom) -> bool:
    """Whether it belongs to a topic of Pulsar's: its messages, or a cursor."""
    fixed = custom.get("application") == b"pulsar" and custom.get("component") == b"managed-ledger"
    return fixed and bool(custom.get("pulsar/managed-ledger"))


def is_pulsar_cursor(custom: Custom) -> bool:
    """Whether it is certainly of a cursor of Pulsar's: a ledger of messages has no
    `pulsar/cursor`.
    """
    return is_of_a_topic(custom) and bool(custom.get("pulsar/cursor"))


def _refused(reason: str, ledger: int) -> GatewayRefused:
    return GatewayRefused(reason, Outcome.NOT_DONE, ledger=ledger)
