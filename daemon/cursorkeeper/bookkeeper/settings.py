"""The numbers a gateway client runs with.

Owns: every limit and time of the client, and the relations between them, checked when the value is
made.
"""

from __future__ import annotations

from dataclasses import dataclass

from cursorkeeper_client.tls import TlsFiles

ENVELOPE_BYTES = 64 << 10
"""Room that ids and tags need in a message beside its payloads."""

ROLES = ("reader", "writer", "migrator")
"""Who a client is to the gateway: see the contract (`ledgers.proto`) for what each may do."""


@dataclass(frozen=True, slots=True)
class GatewayClientSettings:
    """Settings of one client. Raises ValueError, with the numbers, if they contradict each
    other.
    """

    address: str = "127.0.0.1:7800"
    role: str = "writer"
    token: str = ""
    """Sent as `cursorkeeper-token` if not empty."""
    token_file: str = ""
    """Holds the token of later calls, when it has changed; `token` is what it held before."""
    password: bytes = b""
    """The password of the ledgers that are read and fenced."""
    tls: TlsFiles | None = None
    """Without it the connection is plain text."""
    tls_server_name: str = ""
    """Whose certificate the gateway shows, if it is not that of the host that is dialled."""

    append_batch_entries_max: int = 1024
    append_batch_bytes_max: int = 1 << 20
    """Of one message, or one entry: a message above the gateway's limit would end the stream with
    all its ledgers.
    """
    append_window_entries_max: int = 8192
    append_window_bytes_max: int = 32 << 20
    """Queued plus unanswered, over all ledgers."""
    append_timeout_s: float = 30.0

    start_timeout_s: float = 30.0
    create_timeout_s: float = 15.0
    fence_timeout_s: float = 30.0
    close_timeout_s: float = 30.0
    delete_timeout_s: float = 15.0
    metadata_timeout_s: float = 15.0
    read_chunk_timeout_s: float = 30.0
    """How long each chunk of a read or a list may take."""
    read_timeout_s: float = 900.0
    """How long a whole read or list may take."""
    read_chunk_bytes: int = 1 << 20

    connect_timeout_ms: int = 2_000
    """From the attempt to connect to the gateway's first frame: a busy one takes its time, and
    every attempt begins from nothing.
    """
    stream_back_off_min_ms: int = 50
    stream_back_off_max_ms: int = 1_000
    receive_bytes_max: int = 8 << 20
    keepalive_time_ms: int = 10_000
    keepalive_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(
                f"role is {self.role!r}, must be {', '.join(ROLES[:-1])} or {ROLES[-1]}"
            )
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0:
                raise ValueError(f"{name} is {value}, must be above 0")
        if self.stream_back_off_min_ms > self.stream_back_off_max_ms:
            raise ValueError(
                f"stream_back_off_min_ms {self.stream_back_off_min_ms} is above the maximum "
                f"{self.stream_back_off_max_ms}"
            )
        if self.append_window_bytes_max < self.append_batch_bytes_max:
            raise ValueError(
                f"append_window_bytes_max {self.append_window_bytes_max} is below one batch, "
                f"{self.append_batch_bytes_max}"
            )
        if self.read_chunk_bytes + ENVELOPE_BYTES > self.receive_bytes_max:
            raise ValueError(
                f"read_chunk_bytes {self.read_chunk_bytes} does not fit receive_bytes_max "
                f"{self.receive_bytes_max}"
            )
