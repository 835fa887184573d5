"""The systems that commands talk to, opened and closed in order. Commands take the ports, so that
fakes fit too.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cursorkeeper.access.secret_files import read_secret, read_token
from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.problems import Kind, ProblemError
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.settings import Settings, SettingsError, Systems
from cursorkeeper.zookeeper import acl as access
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.kerberos_library import require_library
from cursorkeeper.zookeeper.port import ZooKeeper
from cursorkeeper.zookeeper.settings import Kerberos, ZooKeeperSettings, parse_servers

START_TIMEOUT_S = 10.0
"""A person waits: shorter than the daemon's."""
TELL_AFTER_S = 3.0
"""So long a command is silent about what it waits for."""


@dataclass(frozen=True, slots=True)
class Ports:
    zookeeper: ZooKeeper
    ledgers: LedgerStore
    footers: FooterStore


def _authentication(systems: Systems) -> tuple[str, bytes] | None:
    file = systems.zookeeper_auth_file
    if not file:
        return None
    scheme, _, secret = read_secret(file, "zookeeper_auth_file", "user").partition(b":")
    if scheme not in (b"digest", b"sasl") or b":" not in secret:
        raise SettingsError(
            f"zookeeper_auth_file = {file!r}: it is no user",
            "write digest:USER:PASSWORD into it, or sasl:USER:PASSWORD for a login with DIGEST-MD5",
        )
    try:
        secret.decode()
    except UnicodeDecodeError:
        raise SettingsError(
            f"zookeeper_auth_file = {file!r}: it is no text", "write it in UTF-8"
        ) from None
    return scheme.decode(), secret


def _kerberos(systems: Systems) -> Kerberos | None:
    """Raises SettingsError, also where there is no library of Kerberos."""
    if not systems.zookeeper_sasl_principal:
        return None
    require_library()
    keytab = systems.zookeeper_sasl_keytab_file
    if keytab:
        read_secret(keytab, "zookeeper_sasl_keytab_file", "key")
    return Kerberos(
        principal=systems.zookeeper_sasl_principal,
        keytab_file=str(Path(keytab).absolute()) if keytab else "",
        service_name=systems.zookeeper_sasl_service_name,
        user=systems.zookeeper_sasl_user,
    )


def _acl(systems: Systems, own: access.User | None) -> access.Acl:
    """Of nodes that are made: never one that shuts their maker out."""
    wanted = access.parse(systems.zookeeper_acl)
    if wanted in (access.OPEN, access.CREATOR):
        return wanted
    if not access.has_all(wanted, own):
        named = ", ".join(one.who for one in wanted)
        is_other = own is not None and own.who in {one.who for one in wanted}
        if systems.zookeeper_sasl_principal:
            said = f"zookeeper_sasl_principal is the user {own.who if own else ''!r}"
        else:
            said = (
                f"zookeeper_auth_file = {systems.zookeeper_auth_file!r} holds the user "
                f"{own.who if own else ''!r}"
            )
        raise SettingsError(
            f"zookeeper_acl is for {named}, and {said}"
            f"{', with another password than the hash is of' if is_other else ''}: nodes would be "
            f"shut to who makes them",
            f"add this user: {':'.join(own)}" if own else "set zookeeper_auth_file",
        )
    return wanted


def user_of(systems: Systems) -> access.User | None:
    """Who this program is to ZooKeeper, if it is somebody. Raises SettingsError."""
    return _user(_authentication(systems), _kerberos(systems))


def _user(
    authentication: tuple[str, bytes] | None, kerberos: Kerberos | None
) -> access.User | None:
    if kerberos is not None:
        return kerberos.who
    return None if authentication is None else access.user_of(*authentication)


