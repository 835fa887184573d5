"""The numbers that a client runs with, each limit and time, checked when the value is made."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from cursorkeeper_client.back_off import BackOff
from cursorkeeper_client.errors import ConnectionLost
from cursorkeeper_client.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of one client. Raises ValueError, with the numbers, if they contradict each
    other.
    """

    name: str = "python-source"
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)
    """It differs in every process, so that the daemon can tell a successor from a program that
    came back.
    """
    credentials: bytes = field(default=b"", repr=False)
    """The token that the daemon asks for, if it does, without the newline."""
    token_file: str = ""
    """Where the token is, instead: read for every connection and question, so that it can be
    renewed.
    """

    tls: TlsFiles | None = None
    """Without it the connection is plain text. The files are read for every connection."""
    tls_server_name: str = ""
    """Whose certificate the daemon shows, if it is not that of the host that is dialled."""

    connect_timeout_s: float = 30.0
    """How long a connection to the daemon is waited for."""
    open_timeout_s: float = 300.0
    """How long a cursor's state is waited for, once there is a connection; a large one takes its
    time.
    """
    answer_timeout_s: float = 120.0
    """Of a reset, a close, a delete, of waiting for credit and for durability."""

    message_bytes_max: int = (4 << 20) - (64 << 10)
    """Bytes of one batch of acks; the keeper takes 4 MiB."""
    receive_bytes_max: int = 16 << 20
    outgoing_bytes_max: int = 64 << 20
    """Handed over but not yet taken by the network, over all cursors."""

    back_off_min_ms: int = 100
    back_off_max_ms: int = 5_000
    unconfirmed_bytes_max: int = 64 << 20
    """What a cursor keeps to send again; then acks wait."""

    keepalive_time_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000

    def token(self) -> bytes:
        """As it is now; empty: none. Raises ConnectionLost for a file that cannot be read."""
        if not self.token_file:
            return self.credentials
        try:
            token = Path(self.token_file).read_bytes().strip()
        except OSError as e:
            raise ConnectionLost(
                f"token_file {self.token_file}: {e.strerror or e}",
                "make it readable for this user, or name another",
            ) from None
        if not token:
            raise ConnectionLost(f"token_file {self.token_file} is empty", "write a token into it")
        return token

    def __post_init__(self) -> None:
        if not isinstance(self.credentials, bytes):
            raise TypeError(f"credentials are bytes, and this is {type(self.credentials).__name__}")
        if self.token_file and self.credentials:
            raise ValueError("credentials and token_file are both given: leave one out")
        if self.tls is not None:
            self.tls.check()
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise ValueError(f"{name} is {value}, must be above 0")
        if self.back_off_min_ms > self.back_off_max_ms:
            raise ValueError(
                f"back_off_min_ms {self.back_off_min_ms} is above back_off_max_ms "
                f"{self.back_off_max_ms}"
            )
        for name in ("outgoing_bytes_max", "unconfirmed_bytes_max"):
            if getattr(self, name) < self.message_bytes_max:
                raise ValueError(
                    f"{name} {getattr(self, name)} does not hold one message of "
                    f"{self.message_bytes_max}"
                )

    def back_off(self, rng: random.Random) -> BackOff:
        return BackOff(self.back_off_min_ms / 1000, self.back_off_max_ms / 1000, rng)
