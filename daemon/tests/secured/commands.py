"""Every command of the program on the secured cluster, with the settings of its daemon. Serves the
stories of this folder.

Owns: which command is tried where, and what each must say. Does not own: the systems, nor what is
in them (`test_whole_system`). Invariant: a command counts as tried when it ended with 0.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.brokers.secured.system import System, toml

ON_CURSORS = frozenset(
    [
        "ls",
        "inspect",
        "verify",
        "export",
        "import",
        "gc",
        "restore-footer",
        "forget-token",
        "set-acl",
    ]
)
ON_PULSAR = frozenset(["assess", "import-pulsar", "verify", "orphans"])
ON_THE_WAY_BACK = frozenset(["export-pulsar"])
SERVERS = frozenset(["run", "health"])
"""The daemon itself, and who asks whether it serves: every story of `test_whole_system`."""
ELSEWHERE = {
    "demo": "starts a cluster of its own",
    "sizes": "asks no cluster",
    "pipeline": "pipeline/tests/test_secured_cluster.py",
}
OPENED = "/opened/cursors"
"""A root whose nodes are everybody's at first."""
SMALL = """\
{"type":"cursor","format":1,"topic":"persistent://public/default/small","subscription":"s",\
"markDelete":[7,3],"epoch":3,"generation":2,"markDeleteProperties":{},"cursorProperties":{},\
"layout":[[7,"OPEN",0]]}
{"type":"acks","ledger":7,"ranges":[[5,6],[9,9]]}
{"type":"end","acked":3,"partials":0,"lines":2}
"""
"""A whole file as `export` writes it, of one small cursor."""


