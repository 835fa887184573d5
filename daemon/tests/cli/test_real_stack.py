"""The program as people use it: `cursorkeeper run` as a process, and every tool against a real
ZooKeeper and real bookies.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyroaring import BitMap

from cursorkeeper.core.names import CursorName
from cursorkeeper.demo.stack import Standalone
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.format import footer as codec
from cursorkeeper.zookeeper.client import ZooKeeperClient
from cursorkeeper.zookeeper.settings import ZooKeeperSettings, parse_servers
from cursorkeeper_client import Acks, CursorDamaged, Fenced, LedgerAcks, PartialBatch
from cursorkeeper_client.ack_stream.connection import SourceConnection

pytestmark = pytest.mark.jvm
REPOSITORY = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "clients"), str(REPOSITORY / "daemon")]),
    "COLUMNS": "80",
}
PROGRAM = [sys.executable, "-m", "cursorkeeper.cli.main"]
TOPIC, SUB = "persistent://t/ns/topic", "sub"
CURSOR = f"{TOPIC}|{SUB}"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    # entries of at most 2 MiB: a daemon that wants larger ones cannot start
    with Standalone(
        tmp_path_factory.mktemp("stack"), arguments=["--entry-bytes-max", str(2 << 20)]
    ) as running:
        yield running


class Daemon:
    """`cursorkeeper run`, settings partly from a file. A cursor whose source has left stays open,
    however long a busy machine takes for what a test looks at next.
    """

    def __init__(self, stack: Standalone, folder: Path, *flags: str) -> None:
        config = folder / "daemon.toml"
        config.write_text(
            'listen = "127.0.0.1:0"\nmetrics_listen = ""\ninline_state_max_bytes = 0\n'
            "detached_cursor_max_ms = 3_600_000\n"
        )
        command = [
            *PROGRAM,
            "run",
            "--config",
            str(config),
            "--gateway",
            stack.gateway,
            "--zookeeper",
            stack.zookeeper,
        ]
        self.process = subprocess.Popen(
            [*command, "--parent-pid", str(os.getpid()), *flags],
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            env=ENVIRONMENT,
        )
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 180)[0], "not ready"
        self.ready = json.loads(self.process.stdout.readline())
        self.address: str = self.ready["listen"]

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(180)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def daemon(stack: Standalone, tmp_path: Path) -> Iterator[Daemon]:
    running = Daemon(stack, tmp_path)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.kill()


def tool(
    stack: Standalone,
    *arguments: str,
    code: int | None = 0,
    gateway: bool = True,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    where = ["--zookeeper", stack.zookeeper, *(["--gateway", stack.gateway] if gateway else [])]
    command = [*PROGRAM, arguments[0], *where, *arguments[1:]]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=ENVIRONMENT,
        input=stdin,
    )
    assert code is None or done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def make_cursor(
    address: str, topic: str = TOPIC, *, rounds: int = 3, fencing_token: int = 0
) -> None:
    """Acks on the ack stream; left open."""
    async with SourceConnection(address) as session:
        handle = session.open(topic, SUB, cursor_properties={"k": "v"}, fencing_token=fencing_token)
        await handle.opened()
        for at in range(rounds):
            entries = np.arange(1 + 100 * at, 90 + 100 * at, 2, dtype=np.uint32)
            seq = await handle.send(
                Acks(
                    [
                        LedgerAcks(
                            7, entries, partials=[PartialBatch(100 * at + 95, 10, BitMap([1, 3]))]
                        )
                    ]
                )
            )
            await handle.durable(seq, 30)


async def write_footer(stack: Standalone, name: CursorName, data: bytes) -> None:
    servers, _ = parse_servers(stack.zookeeper)
    client = ZooKeeperClient(ZooKeeperSettings(servers=servers))
    await client.start()
    await client.ensure_path(name.path().rpartition("/")[0])
    await client.create(name.path(), data)
    await client.close()


def test_a_cursors_life_through_every_tool(
    stack: Standalone, daemon: Daemon, tmp_path: Path
) -> None:
    asyncio.run(make_cursor(daemon.address))

    # open: nobody is disturbed, everything is "at least"
    listed = {x["cursor"]: x for x in json_lines(tool(stack, "ls", "--json", gateway=False))}
    assert listed[CURSOR]["state"] == "open" and listed[CURSOR]["chain"] == 1
    shown = json_lines(tool(stack, "inspect", TOPIC, SUB, "--json"))
    assert shown[0]["type"] == "footer" and shown[1]["atLeast"] and all(x["ok"] for x in shown[2:])
    report = json_lines(tool(stack, "verify", CURSOR, "--json"))[0]
    assert report["ok"] and report["atLeast"]
    asyncio.run(make_cursor(daemon.address, rounds=1))

    # closed by SIGTERM: exact
    assert daemon.stop() == 0
    report = json_lines(tool(stack, "verify", "--all", "--json"))[0]
    assert (
        report["ok"]
        and not report["atLeast"]
        and report["totals"] == {"ledgers": 1, "acked": 135, "holes": 161, "partials": 3}
    )
    assert "135 acked" in tool(stack, "verify", CURSOR).stdout
    kinds = [
        x["kind"]
        for x in json_lines(tool(stack, "inspect", CURSOR, "--json"))
        if x["type"] == "record"
    ]
    assert kinds.count("open") == 1 and "delta" in kinds
    assert "at 95" not in tool(stack, "inspect", CURSOR).stdout
    assert CURSOR in tool(stack, "ls", gateway=False).stdout

    # out and in again
    file = tmp_path / "cursor.jsonl"
    tool(stack, "export", CURSOR, "-o", str(file))
    copy = f"{TOPIC}|copy"
    done = json_lines(tool(stack, "import", str(file), "--cursor", copy, "--json"))[0]
    assert (done["acked"], done["partials"], done["epoch"], done["replaced"]) == (135, 3, 1, False)
    again = tool(stack, "export", copy).stdout
    assert again.splitlines()[1:] == file.read_text().splitlines()[1:]
    refused = tool(stack, "import", str(file), code=1)
    assert "exists already" in refused.stderr and "--replace" in refused.stderr
    assert (
        "(replaced)"
        in tool(stack, "import", "-", "--cursor", copy, "--replace", stdin=file.read_text()).stdout
    )
    assert "2 cursor(s), 0 damaged" in tool(stack, "verify", "--all").stdout
    swept = json_lines(tool(stack, "gc", "--json"))[0]
    assert [x["cursor"] for x in swept["ledgers"]] == [CURSOR] * swept["garbage"], (
        "an import leaves nothing behind"
    )


def test_gc_of_what_a_crash_left(stack: Standalone, daemon: Daemon, tmp_path: Path) -> None:
    topic = "persistent://t/ns/crash"
    asyncio.run(make_cursor(daemon.address, topic))
    before = json_lines(tool(stack, "inspect", topic, SUB, "--json", "--no-records"))
    daemon.kill()
    file = tmp_path / "f"
    tool(stack, "export", topic, SUB, "-o", str(file))
    tool(stack, "import", str(file), "--replace")
    after = json_lines(tool(stack, "inspect", topic, SUB, "--json", "--no-records"))
    assert after[0]["epoch"] > before[0]["epoch"] + 1 and after[0]["base"]["kind"] == "inline"
    assert "0 garbage" in tool(stack, "gc", "--dry-run").stdout


def test_unknown_cursors_and_garbage_footers(stack: Standalone) -> None:
    for command in ("inspect", "export"):
        unknown = tool(stack, command, "persistent://t/ns/nobody", SUB, code=1)
        assert "there is no such cursor" in unknown.stderr and "cursorkeeper ls" in unknown.stderr
    assert (
        "there is no such cursor"
        in tool(stack, "verify", "persistent://t/ns/nobody|s", code=1).stderr
    )
    assert "/elsewhere" in tool(stack, "ls", "--root", "/elsewhere", code=2, gateway=False).stderr

    name = CursorName("persistent://t/ns/garbage", "s")
    asyncio.run(write_footer(stack, name, b"\x00not a footer"))
    listed = tool(stack, "ls", "--json", gateway=False, code=1)
    assert {"damaged"} <= {x["state"] for x in json_lines(listed)} and "not JSON" in listed.stderr
    looked = tool(stack, "inspect", name.display, code=1)
    assert "not a footer" in looked.stdout and "not JSON" in looked.stderr
    report = tool(stack, "verify", name.display, code=1)
    assert "DAMAGED" in report.stdout and "What to do:" in report.stdout
    assert "not JSON" in tool(stack, "export", name.display, code=1).stderr
    garbage_in = tool(stack, "import", "-", stdin="what?", code=2)
    assert "line 1" in garbage_in.stderr


def test_outside_systems_that_are_away(stack: Standalone) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    down = subprocess.run(
        [*PROGRAM, "ls", "--zookeeper", nobody],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=ENVIRONMENT,
    )
    assert down.returncode == 3 and f"ZooKeeper at {nobody} does not answer" in down.stderr
    command = [*PROGRAM, "verify", "--all", "--zookeeper", stack.zookeeper, "--gateway", nobody]
    down = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=ENVIRONMENT
    )
    assert down.returncode == 3 and f"the ledger gateway at {nobody} does not answer" in down.stderr
    assert "Traceback" not in down.stderr


def test_a_daemon_that_cannot_start(stack: Standalone, daemon: Daemon) -> None:
    flags = ["--listen", daemon.address, "--metrics-listen", ""]
    taken = tool(stack, "run", *flags, code=3)
    assert f"cannot listen on {daemon.address}" in taken.stderr and "--listen" in taken.stderr
    large = tool(stack, "run", "--max-entry-bytes", "4000000", "--listen", "127.0.0.1:0", code=2)
    assert (
        "max_entry_bytes" in large.stderr and "the gateway's entry limit of 2097152" in large.stderr
    )
    assert daemon.stop() == 0


def test_a_daemon_stops_with_its_parent(stack: Standalone, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running = Daemon(stack, tmp_path, "--parent-pid", str(parent.pid))
    parent.communicate(b"\n", timeout=60)
    try:
        assert running.process.wait(120) == 0
    finally:
        if running.process.poll() is None:
            running.kill()


def test_health_of_the_daemon_and_of_the_gateway(stack: Standalone, daemon: Daemon) -> None:
    def health(address: str, *arguments: str) -> tuple[int, str]:
        command = [*PROGRAM, "health", "--timeout-s", "60", "--address", address, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, env=ENVIRONMENT
        )
        return done.returncode, done.stdout + done.stderr

    assert health(daemon.address) == (0, f"{daemon.address}: SERVING\n")
    assert health(daemon.address, "--service", "cursorkeeper.acks.v1.AckSink")[0] == 0
    assert health(stack.gateway) == (0, f"{stack.gateway}: SERVING\n")
    code, said = health(stack.gateway, "--service", "cursorkeeper.acks.v1.AckSink")
    assert code == 1 and "SERVICE_UNKNOWN" in said
    assert daemon.stop() == 0
    code, said = health(daemon.address)
    assert code == 3 and "NO_ANSWER" in said


def test_nothing_is_well_at_a_root_that_is_not_there(stack: Standalone, daemon: Daemon) -> None:
    """Behind a chroot that nobody made, and below a root that nobody made: each command names it,
    and the root that is there.
    """
    for command in (
        ["ls"],
        ["verify", "--all"],
        ["verify", CURSOR],
        ["inspect", CURSOR],
        ["export", CURSOR],
        ["gc"],
        ["gc", "--dry-run"],
        ["orphans"],
    ):
        for wrong in (["--zookeeper", f"{stack.zookeeper}/our"], ["--root", "/cursorkeeper"]):
            said = tool(stack, command[0], *wrong, *command[1:], code=2, gateway=command[0] != "ls")
            assert wrong[1] in said.stderr and said.stdout == ""
            assert f"--zookeeper {stack.zookeeper} --root /cursorkeeper/cursors" in said.stderr


def test_a_name_that_a_terminal_would_obey_is_spelled_out_by_every_command(
    stack: Standalone, daemon: Daemon, tmp_path: Path
) -> None:
    topic = "persistent://t/ns/" + "long" * 30 + "\x1b[2J\x9b31m\u202e\nnext"
    shown = "persistent://t/ns/" + "long" * 30 + r"\x1b[2J\x9b31m\u202e\x0anext|sub"
    asyncio.run(make_cursor(daemon.address, topic, rounds=1))
    assert daemon.stop() == 0
    one = [topic, SUB]
    for arguments in (
        ["ls"],
        ["verify", f"{topic}|{SUB}"],
        ["inspect", *one],
        ["export", *one, "-o", str(tmp_path / "out")],
    ):
        # another test may have left a footer that cannot be read
        done = tool(
            stack, *arguments, code=None if arguments == ["ls"] else 0, gateway=arguments != ["ls"]
        )
        assert (
            not set("\x1b\x9b\u202e") & set(done.stdout + done.stderr) and shown in done.stdout
        ), (arguments, done.stdout)


async def footer_bytes_of(
    stack: Standalone, name: CursorName, put: bytes | None = None, *, gone: bool = False
) -> bytes:
    """What is there; then, with other means than ours, `put` in its place, or nothing."""
    servers, _ = parse_servers(stack.zookeeper)
    client = ZooKeeperClient(ZooKeeperSettings(servers=servers))
    await client.start()
    node = await client.get(name.path())
    if put is not None:
        await client.set(name.path(), put, node.version)
    if gone:
        await client.delete(name.path(), node.version)
    await client.close()
    return node.data


def test_a_lost_footer_of_a_high_version_comes_back_above_it(
    stack: Standalone, tmp_path: Path
) -> None:
    name, version = CursorName("persistent://t/ns/lost", SUB), 30_000
    daemon = Daemon(stack, tmp_path)
    asyncio.run(make_cursor(daemon.address, name.topic, rounds=1))
    assert daemon.stop() == 0
    whole = tool(stack, "export", name.display).stdout.splitlines()[1:]
    latest = codec.decode(asyncio.run(footer_bytes_of(stack, name, gone=True))).written_at(version)
    (tmp_path / "latest").write_bytes(codec.encode(latest))
    refused = tool(
        stack,
        "restore-footer",
        name.display,
        str(tmp_path / "latest"),
        "--yes",
        "--writes-max",
        str(version),
        code=1,
    )
    assert "30,002 writes" in refused.stderr and "--writes-max" in refused.stderr
    done = json_lines(
        tool(stack, "restore-footer", name.display, str(tmp_path / "latest"), "--yes", "--json")
    )[0]
    assert done["version"] == version + 1
    assert tool(stack, "export", name.display).stdout.splitlines()[1:] == whole


def test_a_fencing_token_is_kept_and_forgotten(stack: Standalone, tmp_path: Path) -> None:
    """Over a kill and another daemon; until a person, asked by name, forgets it."""
    name = CursorName("persistent://t/ns/fenced", SUB)
    first = Daemon(stack, tmp_path)
    asyncio.run(make_cursor(first.address, name.topic, fencing_token=7))
    first.kill()
    second = Daemon(stack, tmp_path)
    for token in (0, 6):
        with pytest.raises(Fenced, match="cursorkeeper forget-token"):
            asyncio.run(make_cursor(second.address, name.topic, fencing_token=token))
    open_still = tool(stack, "forget-token", name.display, "--yes", code=1)
    assert "it is open (epoch 1" in open_still.stderr
    asyncio.run(make_cursor(second.address, name.topic, fencing_token=7))
    assert second.stop() == 0
    whole = tool(stack, "export", name.display).stdout.splitlines()[1:]
    asked = tool(stack, "forget-token", name.display, code=1)
    assert "fencing token 7" in asked.stdout and "add --yes" in asked.stderr
    done = json_lines(tool(stack, "forget-token", name.display, "--yes", "--json"))[0]
    assert done["written"] and (done["fencingToken"], done["footer"]["fencingToken"]) == (7, 7)
    assert "nothing is to be done" in tool(stack, "forget-token", name.display).stdout
    assert tool(stack, "export", name.display).stdout.splitlines()[1:] == whole
    third = Daemon(stack, tmp_path)
    asyncio.run(make_cursor(third.address, name.topic))
    assert third.stop() == 0


def test_an_older_footer_and_one_that_was_made_anew(stack: Standalone, tmp_path: Path) -> None:
    """Nothing is opened from older bytes, nothing is deleted because of them, and the latest ones
    bring everything back.
    """
    name = CursorName("persistent://t/ns/older", SUB)
    first = Daemon(stack, tmp_path)
    asyncio.run(make_cursor(first.address, name.topic, rounds=1))
    assert first.stop() == 0
    older = asyncio.run(footer_bytes_of(stack, name))
    second = Daemon(stack, tmp_path)
    asyncio.run(make_cursor(second.address, name.topic, rounds=3))
    assert second.stop() == 0
    whole = tool(stack, "export", name.display).stdout.splitlines()[1:]
    latest = asyncio.run(footer_bytes_of(stack, name, older))

    third = Daemon(stack, tmp_path)
    with pytest.raises(CursorDamaged, match="FOOTER_REPLACED"):
        asyncio.run(make_cursor(third.address, name.topic))
    assert "its znode has version" in tool(stack, "verify", name.display, code=1).stdout
    swept = json_lines(tool(stack, "gc", "--json", code=1))[0]
    assert [d["cursor"] for d in swept["doubts"]] == [name.display] and not swept["deleted"]

    files = {"older": older, "latest": latest}
    for title, data in files.items():
        (tmp_path / title).write_bytes(data + b"\n")
    refused = tool(stack, "restore-footer", name.display, str(tmp_path / "older"), "--yes", code=1)
    assert "NOT THE LATEST: ledger" in refused.stdout and "footer to restore" in refused.stderr
    asked = tool(stack, "restore-footer", name.display, str(tmp_path / "latest"), code=1)
    assert "epoch" in asked.stdout and "add --yes" in asked.stderr
    done = json_lines(
        tool(stack, "restore-footer", name.display, str(tmp_path / "latest"), "--yes", "--json")
    )[0]
    assert done["written"] and done["differences"]["epoch"] == {"there": 1, "bytes": 2}
    assert tool(stack, "export", name.display).stdout.splitlines()[1:] == whole
    asyncio.run(make_cursor(third.address, name.topic))
    ledgers = {
        x["ledger"]
        for x in json_lines(tool(stack, "inspect", name.display, "--json"))
        if x["type"] == "ledger"
    }

    # it is deleted under its owner, who says what it had committed, and made anew; until its epoch
    # has passed every old one
    asyncio.run(footer_bytes_of(stack, name, gone=True))
    third.stop()
    for _ in range(5):
        fresh = Daemon(stack, tmp_path)
        asyncio.run(make_cursor(fresh.address, name.topic, rounds=1))
        assert fresh.stop() == 0
        tool(stack, "gc", code=None)
    still = json_lines(tool(stack, "gc", "--json", "--dry-run", code=None))[0]
    assert still["garbage"] == 0 and still["kept"] >= len(ledgers)
