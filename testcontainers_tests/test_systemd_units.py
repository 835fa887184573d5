"""The units of deploy/systemd under a real systemd: it takes them, they are closed, both programs
run in them and confirm acks, stop in time, come back when they are killed, and stay down when their
settings are wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cursorkeeper_client import Client, ClientSettings, CursorKeeperError
from daemon.tests.source.random_acks import LAYOUT, START, make_batch
from testcontainers_tests.cluster.conditions import until
from testcontainers_tests.cluster.images import Images
from testcontainers_tests.cluster.machine import DAEMON, GATEWAY, TOKENS, Machine, build_machine
from testcontainers_tests.cluster.nodes import STREAM_PORT
from testcontainers_tests.cluster.stack import ContainerStack
from testcontainers_tests.conftest import Opener

EXPOSURE_MAX = 12
"""In tenths, as systemd-analyze counts: 1.2 of 10. Both are at 1.1."""
NO_CAPABILITIES = "0000000000000000"


@pytest.fixture(scope="module")
def storage(opener: Opener) -> ContainerStack:
    """ZooKeeper and bookies; gateway and daemon are the machine's."""
    return opener(gateways=0, daemons=0)


@pytest.fixture(scope="module")
def installed(built: Images, storage: ContainerStack) -> Iterator[Machine]:
    """A machine with both units installed and started."""
    machine = Machine(build_machine(built), storage.network, storage.zookeeper_address)
    storage.others.append(machine)

    async def start() -> None:
        await machine.boot()
        machine.install()
        machine.must(f"systemctl start {GATEWAY} {DAEMON}")
        await machine.serves()

    asyncio.run(start())
    yield machine


@pytest.fixture
async def machine(installed: Machine) -> Machine:
    """The machine, whole again whatever the test before did to it."""
    installed.install()
    installed.must(f"systemctl reset-failed; systemctl start {GATEWAY} {DAEMON}")
    await installed.serves()
    return installed


def source(machine: Machine, token: str = TOKENS["source-token"]) -> Client:
    return Client(machine.address(STREAM_PORT), ClientSettings(credentials=token.encode()))


async def acks_become_durable(machine: Machine, topic: str, batches: int = 50) -> None:
    """On a new cursor, which is closed again."""
    async with (
        source(machine) as client,
        client.cursor(topic, "systemd", layout=LAYOUT, start=START) as cursor,
    ):
        for number in range(1, batches + 1):
            await cursor.send(make_batch(7, number).acks)
        await cursor.durable()


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_systemd_has_nothing_to_say_about_the_unit(machine: Machine, unit: str) -> None:
    assert machine.must(f"systemd-analyze verify /etc/systemd/system/{unit} 2>&1").strip() == ""


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_the_unit_is_closed(machine: Machine, unit: str) -> None:
    said = machine.must(
        f"systemd-analyze security --no-pager --offline=true --threshold={EXPOSURE_MAX} "
        f"/etc/systemd/system/{unit} 2>&1"
    )
    print(said.strip().splitlines()[-1])


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_the_process_is_closed(machine: Machine, unit: str) -> None:
    pid = machine.shows(unit)["MainPID"]
    status = dict(
        line.split(":\t", 1)
        for line in machine.must(f"cat /proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    assert min(int(uid) for uid in status["Uid"].split()) > 0
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        NO_CAPABILITIES
    }
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2", "a filter"
    inside = f"nsenter --target {pid} --mount -- touch"
    machine.must(f"{inside} /tmp/mine")
    for path in ("/opt/cursorkeeper/mine", "/etc/mine", "/var/mine"):
        code, said = machine.run("sh", "-c", f"{inside} {path}")
        # Docker loses the output of a short command now and then, if the machine is busy; never its
        # exit code.
        said = said or machine.run("sh", "-c", f"{inside} {path}")[1]
        assert code != 0 and "Read-only file system" in said


async def test_acks_become_durable(machine: Machine) -> None:
    await acks_become_durable(machine, "persistent://units/systemd/durable")


async def test_tokens_reach_the_daemon(machine: Machine) -> None:
    with pytest.raises(CursorKeeperError):
        async with source(machine, "another-token") as client:
            await client.cursor("persistent://units/systemd/token", "systemd").opened()


async def test_both_stop_in_time_and_well(machine: Machine) -> None:
    """systemd forgets the numbers of a unit that it stopped; its journal keeps how it ended: 143 of
    a JVM is success, too.
    """
    await acks_become_durable(machine, "persistent://units/systemd/stop")
    words = {unit: f"{unit}: Deactivated successfully" for unit in (DAEMON, GATEWAY)}
    before = {unit: machine.said(text) for unit, text in words.items()}
    machine.must(f"systemctl stop {DAEMON} {GATEWAY}")
    for unit, text in words.items():
        assert machine.shows(unit)["ActiveState"] == "inactive"
        assert machine.said(text) == before[unit] + 1


@pytest.mark.parametrize("unit", [DAEMON, GATEWAY])
async def test_a_killed_one_comes_back(machine: Machine, unit: str) -> None:
    before = machine.shows(unit)
    # of the main process alone: another of its group may be gone while systemd signals it
    machine.must(f"systemctl kill --kill-whom=main --signal=KILL {unit}")
    await until(
        lambda: int(machine.shows(unit)["NRestarts"]) > int(before["NRestarts"]),
        f"{unit} is started again",
    )
    await machine.serves()
    assert machine.shows(unit)["MainPID"] != before["MainPID"]
    await acks_become_durable(machine, f"persistent://units/systemd/killed-{unit}")


@pytest.mark.parametrize(
    ("unit", "file", "text"),
    [
        (DAEMON, "etc/cursorkeeper/cursorkeeper.toml", "ack_quorum = 9\n"),
        (GATEWAY, "etc/cursorkeeper/gateway.properties", "no-such-flag=1\n"),
    ],
)
async def test_wrong_settings_end_it_once(
    machine: Machine, unit: str, file: str, text: str
) -> None:
    machine.put({file: text})
    machine.must(f"systemctl restart {unit}")
    await until(lambda: machine.shows(unit)["ActiveState"] == "failed", f"{unit} has failed")
    shown = machine.shows(unit)
    assert (shown["Result"], shown["ExecMainStatus"], shown["NRestarts"]) == ("exit-code", "2", "0")


async def test_without_its_tokens_it_does_not_start(machine: Machine) -> None:
    machine.must("systemctl stop cursorkeeper && rm /etc/cursorkeeper/tokens/writer-token")
    code, _ = machine.run("systemctl", "start", DAEMON)
    assert code != 0
    assert "243/CREDENTIALS" in machine.run("systemctl", "status", "--no-pager", DAEMON)[1]
    machine.must(f"systemctl stop {DAEMON}")
