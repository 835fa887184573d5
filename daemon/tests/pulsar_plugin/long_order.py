"""The pages of docs/run/broker, played: a cluster of two brokers goes from Pulsar's own cursors to
kept ones, gets its next version, and leaves, after a clean stop and after a crash. Lines of
broker.conf and commands are read from the pages. `make test-brokers`.

Each step is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked
missing.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cursorkeeper.demo.stack.standalone import Standalone
from daemon.tests.deployment.places import ROOT
from daemon.tests.pulsar_plugin.field import NAMESPACE, Field, field, kill, start, stop
from daemon.tests.pulsar_plugin.subscription import Subscription, topic
from daemon.tests.pulsar_plugin.two_brokers import flows, flows_on, judged, made, settles
from tools.brokers.cluster import PulsarBroker

pytestmark = pytest.mark.jvm
VERSION = "4.2.4"
PAGES = {
    name: (ROOT / "docs/run/broker" / f"{name}.md").read_text() for name in ("index", "leaving")
}
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NEXT_COMMAND = re.compile(r'\n(?! *["}])')
COMMAND_MAX_S = 120
TOPIC = topic("moved")
OFF, IMPORT = {"cursorKeeperMode": "off"}, {"cursorKeeperOnStale": "import"}
BINDING = ', "managedLedgerStorageClassName": "cursorkeeper"'


def lines_of_conf() -> dict[str, str]:
    """Those of the page's last block, which has all of them."""
    (*_, last) = [body for kind, body in BLOCK.findall(PAGES["index"]) if kind == "properties"]
    return dict(line.split("=", 1) for line in last.split())


class Operator:
    """Types what a page says. `places`: what a page's example stands for here."""

    def __init__(self, at: Field, places: dict[str, str]) -> None:
        assert isinstance(at.stack, Standalone)
        self._folder, self._places = at.folder / "desk", places
        self._folder.mkdir()
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "CURSORKEEPER_ZOOKEEPER": at.stack.zookeeper,
            "CURSORKEEPER_GATEWAY": at.stack.gateway,
            "CURSORKEEPER_LISTEN": at.daemons[0].address,
            "COLUMNS": "200",
        }

    async def types(
        self, page: str, *words: str, but: str = "\0", without: str = "\0", more: str = ""
    ) -> str:
        """The page's only command with all of these words, and what it said. `more`: flags that the
        page names beside it.
        """
        blocks = [body for kind, body in BLOCK.findall(PAGES[page]) if kind == ""]
        commands = [each.strip() for body in blocks for each in NEXT_COMMAND.split(body)]
        commands = [
            each for each in commands if all(word in each for word in words) and but not in each
        ]
        assert len(commands) == 1, f"{page}.md has for {words}: {commands}"
        command = re.sub(r",\n *", ", ", commands[0]).replace(without, "")
        for place, real in self._places.items():
            command = command.replace(place, real)
        return await self.runs(f"{command} {more}")

    async def runs(self, command: str) -> str:
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-euc",
            command,
            cwd=self._folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(COMMAND_MAX_S):
            said, _ = await shell.communicate()
        print(f"$ {command}\n{said.decode()}")
        assert shell.returncode == 0, f"{command}\n{said.decode()}"
        return said.decode()


class Cluster:
    """Brokers whose settings change by a restart, one after the other; what the lines of the page
    are for each of them.
    """

    def __init__(self, at: Field, lines: dict[str, str], *brokers: PulsarBroker) -> None:
        self._at, self.brokers = at, brokers
        self._before = {each.name: dict(each.conf) for each in brokers}
        self._lines = {
            each.name: lines | {"cursorKeeperAddress": daemon.address}
            for each, daemon in zip(brokers, at.daemons, strict=True)
        }

    async def stops(self, broker: PulsarBroker) -> None:
        """In order. Nobody is connected."""
        await self._at.clients.do("drop")
        await stop(broker)

    async def starts(self, broker: PulsarBroker, more: dict[str, str]) -> None:
        """With the page's lines and more."""
        broker.conf = self._before[broker.name] | self._lines[broker.name] | more
        await start(broker)

    async def restarts(self, more: dict[str, str]) -> None:
        for broker in self.brokers:
            await self.stops(broker)
            await self.starts(broker, more)


async def gets_the_next_version(at: Field, *brokers: PulsarBroker) -> None:
    """Of plugin and daemon, one broker after the other, then the daemons alone: while messages and
    acks flow.
    """
    await made(brokers[0], "flowing")
    await flows(at, "flowing", *brokers)
    await flows_on(at, "flowing")
    for broker, daemon in zip(brokers, at.daemons, strict=True):
        await stop(broker)
        await daemon.stop()
        await flows_on(at, "flowing", more=200)
        await daemon.start()
        await start(broker)
    for daemon in at.daemons:
        await daemon.stop()
        await daemon.start()
        await flows_on(at, "flowing", more=200)
    await settles(at, "flowing")


