"""The numbers a client runs with.

Owns every limit and time of the client and the relations between them, checked when the value is
made. Does not own components (clock, random source): those are passed to the client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cursorkeeper.zookeeper.acl import CREATOR, OPEN, SASL, Acl, User
from cursorkeeper.zookeeper.paths import check_path
from cursorkeeper_client.tls import TlsFiles

JUTE_MAXBUFFER_BYTES = 0xFFFFF
"""ZooKeeper's default jute.maxbuffer."""

_FRAME_MARGIN_BYTES = 1024
"""A server copies the request into its transaction log and other clients read it back with a stat:
both add bytes of their own.
"""

_PORT = 2181


_PRINCIPAL = re.compile(r"[^@/:,\s]+(/[^@/:,\s]+)?@[^@/:,\s]+")


@dataclass(frozen=True, slots=True)
class Kerberos:
    """A login with Kerberos. ValueError for what is no principal."""

    principal: str
    """NAME@REALM, or NAME/HOST@REALM."""
    keytab_file: str = ""
    """Without it: the tickets, or the keytab, of the process's environment."""
    service_name: str = "zookeeper"
    """Of the servers, which are SERVICE/HOST; with a slash in it one principal that all have."""
    user: str = ""
    """What servers call the principal, if they cut it."""

    def __post_init__(self) -> None:
        if not _PRINCIPAL.fullmatch(self.principal):
            raise ValueError(f"{self.principal!r} is no principal: write NAME@REALM")

    @property
    def who(self) -> User:
        """As it stands in lists of rights."""
        return User(SASL, self.user or self.principal)

    def server_at(self, host: str) -> str:
        """As the library of Kerberos takes it: SERVICE@HOST, or a principal."""
        return self.service_name if "/" in self.service_name else f"{self.service_name}@{host}"


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Settings of one client. ValueError, with the numbers, if they contradict each other."""

    servers: tuple[tuple[str, int], ...] = (("127.0.0.1", _PORT),)
    chroot: str = "/"
    session_timeout_ms: int = 30_000
    """Wanted; the server answers what it gives (usually 2 to 20 ticks of 2 s)."""
    tls: TlsFiles | None = None
    """Without it connections are plain text. The files are read for every connection."""
    tls_server_name: str = ""
    """Whose certificate servers show, if it is not that of the host that is dialled."""
    authentication: tuple[str, bytes] | None = None
    """Scheme and secret, as `digest` or `sasl` and `user:password`: said on every connection."""
    kerberos: Kerberos | None = None
    """A login on every connection, in the place of `authentication`."""
    acl: Acl = OPEN
    """Who may touch nodes that are made."""
    start_timeout_s: float = 30.0
    request_timeout_s: float = 10.0
    """Per request, from the call to the answer, the wait for a connection included."""
    close_timeout_s: float = 2.0
    back_off_min_ms: int = 50
    back_off_max_ms: int = 1_000
    requests_in_flight_max: int = 1_000
    request_bytes_in_flight_max: int = 16 * 1024 * 1024
    jute_maxbuffer_bytes: int = JUTE_MAXBUFFER_BYTES
    """What the servers have. Above it they close the connection, so larger requests are refused
    here.
    """
    reply_bytes_max: int = 256 * 1024 * 1024
    """A longer answer ends the connection. Large because the list of a node's children has no other
    bound.
    """
    set_watches_bytes_max: int = 128 * 1024
    multi_read_paths_max: int = 200
    multi_read_reply_bytes: int = 4 * 1024 * 1024
    """Aim, from the mean size seen so far, not a limit: the size of a node is known only when it is
    read.
    """

    def __post_init__(self) -> None:
        if not self.servers:
            raise ValueError("no ZooKeeper servers given")
        check_path(self.chroot)
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name} is {value}, must be above 0")
        if self.authentication is not None and self.kerberos is not None:
            raise ValueError("a user with a password and one with Kerberos: say one of them")
        if self.acl == CREATOR and self.authentication is None and self.kerberos is None:
            raise ValueError("nodes are to be their creator's, and it is nobody: authenticate")
        if self.back_off_min_ms > self.back_off_max_ms:
            raise ValueError(
                f"back_off_min_ms {self.back_off_min_ms} is above back_off_max_ms "
                f"{self.back_off_max_ms}"
            )
        if self.close_timeout_s > 2.0:
            raise ValueError(f"close_timeout_s is {self.close_timeout_s}, the port promises 2")
        if self.request_bytes_max < 1024:
            raise ValueError(
                f"jute_maxbuffer_bytes {self.jute_maxbuffer_bytes} leaves no room for requests"
            )
        if self.set_watches_bytes_max > self.request_bytes_max:
            raise ValueError(
                f"set_watches_bytes_max {self.set_watches_bytes_max} is above "
                f"{self.request_bytes_max}"
            )
        if self.request_bytes_in_flight_max < self.request_bytes_max:
            raise ValueError(
                f"request_bytes_in_flight_max {self.request_bytes_in_flight_max} is below "
                f"{self.request_bytes_max}"
            )

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password of a login with DIGEST-MD5, if there is to be one."""
        if self.authentication is None or self.authentication[0] != SASL:
            return None
        user, _, password = self.authentication[1].decode().partition(":")
        return user, password

    @property
    def request_bytes_max(self) -> int:
        return self.jute_maxbuffer_bytes - _FRAME_MARGIN_BYTES


def parse_servers(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Servers and chroot of a connect string, `host:port,[ipv6]:port,host/chroot`. ValueError if it
    makes no sense.
    """
    hosts, slash, chroot = text.partition("/")
    servers = []
    for part in hosts.split(","):
        part = part.strip()
        host, colon, port = part.rpartition(":")
        if not colon or (part.startswith("[") and part.endswith("]")):
            host, port = part, str(_PORT)
        if part.startswith("["):
            host = host.strip("[]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"{part!r} in {text!r} is not host:port")
        servers.append((host, int(port)))
    return tuple(servers), check_path(slash + chroot) if chroot else "/"
