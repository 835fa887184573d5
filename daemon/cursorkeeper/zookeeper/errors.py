"""What can go wrong with ZooKeeper, and what to do about it.

Owns the exceptions of this package and the one table from ZooKeeper's codes to them. Does not own
any retry: a caller reacts to the `kind`. Invariants: every exception of the port is a
`ZooKeeperError`, a `ValueError` for arguments that are a bug, or a cancellation; each class says in
`kind` how to react and in `remedy` what an operator can look at.

The distinction that matters most is between `NotSent` (nothing happened, repeating is safe) and
`OutcomeUnknown` (it may have happened, or may happen later: the writer finds out, and never
guesses). Both are `Disconnected`, which is enough for a read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar


class Kind(Enum):
    """How a caller reacts to an error; there is one kind for each reaction."""

    UNKNOWN = (
        "may have been done, or may be done later: repeat the same write with the same "
        "version until it is decided"
    )
    NOT_DONE = "was not done: repeat it"
    BAD_VERSION = "somebody else wrote: read again, then decide"
    NO_NODE = "there is no such node"
    NODE_EXISTS = "there is such a node already"
    REFUSED = "will be refused again until something is changed by a person"
    BUG = "the request or the answer makes no sense: stop and report"


class ZooKeeperError(Exception):
    """Base of all errors of this package. `path` is the caller's (without chroot), `code`
    ZooKeeper's number or None if local.
    """

    kind: ClassVar[Kind] = Kind.BUG
    remedy: str = "report this with the log around it"

    def __init__(
        self, message: str = "", *, path: str | None = None, code: int | None = None
    ) -> None:
        self.message, self.path, self.code = message, path, code
        super().__init__(message)

    def __str__(self) -> str:
        words = [type(self).__name__]
        if self.path is not None:
            words.append(repr(self.path))
        if self.message:
            words.append(self.message)
        if self.code is not None:
            words.append(f"(ZooKeeper code {self.code})")
        return " ".join(words)


# --- the connection -------------------------------------------------------------------------------


class Disconnected(ZooKeeperError):
    """No answer. A read may simply be repeated; a write has to look at which of the two subclasses
    it is.
    """


class OutcomeUnknown(Disconnected):
    """Sent, perhaps: the answer was lost or is late. A write may have been applied, or may still be
    applied later.
    """

    kind = Kind.UNKNOWN
    remedy = (
        "the connection to ZooKeeper was lost or is slow; look at the servers' latency and "
        "at the network"
    )


class ConnectionLost(OutcomeUnknown):
    """The connection ended while the answer was awaited."""


class NotSent(Disconnected):
    """Certainly not sent: nothing was done, repeating is safe."""

    kind = Kind.NOT_DONE
    remedy = (
        "ZooKeeper is not reachable or is behind; look at its servers and at the client's limits"
    )


class NotConnected(NotSent):
    """No connection within the time a request waits for one."""

    remedy = (
        "no ZooKeeper server answers: check the server list, the network and that the "
        "ensemble has a quorum"
    )

    def __init__(self, message: str = "", *, path: str | None = None, remedy: str = "") -> None:
        """`remedy`: where a server answered, and did not take us."""
        super().__init__(message, path=path)
        self.remedy = remedy or self.remedy


class TooManyRequests(NotSent):
    """The limit on requests (or their bytes) in flight was reached for as long as a request
    waits.
    """

    remedy = (
        "more requests than ZooKeeper answers: look at its latency before raising "
        "requests_in_flight_max"
    )


class ClientClosed(NotSent):
    """The client was closed, or never started."""

    remedy = "the client is closed: this is expected while the daemon stops"


class ProtocolBroken(ZooKeeperError):
    """The peer sent bytes that are not ZooKeeper's protocol; the connection is ended, requests see
    ConnectionLost.
    """

    remedy = "is this address a ZooKeeper server, and does it expect TLS?"


# --- answers of the server ------------------------------------------------------------------------


class BadVersion(ZooKeeperError):
    """The compare-and-set named another version than the node has."""

    kind = Kind.BAD_VERSION
    remedy = "another writer changed this node"


class NoNode(ZooKeeperError):
    """The node (or for a create its parent) does not exist."""

    kind = Kind.NO_NODE
    remedy = "the node is missing: is the chroot right, was it deleted by hand?"


class NodeExists(ZooKeeperError):
    """The node to create exists."""

    kind = Kind.NODE_EXISTS
    remedy = "the node exists already"


class Refused(ZooKeeperError):
    """The server will not do this, now or later."""

    kind = Kind.REFUSED
    remedy = "ZooKeeper refuses this request: look at the message and at the server's log"


class NotEmpty(Refused):
    """The node to delete has children."""

    remedy = "delete the children first"


class NoChildrenForEphemerals(Refused):
    """The parent of the node to create is ephemeral."""


class AccessDenied(Refused):
    """Authentication or access control stands in the way."""

    remedy = (
        "the node's ACL does not allow this client, who is the user of zookeeper_auth_file or "
        "zookeeper_sasl_principal, and of its certificate: show those that may, or ask for rights, "
        "or for another chroot"
    )


class LoginRefused(AccessDenied):
    """A login with SASL did not come about; nothing was asked for."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class Unsupported(Refused):
    """The server does not know this operation, or is read-only."""

    remedy = "this needs ZooKeeper 3.6 or newer with a quorum"