def zookeeper_settings(
    systems: Systems, start_timeout_s: float = START_TIMEOUT_S
) -> ZooKeeperSettings:
    """Raises SettingsError."""
    authentication, kerberos = _authentication(systems), _kerberos(systems)
    acl = _acl(systems, _user(authentication, kerberos))
    try:
        servers, chroot = parse_servers(systems.zookeeper)
        return ZooKeeperSettings(
            servers=servers,
            chroot=chroot or "/",
            session_timeout_ms=systems.zookeeper_session_timeout_ms,
            start_timeout_s=start_timeout_s,
            jute_maxbuffer_bytes=systems.zookeeper_jute_maxbuffer_bytes,
            tls=systems.of_zookeeper,
            tls_server_name=systems.zookeeper_tls_server_name,
            authentication=authentication,
            kerberos=kerberos,
            acl=acl,
        )
    except ValueError as e:
        raise SettingsError(
            f"zookeeper = {systems.zookeeper!r}: {e}", "write host:port[,host:port...][/chroot]"
        ) from e


def gateway_settings(
    settings: Settings, role: str, start_timeout_s: float = START_TIMEOUT_S
) -> GatewayClientSettings:
    """Raises SettingsError."""
    systems = settings.systems
    host, colon, port = systems.gateway.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise SettingsError(f"gateway = {systems.gateway!r} is not an address", "write host:port")
    return GatewayClientSettings(
        address=systems.gateway,
        role=role,
        token=read_token(systems, "gateway_token_file").decode(),
        token_file=systems.gateway_token_file,
        password=settings.ledgers.password.encode(),
        tls=settings.tls.of_gateway,
        tls_server_name=settings.tls.gateway_tls_server_name,
        start_timeout_s=start_timeout_s,
        append_window_entries_max=8 * settings.limits.daemon_appends_in_flight_max,
        append_window_bytes_max=settings.append_window_bytes,
    )


def footer_store(zookeeper: ZooKeeper, settings: Settings) -> FooterStore:
    return FooterStore(zookeeper, settings.encode, root=settings.systems.root)


async def _reached(start: Awaitable[None], what: str) -> None:
    """`start`; a line on standard error says what is waited for, when it takes long."""
    loop = asyncio.get_running_loop()
    telling = loop.call_later(TELL_AFTER_S, sys.stderr.write, f"waiting for {what}\n")
    try:
        await start
    finally:
        telling.cancel()


@asynccontextmanager
async def zookeeper(
    systems: Systems, start_timeout_s: float = START_TIMEOUT_S
) -> AsyncIterator[ZooKeeper]:
    """Raises ProblemError if it does not answer."""
    from cursorkeeper.zookeeper.client import ZooKeeperClient

    client = ZooKeeperClient(zookeeper_settings(systems, start_timeout_s))
    try:
        try:
            await _reached(client.start(), f"ZooKeeper at {systems.zookeeper}")
        except zk.ZooKeeperError as e:
            raise ProblemError(
                f"ZooKeeper at {systems.zookeeper} does not answer: {e.message or e}",
                f"{e.remedy}; --zookeeper names another one",
                Kind.AWAY,
            ) from e
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def gateway(
    settings: Settings, role: str, start_timeout_s: float = START_TIMEOUT_S
) -> AsyncIterator[LedgerStore]:
    """Raises ProblemError if it does not answer. A reader cannot fence, write or delete."""
    from cursorkeeper.bookkeeper.client import GatewayClient

    client = GatewayClient(gateway_settings(settings, role, start_timeout_s))
    try:
        try:
            await _reached(client.start(), f"the ledger gateway at {settings.systems.gateway}")
        except bk.GatewayRetry as e:
            raise ProblemError(
                f"the ledger gateway at {settings.systems.gateway} does not answer: "
                f"{e.message or e.reason}",
                "start it, or name another one with --gateway; its own log says more",
                Kind.AWAY,
            ) from e
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def ports(settings: Settings, role: str = "reader") -> AsyncIterator[Ports]:
    """Footers and ledgers, connected. Raises ProblemError, SettingsError."""
    gateway_settings(settings, role)  # a wrong setting is told before anything is waited for
    async with zookeeper(settings.systems) as keeper, gateway(settings, role) as ledgers:
        yield Ports(keeper, ledgers, footer_store(keeper, settings))
