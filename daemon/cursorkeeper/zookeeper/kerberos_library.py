"""Security contexts of the system's library of Kerberos, by `gssapi`: serves the login with
Kerberos (`kerberos`). The only module that imports `gssapi`, which is an extra of the distribution.

Owns where keys and tickets are from, and the words for the library's codes. Invariant: with a
keytab of its own a login leaves no tickets behind and believes none that are there, so that it
sees what is true now.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

from cursorkeeper.core.setting import SettingsError
from cursorkeeper.zookeeper.errors import LoginRefused
from cursorkeeper.zookeeper.settings import Kerberos

T = TypeVar("T")
CENTER_REMEDY = (
    "look whether the key distribution center of /etc/krb5.conf (KRB5_CONFIG) is up and reachable"
)
_KEY_REMEDY = (
    "its key is not the one that the key distribution center has: write zookeeper_sasl_keytab_file "
    "again (kadmin: ktadd)"
)
_TICKET_REMEDY = (
    "name a keytab that holds the key of zookeeper_sasl_principal (zookeeper_sasl_keytab_file; "
    "`klist -k` lists what it holds), or get a ticket for it (kinit)"
)
_REALM_REMEDY = "say in /etc/krb5.conf (KRB5_CONFIG) where the realm's key distribution center is"
_BASE = 0x96C73A00
"""Of MIT's and Heimdal's codes; below 128 they are those of RFC 4120."""
_REMEDIES = {
    6: "create zookeeper_sasl_principal at the key distribution center, or correct it",
    7: (
        "create the server's principal, or say its name (zookeeper_sasl_service_name) and dial it "
        "by the host of that name"
    ),
    24: _KEY_REMEDY,
    31: _KEY_REMEDY,
    32: "get a new ticket (kinit)",
    37: "set this machine's clock",
    154: _REALM_REMEDY,
    156: CENTER_REMEDY,
}
_NO_KEY = frozenset((141, 181, 193, 195))
"""Neither a key nor a ticket was found."""
_MEMORY = "/dev/shm"
_ANY_REMEDY = "KRB5_TRACE=/dev/stderr in the environment makes the library tell more"


def require_library() -> None:
    """Raises SettingsError where it is not installed, or cannot be used."""
    try:
        import gssapi  # noqa: F401
    except ImportError as e:
        raise SettingsError(
            f"zookeeper_sasl_principal asks for Kerberos, and the library gssapi cannot be used "
            f"here: {e}",
            "install cursorkeeper[kerberos], and the system's library of Kerberos (Debian: "
            "libgssapi-krb5-2; to build gssapi, libkrb5-dev), or do without (zookeeper_auth_file)",
        ) from None


class LibraryContext:
    """One security context with a server."""

    def __init__(self, asked: Kerberos, host: str) -> None:
        import gssapi

        self._asked = asked
        self._server = asked.server_at(host)
        kind = gssapi.NameType.hostbased_service
        named = self._server
        if "/" in self._server:
            kind = gssapi.NameType.kerberos_principal
        self._name = self._told(lambda: gssapi.Name(named, kind))
        self._context: Any = None

    @property
    def is_complete(self) -> bool:
        return self._context is not None and bool(self._context.complete)

    def step(self, said: bytes) -> bytes:
        if self._context is not None:
            return self._told(lambda: self._context.step(said)) or b""
        return self._told(self._first_in_a_folder)

    def _first_in_a_folder(self) -> bytes:
        # in memory if it can be: where nothing else may be written there is this
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="cursorkeeper-kerberos-", dir=memory) as folder:
            return self._first(folder)

    def _first(self, folder: str) -> bytes:
        import gssapi

        asked, mechanism = self._asked, gssapi.MechType.kerberos
        store = None
        if asked.keytab_file:
            # the cache is forgotten with its folder: the context needs it for its first step only
            store = {"client_keytab": asked.keytab_file, "ccache": f"FILE:{folder}/tickets"}
        self._context = gssapi.SecurityContext(
            name=self._name,
            creds=gssapi.Credentials(
                name=gssapi.Name(asked.principal, gssapi.NameType.kerberos_principal),
                usage="initiate",
                mechs=[mechanism],
                store=store,
            ),
            mech=mechanism,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
            usage="initiate",
        )
        return self._context.step() or b""

    def unwrap(self, message: bytes) -> bytes:
        return bytes(self._told(lambda: self._context.unwrap(message).message))

    def wrap(self, content: bytes) -> bytes:
        return bytes(self._told(lambda: self._context.wrap(content, False).message))

    def _told(self, call: Callable[[], T]) -> T:
        """Raises LoginRefused in the place of the library's errors."""
        import gssapi

        try:
            return call()
        except gssapi.exceptions.GSSError as e:
            words = ": ".join(e.get_all_statuses(e.min_code, False)) if e.min_code else str(e)
            code = (e.min_code & 0xFFFFFFFF) - _BASE
            remedy = _REMEDIES.get(code, _ANY_REMEDY)
            if code in _NO_KEY:
                remedy = _TICKET_REMEDY
                if self._asked.keytab_file:
                    words = f"{self._asked.keytab_file} holds no key of it"
            raise LoginRefused(
                f"no login of {self._asked.principal!r} with Kerberos at {self._server!r}: {words}",
                remedy,
            ) from None
        except OSError as e:
            raise LoginRefused(
                f"no login of {self._asked.principal!r} with Kerberos at {self._server!r}: no "
                f"folder for its tickets: {e}",
                f"let the daemon write to {_MEMORY}, or to a folder that TMPDIR names",
            ) from None
        except Exception as e:
            raise LoginRefused(
                f"no login of {self._asked.principal!r} with Kerberos at {self._server!r}: {e!r}",
                _ANY_REMEDY,
            ) from e