class ValueTooLarge(Refused):
    """Refused here, before sending: a frame above jute.maxbuffer makes the server close the
    connection (facts: largest znode).
    """

    remedy = (
        "the value is above what ZooKeeper takes; the cursor's state must go to BookKeeper, "
        "or jute.maxbuffer up on every server"
    )


class Retry(ZooKeeperError):
    """The server did not do it but would take it again: the session moved to another server, or a
    configuration change is under way.
    """

    kind = Kind.NOT_DONE
    remedy = "passes by itself; if it stays, look at the ensemble's configuration"


class SessionExpired(ZooKeeperError):
    """The server says that the session has expired; this request was not done. Ephemerals and
    watches are gone.
    """

    kind = Kind.NOT_DONE
    remedy = (
        "ZooKeeper did not hear from this process for a session timeout: long pauses, a "
        "blocked event loop, or the network"
    )


class RolledBack(ZooKeeperError):
    """An operation of a multi that would have worked, undone because another one failed."""

    kind = Kind.NOT_DONE
    remedy = "see the culprit of the multi"


class NotTried(RolledBack):
    """An operation of a multi after the one that failed."""


class ServerFault(ZooKeeperError):
    """The server says that it is confused. Whether the request was applied is not to be relied
    on.
    """

    kind = Kind.UNKNOWN
    remedy = "ZooKeeper reports an internal error: read the server's log"


class MultiFailed(ZooKeeperError):
    """Nothing of the multi was done.

    `errors` has one entry per operation: RolledBack before the culprit, the reason at
    `culprit_index`, NotTried behind it.
    """

    kind = Kind.NOT_DONE
    remedy = "see the culprit's own error"

    def __init__(self, errors: Sequence[ZooKeeperError], culprit_index: int) -> None:
        self.errors = tuple(errors)
        self.culprit_index = culprit_index
        self.culprit = self.errors[culprit_index]
        super().__init__(code=self.culprit.code)

    def __str__(self) -> str:
        return f"MultiFailed operation {self.culprit_index} of {len(self.errors)}: {self.culprit}"


ERRORS_BY_CODE: dict[int, type[ZooKeeperError]] = {
    0: RolledBack,  # only inside a multi
    # RUNTIMEINCONSISTENCY: in a multi "an earlier one failed"; `error_from_code` maps it elsewhere
    -2: NotTried,
    -4: ConnectionLost,  # CONNECTIONLOSS
    -5: ZooKeeperError,  # MARSHALLINGERROR: our bytes are wrong
    -6: Unsupported,  # UNIMPLEMENTED
    -7: OutcomeUnknown,  # OPERATIONTIMEOUT
    -8: Refused,  # BADARGUMENTS
    -12: SessionExpired,  # UNKNOWNSESSION
    -13: Retry,  # NEWCONFIGNOQUORUM
    -14: Retry,  # RECONFIGINPROGRESS
    -101: NoNode,
    -102: AccessDenied,  # NOAUTH
    -103: BadVersion,
    -108: NoChildrenForEphemerals,
    -110: NodeExists,
    -111: NotEmpty,
    -112: SessionExpired,
    -113: ZooKeeperError,  # INVALIDCALLBACK
    -114: AccessDenied,  # INVALIDACL
    -115: AccessDenied,  # AUTHFAILED
    -118: Retry,  # SESSIONMOVED
    -119: Unsupported,  # NOTREADONLY: the server is cut off from the quorum
    -120: Refused,  # EPHEMERALONLOCALSESSION
    -121: ZooKeeperError,  # NOWATCHER
    -122: OutcomeUnknown,  # REQUESTTIMEOUT
    -123: Refused,  # RECONFIGDISABLED
    -124: AccessDenied,  # SESSIONCLOSEDREQUIRESASLAUTH
    -125: Refused,  # QUOTAEXCEEDED
    -127: Retry,  # THROTTLEDOP: the server threw it away unprocessed
}
"""ZooKeeper's KeeperException.Code to ours. Every other one is a `ServerFault`: SYSTEMERROR,
DATAINCONSISTENCY, APIERROR, and a newer server's, of which nothing is known.
"""


def error_from_code(
    code: int, path: str | None = None, *, in_multi: bool = False
) -> ZooKeeperError:
    """The exception (not raised) for a server's error code. `in_multi`: the code of one operation,
    where 0 and -2 have a meaning.
    """
    if not in_multi and code in (0, -2):
        return ServerFault("", path=path, code=code)
    return ERRORS_BY_CODE.get(code, ServerFault)("", path=path, code=code)


def show_paths(error: ZooKeeperError, outside: Callable[[str], str]) -> None:
    """Give an error, and those inside it, the caller's paths in place of the server's."""
    for one in (error, *(error.errors if isinstance(error, MultiFailed) else ())):
        if one.path is not None:
            one.path = outside(one.path)
