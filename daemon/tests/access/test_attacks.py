"""Every call of the daemon as everybody who may try it: the page's table is what happens."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cursorkeeper.access import identities_file, rights
from cursorkeeper.access.callers import Callers, Table
from cursorkeeper.access.signed_tokens import of_settings
from cursorkeeper.demo.certificates import Authority
from cursorkeeper.settings import SettingsError
from cursorkeeper_client import (
    Client,
    ClientSettings,
    ConnectionRefused,
    CursorKeeperError,
    LayoutItem,
    LayoutState,
    NotAllowed,
)
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client._proto import acks_pb2_grpc as rpc
from cursorkeeper_client.channels import open_channel
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.access.identities import AUDIENCE, OTHER, OWN, Caller, Cast, digest
from daemon.tests.stream.served import ServedKeeper

PAGE = Path(__file__).parents[3] / "docs/run/rights.md"
SUB = "s"
LAYOUT = (LayoutItem(7, LayoutState.OPEN),)
STATUS = {
    grpc.StatusCode.UNAUTHENTICATED: "unknown",
    grpc.StatusCode.PERMISSION_DENIED: "denied",
}
REF = pb.CursorRef(topic=OWN, subscription=SUB)
Asked = Callable[[Any, Any], Any]
CALLS: dict[str, Asked] = {
    "Get": lambda store, said: store.Get(pb.GetRequest(cursor=REF), metadata=said),
    "AckState": lambda store, said: store.AckState(
        pb.AckStateRequest(cursor=REF, ledger_id=7, entries=[1]), metadata=said
    ),
    "Export": lambda store, said: store.Export(pb.ExportRequest(cursor=REF), metadata=said).read(),
    "DeleteTopic": lambda store, said: store.DeleteTopic(
        pb.DeleteTopicRequest(topic=OWN), metadata=said
    ).read(),
}


def table() -> dict[str, dict[str, str]]:
    """The page's: who calls -> the call -> what comes of it."""
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    begin = next(at for at, row in enumerate(rows) if row[0] == "who calls")
    calls = rows[begin][1:]
    found = {}
    for row in rows[begin + 2 :]:
        if len(row) != len(calls) + 1:
            break
        found[row[0]] = dict(zip(calls, row[1:], strict=True))
    return found


TABLE = table()


def test_the_page_names_every_call_there_is() -> None:
    named = {f"{rights.STORE}{call}" for call in next(iter(TABLE.values()))} - {
        f"{rights.STORE}Publish"
    }
    services = pb.DESCRIPTOR.services_by_name
    there = {
        f"/{service.full_name}/{method.name}"
        for service in services.values()
        for method in service.methods
        if service.name != "AckSource"  # of sources, which daemons dial
    }
    assert named | {rights.PUBLISH} == there == set(rights.RIGHTS)


@pytest.fixture
def cast(tmp_path: Path) -> Cast:
    made = Cast(tmp_path)
    assert set(made.callers) == set(TABLE)
    return made


def callers_of(cast: Cast) -> Callers:
    signed = of_settings("", f"file://{cast.key_file}", "sub", "aud", AUDIENCE)

    def read() -> Table:
        return Table(identities_file.read(str(cast.file)), signed, "send a token")

    return Callers(read(), read, lambda: cast.file.stat().st_ino, cast.file.stat().st_ino)


@asynccontextmanager
async def served(cast: Cast, *, asks_for_certificates: bool) -> AsyncIterator[ServedKeeper]:
    keeper = ServedKeeper()
    keeper.callers = callers_of(cast)
    keeper.server_credentials = cast.authority.issue("keeper").server_credentials(
        is_client_asked=asks_for_certificates
    )
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.kill()


def settings(caller: Caller) -> ClientSettings:
    return ClientSettings(
        credentials=caller.token.encode(), tls=caller.files, tls_server_name="keeper"
    )


async def publish(keeper: ServedKeeper, caller: Caller, topic: str) -> str:
    """What comes of opening a cursor and acking."""
    async with Client(keeper.address, settings(caller)) as client:
        cursor = client.cursor(topic, SUB, layout=LAYOUT)
        try:
            await cursor.opened()
            await cursor.ack(7, 3)
            await cursor.durable()
            await cursor.close()
        except NotAllowed:
            return "denied"
        except ConnectionRefused as e:
            return "unknown" if "UNAUTHENTICATED" in str(e) else "denied"
        return "yes"


