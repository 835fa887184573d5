"""The audit log: every change has its line, with who and whence; no secrets; bounded."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cursorkeeper.access import audit as audits
from cursorkeeper.access.audit import Audit
from cursorkeeper.access.callers import Shown
from cursorkeeper.access.identity import ANYBODY
from cursorkeeper.settings import SettingsError
from cursorkeeper_client import Client, ClientSettings, CursorKeeperError, LayoutItem, LayoutState
from cursorkeeper_client.store import CursorStore
from daemon.tests.stream.served import ServedKeeper

TOPIC, LAYOUT = "persistent://t/n/topic", (LayoutItem(7, LayoutState.OPEN),)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_what_happens_to_cursors_is_written(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    served = ServedKeeper()
    served.credentials, served.readers_token = b"a secret", b"another secret"
    served.audit = Audit(str(file))
    await served.start()
    said = ClientSettings(name="me", credentials=b"a secret")
    async with asyncio.timeout(60), Client(served.address, said) as client:
        cursor = client.cursor(TOPIC, "s", layout=LAYOUT)
        await cursor.opened()
        await cursor.ack(7, 3)
        await cursor.durable()
        await cursor.reset((7, 1))
        await cursor.close()
        async with client.cursor(TOPIC, "s", takeover=False) as again:
            await again.opened()
            async with (
                Client(served.address, said) as thief,
                thief.cursor(TOPIC, "s", takeover=True) as stolen,
            ):
                await stolen.opened()
        await client.delete(TOPIC, "s")
        with pytest.raises(CursorKeeperError):
            await client.cursor(TOPIC, "other", create=False).opened()
        guess = ClientSettings(credentials=b"a guess")
        async with Client(served.address, guess) as stranger:
            with pytest.raises(CursorKeeperError):
                await stranger.cursor(TOPIC, "s").opened()
        reader = ClientSettings(credentials=b"another secret")
        async with CursorStore(served.address, reader) as store:
            with pytest.raises(CursorKeeperError):
                async for _ in store.delete_topic(TOPIC):
                    pass
    await served.kill()
    served.audit.close()
    assert "secret" not in file.read_text() and "guess" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = lines(file)
    assert all(line["from"].startswith(("ipv4:127.0.0.1:", "ipv6:")) for line in told)
    did = [line["action"] for line in told if line["result"] == "done"]
    assert [each for each in did if each not in ("lose", "close")] == [
        "create",
        "reset",
        "open",
        "open",
        "delete",
    ]
    assert {"lose", "close"} <= set(did)
    assert [line["takeover"] for line in told if line["action"] == "open"] == [False, True]
    done = [line for line in told if line["result"] == "done"]
    cursors = {(line["who"], str(line["cursor"])) for line in done}
    assert cursors == {("source", f"{TOPIC}|s")}
    refused = [(line["action"], line["result"], line["who"]) for line in told]
    assert ("cursor", "refused", "source") in refused
    assert ("Publish", "unauthenticated", "") in refused
    assert ("DeleteTopic", "refused", "reader") in refused


def test_who_is_refused_often_is_written_a_few_times(tmp_path: Path) -> None:
    now = [100.0]
    file = tmp_path / "audit.log"
    audit = Audit(str(file), clock=lambda: now[0])
    for second in range(3):
        now[0] = 100.0 + second
        for port in range(1_000):
            audit.refused("Get", None, Shown(f"ipv4:10.0.0.1:{port}"), "no")
        audit.refused("Get", None, Shown("ipv4:10.0.0.2:1"), "no")
    for host in range(3 * audits.REFUSED_KNOWN_MAX):
        audit.refused("Get", None, Shown(f"ipv4:10.1.{host}:1"), "no")
    assert len(audit._refused) <= audits.REFUSED_KNOWN_MAX
    audit.close()
    told = [line for line in lines(file) if line["from"].startswith("ipv4:10.0.0.1:")]
    assert len(told) == 3 * audits.REFUSALS_PER_S
    assert [line["left_out"] for line in told if "left_out" in line] == [995, 995]
    assert sum(line["from"] == "ipv4:10.0.0.2:1" for line in lines(file)) == 3


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    audit = Audit(str(file))
    audit.did("open", ANYBODY, Shown("a"), cursor="1")
    ends_at_s = time.monotonic() + 60
    while not file.read_text() and time.monotonic() < ends_at_s:
        time.sleep(0.01)
    file.rename(tmp_path / "audit.log.1")
    audit.did("open", ANYBODY, Shown("a"), cursor="2")
    audit.close()
    assert [line["cursor"] for line in lines(file)] == ["2"]
    assert [line["cursor"] for line in lines(tmp_path / "audit.log.1")] == ["1"]


def test_a_disk_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    """A pipe that nobody reads, until it is read to its end."""
    pipe, dropped = tmp_path / "audit.log", list[int]()
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    audit = Audit(str(pipe), lambda: dropped.append(1), waiting_max=10)
    for number in range(5_000):
        audit.did("open", ANYBODY, Shown("a"), cursor=number)
    assert dropped
    os.set_blocking(reading, True)
    with ThreadPoolExecutor(1) as thread, os.fdopen(reading) as read:
        rest = thread.submit(read.read)
        audit.close()
        told = [json.loads(line) for line in rest.result(60).splitlines()]
    assert len(told) + len(dropped) == 5_000
    assert [line["cursor"] for line in told] == sorted(line["cursor"] for line in told)


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"audit_log_file = .*: No such file"):
        Audit(str(tmp_path / "none" / "audit.log"))
