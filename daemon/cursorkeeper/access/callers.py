"""Whose a call is: by its token, or by its certificate. Serves every service of the daemon.

A token counts before a certificate, and a wrong one is not made good by a certificate. Without
identities everybody who reaches the port is `anybody`, as the daemon's settings have it.
Invariant: files that were changed and cannot be used leave what was read before in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from cryptography import x509

from cursorkeeper.access import signed_tokens
from cursorkeeper.access.identities_file import Known, subject_of
from cursorkeeper.access.identity import ANYBODY, Identity, Role
from cursorkeeper.access.signed_tokens import SignedTokens, TokenProblem

AUTHORIZATION, _BEARER = "authorization", b"bearer "


class Unauthenticated(Exception):
    """Nobody knows who calls. The message says what to send."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a call brings along. `certificate` is in PEM; `peer` is its address, as gRPC says it."""

    peer: str = ""
    token: bytes = field(default=b"", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    problem: str = ""
    """Why nobody can be known by it."""

    def but(self, token: bytes) -> Shown:
        """With the token of a Hello, if that has one. Two tokens that differ are nobody's."""
        if not token or token == self.token:
            return self
        if self.token:
            return replace(self, problem="Hello and metadata have different tokens: send one")
        return replace(self, token=token)


def shown_by(context: Any) -> Shown:
    """What a gRPC call brings along."""
    given = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
    certificate = bytes((context.auth_context() or {}).get("x509_pem_cert", [b""])[0])
    token, problem = b"", ""
    if len(given) > 1:
        problem = f"there are {len(given)} values of `{AUTHORIZATION}`: send one"
    elif given:
        token = _bearer(given[0])
        problem = "" if token else f"the value of `{AUTHORIZATION}` is not `Bearer TOKEN`"
    return Shown(context.peer(), token, certificate, problem)


def _bearer(given: str | bytes) -> bytes:
    """Empty for what is no token."""
    value = given.encode(errors="replace") if isinstance(given, str) else given
    return value[len(_BEARER) :].strip() if value[: len(_BEARER)].lower() == _BEARER else b""


@dataclass(frozen=True, slots=True)
class Table:
    """Who is known; `how` says to callers how they prove who they are. Without `known` everybody is
    `anybody`.
    """

    known: Known | None = None
    signed: SignedTokens | None = None
    how: str = ""

    @property
    def asks_for_certificates(self) -> bool:
        """Whether somebody proves with one who they are."""
        return self.known is not None and bool(self.known.certificates)

    def of(self, shown: Shown) -> Identity:
        """Raises Unauthenticated."""
        known = self.known
        if known is None:
            return ANYBODY
        if shown.problem:
            raise Unauthenticated(shown.problem)
        if shown.token:
            return self._by_token(shown.token, known)
        if shown.certificate:
            return self._by_certificate(shown.certificate, known)
        raise Unauthenticated(f"the token is missing: {self.how}")

    def _by_token(self, token: bytes, known: Known) -> Identity:
        if self.signed is not None and signed_tokens.looks_signed(token):
            try:
                subject = self.signed.subject(token)
            except TokenProblem as e:
                raise Unauthenticated(f"the token proves nothing: {e}: {self.how}") from None
            found = known.subjects.get(subject)
            if found is None:
                raise Unauthenticated(
                    f"no identity has the token subject {subject[:128]!r}: add it to token_subjects"
                )
            return found
        found = known.hashes.get(hashlib.sha256(token).hexdigest())
        if found is None:
            raise Unauthenticated(f"the token is wrong: {self.how}")
        return found

    @staticmethod
    def _by_certificate(certificate: bytes, known: Known) -> Identity:
        try:
            read = x509.load_pem_x509_certificate(certificate)
            subject = read.subject
        except ValueError as e:
            raise Unauthenticated(f"the certificate cannot be read: {e}") from None
        if read.not_valid_after_utc < datetime.now(UTC):  # it was valid when its stream began
            raise Unauthenticated(
                f"the certificate has expired at {read.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
            )
        found = known.certificates.get(subject_of(subject))
        if found is None:
            raise Unauthenticated(
                f"no identity has the certificate {subject.rfc4514_string()[:256]!r}: add it to "
                f"`certificates` in identities_file, or send a token"
            )
        return found


def _of_tokens(named: Mapping[bytes, Identity]) -> Known:
    return Known({hashlib.sha256(token).hexdigest(): one for token, one in named.items()}, {}, {})


def table_of_tokens(source: bytes, readers: bytes = b"") -> Table:
    """Those of the two token files; everybody, without any."""
    if not (source or readers):
        return Table()
    named: dict[bytes, Identity] = {}
    for token, role in ((source, Role.SOURCE), (readers, Role.READER)):
        if token:
            named.setdefault(token, Identity(str(role), frozenset({role})))
    return Table(
        _of_tokens(named),
        how="send the content of the daemon's source_token_file in Hello; or, in the metadata "
        "`authorization: Bearer TOKEN`, that or the one of reader_token_file, which deletes "
        "nothing",
    )


@dataclass(slots=True)
class Callers:
    """The table that counts now. `read` makes it anew from the files, and `stamp` differs when they
    have changed; `seen`: as it was before `table` was read.
    """

    table: Table = field(default_factory=Table)
    read: Callable[[], Table] | None = None
    stamp: Callable[[], object] = lambda: None
    seen: object = None

    def of(self, shown: Shown) -> Identity:
        """Raises Unauthenticated."""
        return self.table.of(shown)

    def look(self) -> None:
        """Takes what the files say now, if they have changed. Raises SettingsError."""
        if self.read is None or (stamp := self.stamp()) == self.seen:
            return
        table = self.read()
        if self.stamp() != stamp:
            return  # it is being written
        self.table, self.seen = table, stamp
