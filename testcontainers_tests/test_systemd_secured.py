"""The secured form of deploy/systemd under a real systemd, in a cluster where ZooKeeper and the
bookies ask for certificates and users: both programs run as closed as the plain ones, confirm acks
of the broker that is named and of nobody else, and come back when they are killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cursorkeeper_client import Client, ClientSettings, CursorKeeperError
from cursorkeeper_client.tls import TlsFiles
from daemon.tests.source.random_acks import LAYOUT, START, make_batch
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.machine import (
    DAEMON,
    DAEMONS_NAME,
    GATEWAY,
    Machine,
    build_machine,
)
from testcontainers_tests.cluster.nodes import STREAM_PORT
from testcontainers_tests.cluster.secrets import Secrets
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.conftest import Opener

BROKER = "pulsar-broker"
"""The one that daemon.json knows."""


@pytest.fixture(scope="module")
def storage(opener: Opener, tmp_path_factory: pytest.TempPathFactory) -> ContainerStack:
    """ZooKeeper and bookies; gateway and daemon are the machine's."""
    secrets = Secrets(tmp_path_factory.mktemp("secrets"))
    return opener(gateways=0, daemons=0, secrets=secrets)


def secrets_of(storage: ContainerStack) -> Secrets:
    assert storage.secrets is not None
    return storage.secrets


@pytest.fixture(scope="module")
def machine(built: Images, storage: ContainerStack) -> Iterator[Machine]:
    made = Machine(build_machine(built), storage.network, storage.zookeeper_address)
    storage.others.append(made)

    async def start() -> None:
        await made.boot()
        made.install_secured(secrets_of(storage))
        made.must(f"systemctl start {GATEWAY} {DAEMON}")
        await made.serves()

    asyncio.run(start())
    yield made


def source(machine: Machine, files: TlsFiles) -> Client:
    settings = ClientSettings(tls=files, tls_server_name=DAEMONS_NAME, connect_timeout_s=5)
    return Client(machine.address(STREAM_PORT), settings)


async def acks_become_durable(machine: Machine, files: TlsFiles, topic: str) -> None:
    async with (
        source(machine, files) as client,
        client.cursor(topic, "systemd", layout=LAYOUT, start=START) as cursor,
    ):
        for number in range(1, 51):
            await cursor.send(make_batch(7, number).acks)
        await cursor.durable()


async def test_the_named_brokers_acks_become_durable(
    machine: Machine, storage: ContainerStack
) -> None:
    secrets = secrets_of(storage)
    await acks_become_durable(machine, secrets.client(BROKER), "persistent://units/secured/durable")
    for who in (secrets.client("another"), secrets.foreign(BROKER), secrets.nobody):
        with pytest.raises(CursorKeeperError):
            async with source(machine, who) as client, asyncio.timeout(60):
                await client.cursor("persistent://units/secured/none", "systemd").opened()
    for said in (
        '"action":"create","result":"done","who":"brokers"',
        '"action":"create","result":"ok","who":"daemons"',
    ):
        machine.must(f"journalctl --no-pager --output=cat | grep -q -F '{said}'")


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_the_unit_with_its_drop_in_is_closed(machine: Machine, unit: str) -> None:
    assert machine.must(f"systemd-analyze verify /etc/systemd/system/{unit} 2>&1").strip() == ""
    shown = machine.shows(unit)
    assert shown["DynamicUser"] == shown["NoNewPrivileges"] == "yes"
    pid = shown["MainPID"]
    assert "secret" not in machine.must(f"tr '\\0' ' ' < /proc/{pid}/cmdline")
    assert "secret" not in machine.must(f"tr '\\0' ' ' < /proc/{pid}/environ")


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_a_killed_one_comes_back(
    machine: Machine, storage: ContainerStack, unit: str
) -> None:
    before = machine.shows(unit)
    machine.must(f"systemctl kill --kill-whom=main --signal=KILL {unit}")
    await until(
        lambda: int(machine.shows(unit)["NRestarts"]) > int(before["NRestarts"]),
        f"{unit} is started again",
    )
    await machine.serves()
    files = secrets_of(storage).client(BROKER)
    await acks_become_durable(machine, files, f"persistent://units/secured/killed-{unit}")
