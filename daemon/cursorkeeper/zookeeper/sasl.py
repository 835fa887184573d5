"""A login with SASL on a new connection, step by step: serves clusters whose ZooKeeper asks its
clients who they are.

Owns which mechanism settings ask for, and what the steps are called. Does not own carrying them
(`handshake`), nor a mechanism (`digest_md5`, `kerberos`).
"""

from __future__ import annotations

import secrets
from typing import Protocol

from cursorkeeper.zookeeper import digest_md5, kerberos
from cursorkeeper.zookeeper.errors import LoginRefused
from cursorkeeper.zookeeper.settings import ZooKeeperSettings


class Login(Protocol):
    """One login on one connection."""

    async def answer(self, said: bytes) -> bytes | None:
        """What is said next: to nothing, at first, then to what the server said. None: it is over.
        Raises ProtocolBroken, AccessDenied.
        """
        ...

    def refused(self, where: str, *, has_ended: bool) -> LoginRefused:
        """What to say of a server that refuses it, by a code or by ending the connection."""
        ...


class PasswordLogin:
    """By DIGEST-MD5: two steps."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password
        self._expected: digest_md5.Answer | None = None
        self._is_begun = False

    async def answer(self, said: bytes) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return b""
        if self._expected is None:
            nonce = secrets.token_hex(16).encode()
            self._expected = digest_md5.answer(said, self._user, self._password, nonce)
            return self._expected.response
        digest_md5.check(said, self._expected)
        return None

    def refused(self, where: str, *, has_ended: bool) -> LoginRefused:
        if has_ended:
            message = (
                f"{where} ended the login of {self._user!r}: the password of zookeeper_auth_file "
                f"is wrong, or ZooKeeper knows no such user"
            )
        else:
            message = (
                f"{where} refuses the login of {self._user!r} (zookeeper_auth_file): its password "
                f"is wrong, ZooKeeper knows no such user, or has no login at all"
            )
        return LoginRefused(
            message, "correct the user and password in zookeeper_auth_file, or add the user there"
        )


def login_of(settings: ZooKeeperSettings, host: str, limit_s: float) -> Login | None:
    """A new one for a host, if the settings ask for one. `limit_s`: how long it may wait for
    others than the server.
    """
    if settings.kerberos is not None:
        return kerberos.KerberosLogin(settings.kerberos, host, limit_s)
    if settings.login is not None:
        return PasswordLogin(*settings.login)
    return None
