"""Who gets in: one place for every call and stream of the daemon. Serves its services.

Owns: putting identity, rights, quotas and the audit log together. Does not own: what they say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from cursorkeeper.access import rights
from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Callers, Shown, Unauthenticated
from cursorkeeper.access.identity import Identity
from cursorkeeper.stream.usage import OverQuota, Usage

log = structlog.get_logger("cursorkeeper.stream")


class Unwanted(Exception):
    """The call or stream ends. `status` is the name of gRPC's; the message says what to do."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


class Stays(Protocol):
    """What lasts longer than the moment in which it was let in."""

    def look_again(self) -> None:
        """Ends, or loses what is not its own any more."""

    def end(self) -> None:
        """It is let in no more."""


STATUSES = {
    Unauthenticated: "UNAUTHENTICATED",
    rights.Denied: "PERMISSION_DENIED",
    OverQuota: "RESOURCE_EXHAUSTED",
}
Refusing = Unauthenticated | rights.Denied | OverQuota


def unwanted(error: Refusing) -> Unwanted:
    return Unwanted(STATUSES[type(error)], str(error))


@dataclass(slots=True)
class Guard:
    callers: Callers
    usage: Usage
    audit: Audit
    staying: set[Stays] = field(default_factory=set)
    """Streams that are in."""

    def let_in(self, shown: Shown, method: str, *topics: str, **what: object) -> Identity:
        """Who calls, if they may. Raises Unwanted, which is in the audit log then."""
        identity: Identity | None = None
        try:
            identity = self.callers.of(shown)
            rights.check_role(identity, method)
            for topic in topics:
                rights.check_topic(identity, topic)
        except (Unauthenticated, rights.Denied) as e:
            self.audit.refused(
                method.rpartition("/")[2],
                identity,
                shown,
                str(e),
                **({"topics": topics} if topics else {}),
                **what,
            )
            raise unwanted(e) from None
        return identity

    async def look(self) -> None:
        """Takes what the files say now; streams whose identity is gone, or whose token has expired,
        end. Raises SettingsError where the files cannot be used; what they said before counts then.
        """
        try:
            await asyncio.to_thread(self.callers.look)  # a large file takes its time
        finally:
            for one in list(self.staying):
                try:
                    one.look_again()
                except Exception:  # a bug must not leave the others in
                    log.exception("bug: a stream could not be looked at; it is ended")
                    one.end()
