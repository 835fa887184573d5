"""`cursorkeeper set-acl` on a ZooKeeper that knows users: a fleet that was open is closed while a
daemon goes on, who is shut out then, and what ZooKeeper refuses.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.core.limits import Limits
from cursorkeeper.core.names import CursorName
from cursorkeeper.format.record import EncodeSettings
from cursorkeeper.runtime.keeper import Keeper
from cursorkeeper.runtime.ledgers import LedgerPolicy
from cursorkeeper.runtime.limits import KeeperLimits
from cursorkeeper.zookeeper.acl import ALL, CREATOR, OPEN, Entry, digest_id
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.errors import AccessDenied
from cursorkeeper.zookeeper.values import Node
from daemon.tests.fakes.bookkeeper.fake import FakeBookKeeper
from daemon.tests.support.secured_zookeeper import NAME, USER, Secured
from daemon.tests.support.world import SilentTelemetry, Source, acks

pytestmark = pytest.mark.jvm
OTHER = ("digest", b"other:secret")
ME, THEM = digest_id(USER[1]), digest_id(OTHER[1])
CURSORS = [CursorName(f"persistent://t/ns/topic-{number}", "sub") for number in range(30)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("zookeeper")) as made:
        yield made


@asynccontextmanager
async def client(secured: Secured, **more: Any) -> AsyncIterator[ZooKeeperClient]:
    made = ZooKeeperClient(secured.settings(**more))
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def keeper_of(zookeeper: ZooKeeperClient, root: str) -> Keeper:
    """A daemon; its ledgers are a fake's."""
    gateway = FakeBookKeeper(random.Random(1)).gateway()
    await gateway.start()
    limits = replace(Limits(), flush_interval_ms=10)
    made = Keeper(
        gateway,
        zookeeper,
        SilentTelemetry(),
        limits=limits,
        keeper_limits=KeeperLimits(),
        policy=LedgerPolicy(),
        encode=EncodeSettings(limits.max_entry_bytes),
        identity="host/1",
        rng=random.Random(2),
        root=root,
        state_writer=None,
    )
    await made.footers.deployment()
    await made.start()
    return made


