"""A key distribution center and both ends of a security context, in memory: for tests of the login
with Kerberos on machines without its library. Which principals there are, and whose keys are right,
is the test's to say; that it does as the library does, the contract suite looks at.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path

from cursorkeeper.zookeeper.errors import LoginRefused
from cursorkeeper.zookeeper.settings import Kerberos

_MARK_BYTES = 32


def _sealed(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256) + content


def _opened(key: bytes, message: bytes) -> bytes:
    content = message[_MARK_BYTES:]
    if not hmac.compare_digest(_sealed(key, content), message):
        raise LoginRefused("the message is not the other's", "")
    return content


class FakeCenter:
    """One realm; a keytab is a file of JSON with a key for each principal."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.is_up = True

    def context(self, asked: Kerberos, host: str) -> FakeContext:
        return FakeContext(self, asked, host)


class FakeContext:
    """A client's context with the one server of the fake center."""

    def __init__(self, center: FakeCenter, asked: Kerberos, host: str) -> None:
        self._center, self._asked, self._host = center, asked, host
        self._session = b""
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def step(self, said: bytes) -> bytes:
        if self._session:
            _opened(self._session, said)
            self._is_complete = True
            return b""
        keys, principal = self._center.keys, self._asked.principal
        named, _at, realm = self._asked.server_at(self._host).partition("@")
        server = f"{named}@{realm}" if "/" in named else f"{named}/{realm}@{_realm(principal)}"
        with Path(self._asked.keytab_file).open() as file:
            own = json.load(file).get(principal)
        for is_wrong, why, remedy in (
            (own is None, "holds no key of it", "name a keytab"),
            (not self._center.is_up, "Cannot contact any KDC", "up and reachable"),
            (principal not in keys, "not found", "create zookeeper_sasl_principal"),
            (keys.get(principal) != own, "check failed", "again (kadmin: ktadd)"),
            (server not in keys, "not found", "create the server's principal"),
        ):
            if is_wrong:
                raise LoginRefused(f"no login of {principal!r}: {why}", remedy)
        self._session = secrets.token_bytes(_MARK_BYTES)
        ticket = json.dumps([principal, self._session.hex()]).encode()
        return _sealed(keys[server].encode(), ticket)

    def unwrap(self, message: bytes) -> bytes:
        return _opened(self._session, message)

    def wrap(self, content: bytes) -> bytes:
        return _sealed(self._session, content)


def _realm(principal: str) -> str:
    return principal.rpartition("@")[2]


class FakeAcceptor:
    """The server's context for whoever comes."""

    def __init__(self, center: FakeCenter, principal: str) -> None:
        self._key = center.keys[principal].encode()
        self._session = b""
        self.client = ""

    def step(self, said: bytes) -> bytes:
        self.client, session = json.loads(_opened(self._key, said))
        self._session = bytes.fromhex(session)
        return _sealed(self._session, b"it is me")

    def unwrap(self, message: bytes) -> bytes:
        return _opened(self._session, message)

    def wrap(self, content: bytes) -> bytes:
        return _sealed(self._session, content)