async def ask(keeper: ServedKeeper, caller: Caller, call: str) -> str:
    said = (("authorization", f"Bearer {caller.token}"),) if caller.token else ()
    async with open_channel(keeper.address, [], caller.files, "keeper") as channel:
        store = rpc.CursorStoreStub(channel)
        try:
            if call == "List":
                listed = [
                    info.cursor.topic
                    async for info in store.List(pb.ListRequest(stored=True), metadata=said)
                ]
                return "yes" if OWN in listed else "denied"
            await CALLS[call](store, said)
        except grpc.aio.AioRpcError as e:
            return STATUS.get(e.code(), "yes" if e.code() is grpc.StatusCode.NOT_FOUND else str(e))
        return "yes"


async def prepared(keeper: ServedKeeper, owner: Caller) -> Any:
    """The owner's cursor, open, and everybody's questions about it."""
    client = Client(keeper.address, settings(owner))
    await client.__aenter__()
    await client.cursor(OWN, SUB, layout=LAYOUT).opened()
    return client


@pytest.mark.parametrize("asks_for_certificates", [True, False])
async def test_the_table_is_what_happens(cast: Cast, asks_for_certificates: bool) -> None:
    async with (
        asyncio.timeout(120),
        served(cast, asks_for_certificates=asks_for_certificates) as keeper,
    ):
        plain = cast.callers["a certificate that no identity names"].files
        owner = cast.callers["source, by token"]
        if asks_for_certificates:
            owner = cast.callers["source, by certificate"]
        holding = await prepared(keeper, owner)
        found: dict[str, dict[str, str]] = {}
        for row, caller in cast.callers.items():
            has_certificate = bool(caller.files.certificate)
            if asks_for_certificates and not has_certificate:
                if not caller.token:
                    continue
                caller = Caller(plain, caller.token)  # else there is no connection
            elif has_certificate and not asks_for_certificates:
                continue  # nobody looks at it
            found[row] = {call: await ask(keeper, caller, call) for call in ("Get", "List")}
            for call in ("AckState", "Export"):
                found[row][call] = await ask(keeper, caller, call)
            if TABLE[row]["DeleteTopic"] != "yes":  # it would take the cursor away from the others
                found[row]["DeleteTopic"] = await ask(keeper, caller, "DeleteTopic")
            found[row]["Publish"] = await publish(keeper, caller, f"{OWN}-of-{len(found)}")
        await holding.__aexit__(None, None, None)
        wanted = {row: {call: TABLE[row][call] for call in calls} for row, calls in found.items()}
        assert found == wanted
        assert len(found) >= (len(TABLE) - 1 if asks_for_certificates else len(TABLE) - 3)
        for row in [row for row, calls in TABLE.items() if calls["DeleteTopic"] == "yes"]:
            if row in found:
                caller = cast.callers[row]
                if asks_for_certificates and not caller.files.certificate:
                    caller = Caller(plain, caller.token)
                assert await ask(keeper, caller, "DeleteTopic") == "yes", row


async def test_strangers_certificates_get_no_connection(cast: Cast, tmp_path: Path) -> None:
    strangers = Authority(tmp_path / "strangers").issue("source")
    expired = cast.authority.issue("late", ends=-timedelta(hours=1))
    trust = str(cast.authority.trust)
    async with asyncio.timeout(60), served(cast, asks_for_certificates=True) as keeper:
        for files in (
            TlsFiles(strangers.certificate, strangers.key, trust),
            TlsFiles(expired.certificate, expired.key, trust),
            TlsFiles("", "", trust),
        ):
            async with open_channel(keeper.address, [], files, "keeper") as channel:
                said = (("authorization", "Bearer token of source"),)
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await rpc.CursorStoreStub(channel).Get(
                        pb.GetRequest(cursor=REF), metadata=said, timeout=20
                    )
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_prefix_does_not_reach_its_neighbours(cast: Cast) -> None:
    source = cast.callers["source, by token"]
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        for topic, comes in (
            ("persistent://acme/ns/any", "yes"),
            ("persistent://acme-evil/ns/topic", "denied"),
            ("non-persistent://acme/ns/topic", "denied"),
            (OTHER, "denied"),
        ):
            assert await publish(keeper, source, topic) == comes, topic
        assert keeper.keeper is not None
        topics = {name.topic for name in keeper.keeper.cursors}
        assert topics <= {"persistent://acme/ns/any"}