def said(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Its JSON lines; it went well."""
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Commands:
    """Those of one story. `tried`: the names of those that ended well."""

    def __init__(self, system: System) -> None:
        self.system, self.tried = system, set[str]()

    def __call__(self, *words: str, here: list[str] | None = None) -> list[dict[str, Any]]:
        """One command; its JSON lines."""
        lines = said(self.system.tool(*words, "--json", here=here))
        self.tried.add(words[0])
        return lines

    def together(self, *each: Iterable[str]) -> Iterable[list[dict[str, Any]]]:
        """Several, beside each other."""
        with ThreadPoolExecutor(3) as threads:
            return list(threads.map(lambda words: self(*words), each))


def on_cursors(system: System, cursor: str, copy: str, acked: set[tuple[int, int]]) -> None:
    """The daemon has stopped, and closed this cursor, its only one."""
    call, file = Commands(system), str(system.cluster.folder / "cursor.jsonl")
    listed, shown, verified = call.together(("ls",), ("inspect", cursor), ("verify", "--all"))
    assert [(one["cursor"], one["state"]) for one in listed] == [(cursor, "closed")]
    assert shown[0]["type"] == "footer" and all(one.get("ok", True) for one in shown)
    assert verified[0]["ok"] and not verified[0]["atLeast"]
    assert verified[0]["totals"]["acked"] == len(acked)
    call("export", cursor, "-o", file)
    [made] = call("import", file, "--cursor", copy)
    assert made["acked"] == verified[0]["totals"]["acked"]
    swept, restored, forgotten, again = call.together(
        ("gc",),
        ("restore-footer", copy, "--as-it-is", "--yes"),
        ("forget-token", cursor),
        ("export", copy, "-o", f"{file}.again"),
    )
    # a daemon that was killed may have left a ledger that no footer came to name
    assert swept[0]["named"] >= 2 and swept[0]["garbage"] == swept[0]["deleted"]
    assert swept[0]["failed"] == swept[0]["doubtful"] == 0
    assert restored[0]["written"] and restored[0]["differences"] == {}
    assert forgotten[0]["fencingToken"] == 0
    assert not again[0]["atLeast"]
    one, other = (Path(each).read_text().splitlines() for each in (file, f"{file}.again"))
    assert one[1:] == other[1:]
    a_signed_token_counts(call)
    open_nodes_are_shut(call)
    assert call.tried == ON_CURSORS


def a_signed_token_counts(call: Commands) -> None:
    """Gateways have Pulsar's key from broker.conf alone: who shows a certificate that nobody knows
    is let in by a token.
    """
    system = call.system
    settings = {
        **system.daemon_settings(),
        "tls_certificate_file_path": system.stranger.certificate,
        "tls_key_file_path": system.stranger.key,
        "gateway_token_file": system.token_file("operator"),
    }
    config = system.cluster.written("operator.toml", toml(settings))
    reports = call("verify", "--all", here=["--broker-conf", system.conf, "--config", config])
    assert all(report["ok"] for report in reports)


def open_nodes_are_shut(call: Commands) -> None:
    """A deployment from before ZooKeeper knew users becomes one user's."""
    system = call.system
    written = system.cluster.written
    settings = {
        name: value
        for name, value in system.daemon_settings().items()
        if name not in ("zookeeper_auth_file", "zookeeper_acl")
    }
    # to ZooKeeper a certificate is a user, too
    stranger = settings | {
        "tls_certificate_file_path": system.stranger.certificate,
        "tls_key_file_path": system.stranger.key,
    }
    before, nobody = (
        ["--broker-conf", system.conf, "--config", written(name, toml(values))]
        for name, values in (("before.toml", settings), ("nobody.toml", stranger))
    )
    file, root = written("small.jsonl", SMALL), ("--root", OPENED)
    call("import", file, *root, here=before)
    assert call("ls", *root, here=nobody)
    [shut] = call("set-acl", "--yes", *root)
    assert shut["written"] and shut["changed"] >= 2 and shut["refused"] == 0
    assert shut["loseAccess"] == {"world:anyone": shut["changed"]}
    [one] = call("ls", *root)
    assert one["state"] == "closed"
    done = system.tool("ls", *root, here=nobody)
    assert done.returncode == 1 and "AccessDenied" in done.stderr, done.stderr


def on_pulsar(system: System, cursor: str) -> None:
    """Those that look at Pulsar's own metadata, make cursors of it, or delete ours that it does not
    have. The cursor is the only one of a broker that runs.
    """
    call, file = Commands(system), system.cluster.written("small.jsonl", SMALL)
    topic, _, _ = cursor.partition("|")
    second = ("--root", "/cursorkeeper/second")
    call("import", file, "--replace")
    assessed, imported = call.together(("assess", "--all"), ("import-pulsar", cursor, *second))
    assert topic in [one["topic"] for one in assessed[:-1]]
    [one, summary] = imported
    assert (one["cursor"], one["ok"], summary["cursors"]) == (cursor, True, 1)
    [report] = call("verify", "--all", *second)
    assert (report["cursor"], report["ok"]) == (cursor, True)
    # all that were made without a broker
    everything = ("--percent-max", "100", "--age", "0s")
    *ended, _ = call("orphans", "--delete", *everything)
    small: dict[str, str] = json.loads(SMALL.splitlines()[0])
    assert f"{small['topic']}|{small['subscription']}" in {each.get("cursor") for each in ended}
    assert topic not in {each["cursor"].partition("|")[0] for each in ended}
    *left, _ = call("orphans", *everything)
    assert left == []
    call.tried.remove("import")
    assert call.tried == ON_PULSAR


def on_the_way_back(system: System, cursor: str, version: str) -> None:
    """Broker and daemon have stopped: Pulsar's own cursor becomes what ours is."""
    call = Commands(system)
    way = ("export-pulsar", cursor, "--target-version", version)
    [dry, _] = call(*way, "--replace", "--dry-run")
    assert (dry["cursor"], dry["status"]) == (cursor, "would be replaced")
    [done, summary] = call(*way, "--replace")
    assert (done["status"], done["ok"], summary["cursors"]) == ("replaced", True, 1)
    [same, _] = call(*way)
    assert (same["status"], same["ok"]) == ("already there", True)
    assert call.tried == ON_THE_WAY_BACK
