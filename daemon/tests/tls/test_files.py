"""Files that cannot be used stop a daemon at its start, by the name of their setting."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cursorkeeper import probe
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.bookkeeper.transport import Service
from cursorkeeper.core.setting import SettingsError
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings, load
from cursorkeeper_client import ClientSettings, tls
from cursorkeeper_client.channels import Dialled
from cursorkeeper_client.tls import TlsError, TlsFiles

HOUR = timedelta(hours=1)


def settings_of(files: TlsFiles, **more: object) -> Settings:
    return Settings.of(
        tls_enabled=True,
        tls_certificate_file_path=files.certificate,
        tls_key_file_path=files.key,
        tls_trust_certs_file_path=files.trust_certs,
        **more,
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_good_files_are_taken(authority: Authority) -> None:
    settings_of(authority.issue("good")).check()


def other_key(authority: Authority) -> Settings:
    return settings_of(
        TlsFiles(authority.issue("one").certificate, authority.issue("other").key, "")
    )


def no_pem(authority: Authority) -> Settings:
    file = authority.folder / "none.pem"
    file.write_text("nothing")
    return settings_of(TlsFiles(str(file), authority.issue("one").key))


def no_authority(authority: Authority) -> Settings:
    file = authority.folder / "none.pem"
    file.write_text("nothing")
    one = authority.issue("one")
    return settings_of(TlsFiles(one.certificate, one.key, str(file)))


WRONG: dict[str, tuple[Callable[[Authority], Settings], str]] = {
    "missing": (
        lambda a: settings_of(TlsFiles("/nowhere/a.pem", "/nowhere/b.pem")),
        "tls_certificate_file_path = '/nowhere/a.pem': No such file",
    ),
    "half": (
        lambda a: settings_of(TlsFiles(a.issue("one").certificate, "")),
        "certificate and key belong together",
    ),
    "nothing": (lambda a: settings_of(TlsFiles()), "tls_enabled: a server needs a certificate"),
    "other key": (other_key, "it is not the key of"),
    "no certificate": (no_pem, "no certificate and key in PEM"),
    "no authority": (no_authority, "it holds no certificate"),
    "encrypted": (
        lambda a: settings_of(a.issue("one", password=b"secret")),
        "the key is encrypted",
    ),
    "expired": (
        lambda a: settings_of(a.issue("one", begins=-2 * HOUR, ends=-HOUR)),
        "it is valid from",
    ),
    "not yet valid": (
        lambda a: settings_of(a.issue("one", begins=HOUR, ends=2 * HOUR)),
        "it is valid from",
    ),
    "asked for certificates of nobody": (
        lambda a: settings_of(
            TlsFiles(a.issue("one").certificate, a.issue("one").key),
            tls_require_trusted_client_cert_on_connect=True,
        ),
        "tls_require_trusted_client_cert_on_connect: no authority is named",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_used_is_named(authority: Authority, what: str) -> None:
    made, words = WRONG[what]
    with pytest.raises(SettingsError) as caught:
        made(authority).check()
    assert words in str(caught.value) and caught.value.remedy, caught.value


def test_files_are_not_looked_at_where_nothing_is_encrypted() -> None:
    Settings.of(tls_certificate_file_path="/nowhere").check()


def test_a_broker_conf_says_where_they_are_and_not_that_they_are_used(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "tlsCertificateFilePath=/c.pem\ntlsKeyFilePath=/k.pem\ntlsTrustCertsFilePath=/t.pem\n"
        "tlsRequireTrustedClientCertOnConnect=true\ntlsCertRefreshCheckDurationSec=60\n"
    )
    tls = load(broker_conf=conf, environment={}).tls
    assert (tls.files, tls.tls_enabled) == (TlsFiles("/c.pem", "/k.pem", "/t.pem"), False)
    assert tls.tls_require_trusted_client_cert_on_connect
    assert tls.tls_cert_refresh_check_duration_sec == 60


def test_a_source_is_told_before_it_dials() -> None:
    with pytest.raises(TlsError, match="What to do: make it readable"):
        ClientSettings(tls=TlsFiles(trust_certs="/nowhere"))


async def test_a_gateway_keeps_its_connection_until_appends_begin_anew(
    authority: Authority,
) -> None:
    """Behind its address may be another gateway, which has no handle of any ledger."""
    files = authority.issue("daemon")
    service = Service(GatewayClientSettings(address="127.0.0.1:1", tls=files))
    first = service.stub()
    authority.issue("daemon")
    assert service.stub() is first
    second = service.renewed()
    assert second is not first and service.stub() is second and service.renewed() is second
    shutil.copy(authority.issue("spare").key, files.key)
    assert service.renewed() is second, "half of them are written"
    await service.close()


async def test_what_is_under_way_goes_on_over_the_connection_before(authority: Authority) -> None:
    files = authority.issue("daemon")

    async def answer(request: bytes, context: Any) -> bytes:
        began.set()
        await going_on.wait()
        return request

    began, going_on = asyncio.Event(), asyncio.Event()
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("a.B", {"Call": method}),)
    )
    port = server.add_secure_port("127.0.0.1:0", files.server_credentials(refresh_s=0.01))
    await server.start()
    dialled = Dialled(f"127.0.0.1:{port}", (), files, refresh_s=0.0)
    calls = []
    for number in range(3):
        calls.append(
            asyncio.ensure_future(
                dialled.renewed().unary_unary("/a.B/Call")(bytes([number]), timeout=60)
            )
        )
        await began.wait()
        began.clear()
        authority.issue("daemon")
    going_on.set()
    assert await asyncio.gather(*calls) == [b"\0", b"\1", b"\2"]
    going_on.clear()
    last = asyncio.ensure_future(dialled.channel().unary_unary("/a.B/Call")(b"\3", timeout=60))
    await began.wait()
    authority.issue("daemon")
    assert dialled.renewed() is not None
    await dialled.close()
    with pytest.raises((asyncio.CancelledError, grpc.RpcError)):
        await last
    await server.stop(0)


async def test_grpc_is_given_other_files_once_and_not_while_somebody_begins(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it shows is freed then, also under a handshake that is about to use it (SIGSEGV)."""
    files, given = authority.issue("daemon"), list[float]()
    dynamic = grpc.dynamic_ssl_server_credentials

    def watched(first: Any, fetch: Callable[[], Any], **more: Any) -> Any:
        def asked() -> Any:
            began_s = time.monotonic()
            if (found := fetch()) is not None:
                given.append(time.monotonic() - began_s)
            return found

        return dynamic(first, asked, **more)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", watched)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", files.server_credentials(refresh_s=0.0))
    await server.start()

    async def connects() -> None:
        own = (("grpc.use_local_subchannel_pool", 1),)
        credentials = files.channel_credentials()
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, own) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as told:
                await channel.unary_unary("/a.B/Call")(b"", timeout=60)
        assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED

    try:
        for renewals in range(3):
            await asyncio.gather(*(connects() for _ in range(5)))
            assert len(given) == renewals
            authority.issue("daemon")
    finally:
        await server.stop(0)
    assert min(given) >= tls._BEFORE_RENEWAL_S


def test_a_probe_with_half_a_pair_is_told() -> None:
    """gRPC would end the process."""
    with pytest.raises(ProblemError, match="belong together"):
        probe.ask("127.0.0.1:1", "", 1, probe.Shown(certificate="/a.pem"))