async def test_nobody_passes_for_a_worker(cast: Cast) -> None:
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        trust = TlsFiles("", "", str(cast.authority.trust))
        async with open_channel(keeper.address, [], trust, "keeper") as channel:
            for secret in ("", "guessed"):
                with pytest.raises(grpc.aio.AioRpcError) as denied:
                    await rpc.CursorStoreStub(channel).Get(
                        pb.GetRequest(cursor=REF),
                        metadata=(
                            ("cursorkeeper-worker", "1"),
                            ("cursorkeeper-worker-secret", secret),
                        ),
                    )
                assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_two_tokens_at_once_are_nobodys(cast: Cast) -> None:
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        trust = TlsFiles("", "", str(cast.authority.trust))
        async with open_channel(keeper.address, [], trust, "keeper") as channel:
            said = tuple(
                ("authorization", f"Bearer token of {role}") for role in ("reader", "source")
            )
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                await rpc.CursorStoreStub(channel).Get(pb.GetRequest(cursor=REF), metadata=said)
            assert denied.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_what_is_taken_from_an_identity_ends_its_streams(cast: Cast) -> None:
    source = cast.callers["source, by token"]
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        assert keeper.guard is not None
        async with Client(keeper.address, settings(source)) as client:
            first = client.cursor(OWN, SUB, layout=LAYOUT)
            second = client.cursor("persistent://acme/kept/topic", SUB, layout=LAYOUT)
            await first.opened()
            await second.opened()
            # one of its topics
            cast.identities[0]["topics"] = ["persistent://acme/kept/"]
            cast.write()
            await keeper.guard.look()
            with pytest.raises(NotAllowed):
                await first.ack(7, 1)
                await first.durable()
            await second.ack(7, 1)
            await second.durable()
            # its token, after another one was added: whoever has that goes on
            cast.identities[0]["token_hashes"] = []
            cast.write()
            await keeper.guard.look()
            with pytest.raises(CursorKeeperError, match="UNAUTHENTICATED"):
                await second.ack(7, 2)
                await second.durable()


async def test_a_token_is_renewed_under_acks(cast: Cast, tmp_path: Path) -> None:
    """Every ack becomes durable, while tokens come and go."""
    file, trust = tmp_path / "token", TlsFiles("", "", str(cast.authority.trust))
    file.write_text("token of source\n")
    said = ClientSettings(token_file=str(file), tls=trust, tls_server_name="keeper")
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        assert keeper.guard is not None
        async with Client(keeper.address, said) as client:
            cursor = client.cursor(OWN, SUB, layout=LAYOUT)
            await cursor.opened()
            for turn in range(5):
                new = f"token {turn}"
                cast.identities[0]["token_hashes"].append(digest(new))
                cast.write()
                await keeper.guard.look()
                await cursor.ack(7, 10 * turn + 1)
                file.with_suffix(".new").write_text(new)
                file.with_suffix(".new").rename(file)
                del cast.identities[0]["token_hashes"][:-1]
                cast.write()
                await keeper.guard.look()
                await cursor.ack(7, 10 * turn + 3)
                await cursor.durable()
            async with Client(keeper.address, said) as other:
                assert [info.subscription async for info in other.store.list(OWN)] == [SUB]


async def test_a_signed_token_ends_with_its_time(cast: Cast) -> None:
    async with asyncio.timeout(240), served(cast, asks_for_certificates=False) as keeper:
        assert keeper.guard is not None
        for life_s in (2, 10, 60):  # a busy machine may need longer to open
            short = Caller(cast.callers["reader"].files, cast.signed(exp=time.time() + life_s))
            async with Client(keeper.address, settings(short)) as client:
                cursor = client.cursor(OWN, SUB, layout=LAYOUT)
                try:
                    await cursor.opened()
                    await keeper.guard.look()
                    await cursor.ack(7, 1)
                    await cursor.durable()
                except CursorKeeperError:
                    continue
                with pytest.raises(CursorKeeperError, match=r"UNAUTHENTICATED.*expired"):
                    while True:
                        await keeper.guard.look()
                        await cursor.ack(7, 2)
                        await cursor.durable()
                return
        pytest.fail("a token of a minute was not enough to open a cursor")


@pytest.mark.parametrize("broken", ["{", '{"identities": [{"name": "a"}]}', "gone"])
async def test_a_file_that_cannot_be_used_changes_nothing(cast: Cast, broken: str) -> None:
    source = cast.callers["source, by token"]
    async with asyncio.timeout(60), served(cast, asks_for_certificates=False) as keeper:
        assert keeper.guard is not None
        async with Client(keeper.address, settings(source)) as client:
            cursor = client.cursor(OWN, SUB, layout=LAYOUT)
            await cursor.opened()
            new = cast.file.with_suffix(".new")
            new.write_text(broken)
            new.rename(cast.file)
            with pytest.raises(SettingsError, match="identities_file"):
                await keeper.guard.look()
            await cursor.ack(7, 1)
            await cursor.durable()