async def set_acl(
    secured: Secured,
    folder: Path,
    root: str,
    acl: str,
    *words: str,
    user: bytes = USER[1],
    scheme: bytes = b"digest",
) -> tuple[int, dict[str, Any], str]:
    """The command: its exit code, what it says to programs, and to people."""
    files = secured.neighbour  # who is not the maker of anything here by certificate
    (folder / "user").write_bytes(scheme + b":" + user)
    variables = {
        "ZOOKEEPER": f"127.0.0.1:{secured.secure}",
        "ZOOKEEPER_TLS_ENABLED": "true",
        "ZOOKEEPER_TLS_SERVER_NAME": NAME,
        "TLS_CERTIFICATE_FILE_PATH": files.certificate,
        "TLS_KEY_FILE_PATH": files.key,
        "TLS_TRUST_CERTS_FILE_PATH": files.trust_certs,
        "ZOOKEEPER_AUTH_FILE": str(folder / "user"),
        "ZOOKEEPER_ACL": acl,
        "ROOT": root,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cursorkeeper.cli.main", "set-acl", "--json", *words),
        env={**os.environ, **{f"CURSORKEEPER_{name}": value for name, value in variables.items()}},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    assert b"secret" not in out + err
    return process.returncode, json.loads(out) if out else {}, err.decode()


async def nodes(zookeeper: ZooKeeperClient, root: str) -> dict[str, Node]:
    paths = [name.path(root) for name in CURSORS]
    found = await zookeeper.multi_read([root, *paths])
    return {path: node for path, node in zip([root, *paths], found, strict=True) if node}


async def test_an_open_fleet_becomes_its_user_s_while_it_works(
    secured: Secured, tmp_path: Path
) -> None:
    root = "/fleet/cursors"
    async with client(secured, authentication=USER) as mine:
        keeper = await keeper_of(mine, root)
        sources = [Source(keeper, name) for name in CURSORS]
        for source in sources:
            await source.open()
            await source.durable(source.ack(acks(7, 1)))
        before = await nodes(mine, root)
        code, found, said = await set_acl(secured, tmp_path, root, "creator", "--dry-run")
        assert (code, found["written"], found["refused"]) == (0, False, 0), said
        assert found["openAt"] == {"host/1": len(CURSORS)}
        assert found["loseAccess"] == {"world:anyone": found["nodes"]}
        # without a word of a person nothing is written
        code, again, said = await set_acl(secured, tmp_path, root, "creator")
        assert (code, again) == (1, found) and "add --yes" in said
        assert await nodes(mine, root) == before

        stopping, sent = asyncio.Event(), 0

        async def flowing() -> None:
            nonlocal sent
            while not stopping.is_set():
                sent += 1
                for source in sources[:3]:
                    await source.durable(source.ack(acks(7, 1 + 2 * sent)))

        acking = asyncio.create_task(flowing())
        code, done, said = await set_acl(secured, tmp_path, root, "creator", "--yes")
        stopping.set()
        await acking
        assert (code, done["changed"], done["refused"]) == (0, found["nodes"], 0), said
        assert done["written"] and sent > 1
        # versions are the daemon's own: who wrote nothing meanwhile has the one of before
        after = await nodes(mine, root)
        for name in CURSORS[3:]:
            path = name.path(root)
            assert (after[path].version, after[path].stat.mzxid) == (
                before[path].version,
                before[path].stat.mzxid,
            )
            assert after[path].stat.aversion == before[path].stat.aversion + 1
        for source in sources:
            await source.durable(source.ack(acks(8, 1)))
            assert not source.told.ended
        code, done, said = await set_acl(secured, tmp_path, root, "creator", "--yes")
        assert (code, done["alreadySo"], done["changed"]) == (0, found["nodes"], 0), said
        async with client(secured, authentication=OTHER) as other:
            for path in after:
                with pytest.raises(AccessDenied):
                    await other.get(path)
        # ours, and one more user, by digests alone
        both = f"digest:{ME},digest:{THEM}"
        code, done, said = await set_acl(secured, tmp_path, root, both, "--yes")
        assert (code, done["changed"]) == (0, found["nodes"]), said
        expected = {Entry(ALL, "digest", ME), Entry(ALL, "digest", THEM)}
        assert set((await mine.acl(root))[0]) == expected
        async with client(secured, authentication=OTHER) as other:
            assert (await other.get(root)).data == after[root].data
        code, done, said = await set_acl(secured, tmp_path, root, "open", "--yes")
        assert (code, done["changed"]) == (0, found["nodes"]), said
        assert (await mine.acl(CURSORS[0].path(root)))[0] == OPEN
        assert await keeper.close() == []


async def test_nobody_shuts_himself_out(secured: Secured, tmp_path: Path) -> None:
    root = "/alone/cursors"
    async with client(secured, authentication=USER) as mine:
        await mine.ensure_path(root)
        for wanted, told in (
            (f"digest:{THEM}", "is for digest:other, and .* holds the user 'digest:keeper'"),
            (f"digest:{digest_id(b'keeper:p')}", "with another password than the hash is of"),
            (
                "digest:keeper:secret",
                "its part 1 is none of open, creator, digest:USER:HASH and sasl:USER",
            ),
        ):
            code, found, said = await set_acl(secured, tmp_path, root, wanted, "--yes")
            assert (code, found) == (2, {}), said
            assert re.search(told, said), said
        assert (await mine.acl(root))[0] == OPEN


async def test_what_is_another_user_s_is_refused_and_counted(
    secured: Secured, tmp_path: Path
) -> None:
    root = "/mixed/cursors"
    async with (
        client(secured, authentication=USER) as mine,
        client(secured, authentication=OTHER, acl=CREATOR, tls=secured.files) as other,
    ):
        await mine.ensure_path(f"{root}/abc")
        await mine.set(root, b"0" * 32, 0)
        await other.create(f"{root}/abc/theirs", b"")
        await other.ensure_path(f"{root}/def/hidden")
        shown = (Entry(1, "world", "anyone"), Entry(ALL, "digest", THEM))
        await other.set_acl(f"{root}/abc/theirs", shown, 0)
        for words in (("--dry-run",), ("--yes",)):
            code, found, said = await set_acl(secured, tmp_path, root, "creator", *words)
            assert (code, found["nodes"], found["changed"]) == (1, 5, 3), (found, said)
            owners = {one["path"]: one["owner"] for one in found["refusedNodes"]}
            assert owners == {
                f"{root}/def": "not told by ZooKeeper",
                f"{root}/abc/theirs": "world:anyone, digest:other",
            }
            assert (found["refused"], found["unseen"]) == (2, 1)
            assert "then the same with their zookeeper_auth_file" in said
        # as it says
        both = f"digest:{ME},digest:{THEM}"
        code, found, said = await set_acl(secured, tmp_path, root, both, "--yes")
        assert (code, found["changed"], found["refused"]) == (1, 3, 2), (found, said)
        code, found, said = await set_acl(secured, tmp_path, root, both, "--yes", user=OTHER[1])
        assert (code, found["changed"], found["alreadySo"]) == (0, 3, 3), (found, said)
        code, found, said = await set_acl(secured, tmp_path, root, "creator", "--yes")
        assert (code, found["changed"], found["refused"]) == (0, 6, 0), (found, said)
        assert found["loseAccess"] == {"digest:other": 6}


async def test_a_user_who_logs_in_is_another_than_the_digest_of_that_name(
    secured: Secured, tmp_path: Path
) -> None:
    root, logged_in = "/logins/cursors", {"user": b'keeper:se"cret', "scheme": b"sasl"}
    async with client(secured, authentication=("sasl", logged_in["user"])) as mine:
        keeper = await keeper_of(mine, root)
        source = Source(keeper, CURSORS[0])
        await source.open()
        for word, changed in (("--dry-run", 4), ("--yes", 4), ("--yes", 0)):
            code, found, said = await set_acl(secured, tmp_path, root, "creator", word, **logged_in)
            assert (code, found["changed"], found["refused"]) == (0, changed, 0), (found, said)
        assert found["acl"] == "sasl:keeper"
        await source.durable(source.ack(acks(7, 1)))
        # the daemon would make nodes that it cannot touch
        own = f"digest:{digest_id(logged_in['user'])}"
        code, found, said = await set_acl(secured, tmp_path, root, own, "--yes", **logged_in)
        assert code == 2 and "holds the user 'sasl:keeper'" in said, (code, said)
        both = f"sasl:keeper,digest:{THEM}"
        code, found, said = await set_acl(secured, tmp_path, root, both, "--yes", **logged_in)
        assert (code, found["changed"]) == (0, 4), (found, said)
        code, found, said = await set_acl(secured, tmp_path, root, both, "--yes", user=OTHER[1])
        assert (code, found["alreadySo"]) == (0, 4), (found, said)
        await source.durable(source.ack(acks(7, 3)))
        await keeper.close(10)
