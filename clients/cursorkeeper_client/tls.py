"""TLS of gRPC connections, from PEM files: serves whoever runs any part of the system in a cluster
where nothing is plain text.

Owns: reading the files, what is said of those that cannot be used, and when they are read again.
Invariants: a client reads them for every new channel, a server when they have changed; files that
were changed and do not fit each other leave what was read before in use.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc

from cursorkeeper_client.errors import CursorKeeperError

T = TypeVar("T")
_BEFORE_RENEWAL_S = 0.1
"""What a handshake that has begun needs, and much more, to have got hold of what is shown to it."""
_AGAIN = "write all files, and look again"


class TlsError(CursorKeeperError, ValueError):
    """Files that cannot be used. `file` is one of them, and `reason` what is wrong with it."""

    def __init__(self, file: str, reason: str, remedy: str) -> None:
        super().__init__(f"{file}: {reason}", remedy)
        self.file, self.reason = file, reason


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; empty: none."""

    certificate: str = ""
    """The own certificate, and those between it and its authority."""
    key: str = ""
    trust_certs: str = ""
    """Authorities whose certificates are believed; without it a client believes the system's."""

    def check(self, *, of_server: bool = False) -> None:
        """Raises TlsError unless the files can be read, and key and certificate belong together."""
        if bool(self.certificate) != bool(self.key):
            there = self.certificate or self.key
            raise TlsError(there, "certificate and key belong together", "name both files")
        if of_server and not self.certificate:
            raise TlsError("TLS", "a server needs a certificate", "name certificate and key")
        for file in self._named():
            _read(file)
        if self.certificate:
            _check_pair(self.certificate, self.key)
        if self.trust_certs:
            try:
                ssl.create_default_context(cafile=self.trust_certs)
            except (OSError, ValueError) as e:
                why = getattr(e, "reason", None) or e
                raise TlsError(
                    self.trust_certs, f"it holds no certificate ({why})", "name a PEM file"
                ) from None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Of a client, from the files as they are now. Raises TlsError."""
        self.check()
        return grpc.ssl_channel_credentials(
            _read(self.trust_certs) if self.trust_certs else None,
            _read(self.key) if self.key else None,
            _read(self.certificate) if self.certificate else None,
        )

    def client_context(self) -> ssl.SSLContext:
        """Of a client that is not gRPC's, from the files as they are now. Raises TlsError."""
        self.check()
        try:
            made = ssl.create_default_context(cafile=self.trust_certs or None)
            if self.certificate:
                made.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as e:
            there = self.certificate or self.trust_certs
            raise TlsError(there, f"it cannot be used: {e}", _AGAIN) from None
        return made

    def server_credentials(
        self,
        *,
        is_client_asked: bool = False,
        refresh_s: float = 300.0,
        on_problem: Callable[[TlsError], None] = lambda _error: None,
    ) -> grpc.ServerCredentials:
        """Of a server, from the files as they are when somebody connects; looked at every
        `refresh_s`. To be given to one port, once. `is_client_asked`: who has no certificate of
        `trust_certs` is refused. Raises TlsError.
        """
        if is_client_asked and not self.trust_certs:
            raise TlsError(
                "TLS",
                "clients must prove who they are, and no authority is named",
                "name the file of the certificates that are believed",
            )
        shown = _ShownByGrpc(_Renewed(self, refresh_s, on_problem, _grpc_configuration))
        return grpc.dynamic_ssl_server_credentials(
            shown.first, shown.changed, require_client_authentication=is_client_asked
        )

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """It differs when a file was changed or replaced. Raises TlsError."""
        try:
            looked = [Path(file).stat() for file in self._named()]
        except OSError as e:
            raise _unreadable(str(e.filename), e) from None
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in looked)

    def _named(self) -> list[str]:
        return [file for file in (self.certificate, self.key, self.trust_certs) if file]


class _Renewed(Generic[T]):
    """What a server shows, read again when its files have changed. Asked in any thread."""

    def __init__(
        self,
        files: TlsFiles,
        refresh_s: float,
        on_problem: Callable[[TlsError], None],
        read: Callable[[TlsFiles], T],
    ) -> None:
        self._files, self._refresh_s = files, refresh_s
        self._on_problem, self._read = on_problem, read
        self._lock = threading.Lock()
        self._look_at_s = time.monotonic() + refresh_s
        self._stamp = files.stamp()
        self._shown = self._checked(self._stamp)

    def now(self) -> T:
        with self._lock:
            if time.monotonic() >= self._look_at_s:
                self._look_at_s = time.monotonic() + self._refresh_s
                try:
                    if (stamp := self._files.stamp()) != self._stamp:
                        self._shown, self._stamp = self._checked(stamp), stamp
                except TlsError as e:
                    self._on_problem(e)
            return self._shown

    def _checked(self, stamp: object) -> T:
        """What the files hold, if they stayed as they were meanwhile. Raises TlsError."""
        self._files.check(of_server=True)
        try:
            read = self._read(self._files)
        except (OSError, ValueError) as e:
            raise TlsError(self._files.certificate, f"it cannot be used: {e}", _AGAIN) from None
        if self._files.stamp() != stamp:
            raise TlsError(self._files.certificate, "it is being written", _AGAIN)
        return read


class _ShownByGrpc:
    """What gRPC asks for at each connection. It frees what it shows as soon as it is given another,
    also if a handshake is just about to use it, and the process ends with SIGSEGV (grpc issue
    36693). So it is given one only if the files have changed, and a while after it asked, in which
    handshakes that have begun get past that: gRPC begins no other one of this port meanwhile.
    """

    def __init__(self, kept: _Renewed[Any]) -> None:
        self._kept = kept
        self.first = self._last = kept.now()

    def changed(self) -> Any:
        """None: as before."""
        now = self._kept.now()
        if now is self._last:
            return None
        time.sleep(_BEFORE_RENEWAL_S)
        self._last = now
        return now


class RenewedContext:
    """Of a server that is not gRPC's. It asks nobody for a certificate."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        refresh_s: float,
        on_problem: Callable[[TlsError], None] = lambda _error: None,
    ) -> None:
        def made(files: TlsFiles) -> ssl.SSLContext:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(files.certificate, files.key, _no_password(files.key))
            return context

        self._kept = _Renewed(files, refresh_s, on_problem, made)

    def context(self) -> ssl.SSLContext:
        """What the next connection is to be shown."""
        return self._kept.now()


def _grpc_configuration(files: TlsFiles) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(_read(files.key), _read(files.certificate))],
        _read(files.trust_certs) if files.trust_certs else None,
    )


def _check_pair(certificate: str, key: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, _no_password(key))
    except TlsError:
        raise
    except (OSError, ValueError) as e:
        reason = getattr(e, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                key, f"it is not the key of {certificate}", "name the files that were made together"
            ) from None
        raise TlsError(
            certificate,
            f"it and {key} are no certificate and key in PEM ({reason or e})",
            "name PEM files",
        ) from None


def _no_password(key: str) -> Callable[[], str]:
    def asked() -> str:
        raise TlsError(key, "the key is encrypted", "store it without a password")

    return asked


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as e:
        raise _unreadable(file, e) from None


def _unreadable(file: str, error: OSError) -> TlsError:
    return TlsError(
        file, error.strerror or str(error), "make it readable for this user, or name another"
    )