@dataclass(frozen=True)
class Scene:
    """Two brokers of Pulsar's own, the first one at work; everything that the pages put on machines
    lies there.
    """

    at: Field
    one: PulsarBroker
    two: PulsarBroker
    cluster: Cluster
    operator: Operator
    moved: Subscription


@asynccontextmanager
async def scene(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    pulsar, token, copy = folder / "opt-pulsar", folder / "token", folder / "copy-of-token"
    (pulsar / "lib").mkdir(parents=True)
    token.write_text("the source's\n")
    monkeypatch.setenv("CURSORKEEPER_SOURCE_TOKEN_FILE", str(token))
    async with field(folder, VERSION, daemons=2, migrator=True) as at:
        one, two = [
            at.broker(name, daemon=None, jar=False, before=[pulsar / "lib" / "*"])
            for name in ("one", "two")
        ]
        operator = Operator(
            at,
            {
                "java/pulsar": f"{ROOT}/java/pulsar",
                "/opt/pulsar": str(pulsar),
                "/etc/cursorkeeper/tokens/source-token": str(token),
                "/etc/cursorkeeper/source/source-token": str(copy),
                "-o pulsar ": "",
                "http://broker:8080": one.admin_url,
                "tenant/namespace": NAMESPACE,
                "/topic|subscription": "/moved|sub",
                "logs/pulsar-broker*.log": str(one.log),
                " broker.conf": f" {one.folder / 'one.conf'}",
                '"bookkeeperEnsemble": 3': '"bookkeeperEnsemble": 2',
            },
        )
        moved = Subscription(at, TOPIC)
        await start(one)
        await moved.begins(one)
        assert "`cursorkeeper health` says SERVING" in PAGES[
            "index"
        ] and "SERVING" in await operator.runs("cursorkeeper health")
        for words in ("plugin-4.2.jar", "receipts.nar", "0400"):
            await operator.types("index", "install ", words)
        lines = lines_of_conf() | {
            "brokerInterceptorsDirectory": f"{pulsar}/interceptors",
            "cursorKeeperTokenFile": str(copy),
        }
        yield Scene(at, one, two, Cluster(at, lines, one, two), operator, moved)


async def test_a_cluster_comes_as_the_pages_say_and_gets_its_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch) as of:
        at, one, two, cluster, operator, moved = (
            of.at,
            of.one,
            of.two,
            of.cluster,
            of.operator,
            of.moved,
        )
        # with the lines, and off: nothing changes
        await cluster.restarts(more=OFF)
        await moved.is_whole_at(one, 1)

        # one broker after the other; meanwhile the topic goes back to the one that is still off
        await cluster.stops(one)
        await cluster.starts(one, IMPORT)
        await cluster.stops(two)
        await moved.is_whole_at(one, 2)
        await cluster.starts(two, OFF)
        await cluster.stops(one)
        await moved.is_whole_at(two, 4)
        await cluster.starts(one, IMPORT)
        await cluster.stops(two)
        await moved.is_whole_at(one, 8)
        assert one.log.read_text().count("moved][sub] Taking Pulsar's state over") == 2
        await cluster.starts(two, IMPORT)
        await cluster.restarts(more={})
        await moved.is_whole_at(two, 1)
        await operator.types("index", "curl", "/persistence", more="--fail")
        assert "CursorKeeper daemon" in await operator.types("index", "grep ")
        for command in ("cursorkeeper ls", "cursorkeeper inspect"):
            assert TOPIC in await operator.types("index", command)

        await gets_the_next_version(at, one, two)
        await judged(at, one, "flowing")
        await moved.is_whole_at(one, 1)


async def test_a_cluster_leaves_as_the_pages_say_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path, monkeypatch) as of:
        at, one, two, cluster, operator, moved = (
            of.at,
            of.one,
            of.two,
            of.cluster,
            of.operator,
            of.moved,
        )
        await cluster.restarts(more={})
        await operator.types("index", "curl", "/persistence", more="--fail")
        await moved.is_whole_at(one, 2)

        # after a clean stop; and there again
        await operator.types("index", "curl", "/persistence", without=BINDING, more="--fail")
        await cluster.restarts(more=OFF)
        assert all(
            "Closed without the keeper's word" not in each.log.read_text() for each in (one, two)
        )
        await moved.is_whole_at(two, 4)
        await cluster.restarts(more={})
        await moved.is_refused_by(one, "Pulsar itself changed this cursor since the keeper held it")
        await cluster.restarts(more=IMPORT)
        await moved.is_whole_at(two, 8)

        # after a crash
        await kill(one, two)
        for daemon in at.daemons:
            await daemon.stop()
        assert " open " not in await operator.runs("cursorkeeper ls")
        await operator.types("leaving", "export-pulsar", "--dry-run", more="--broker-is-stopped")
        await operator.types(
            "leaving", "export-pulsar", but="--dry-run", more="--broker-is-stopped"
        )
        await cluster.restarts(more=OFF)
        await moved.is_whole_at(one, 1)
        for command in ("cursorkeeper ls", "cursorkeeper export "):
            await operator.types("leaving", command)
