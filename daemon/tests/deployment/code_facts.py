"""What the code knows by name: metrics, settings, flags, events of the log. Pages and files under
deploy/ may name only these.

Owns: where each kind of name comes from. Nothing is listed by hand: a name that the code drops is
missing here at once.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from prometheus_client import generate_latest

from cursorkeeper.settings import SETTINGS
from cursorkeeper.telemetry.merged import MergedPages, Page
from cursorkeeper.telemetry.metrics import DaemonTelemetry
from daemon.tests.deployment.places import ROOT
from daemon.tests.support.world import World

JAVA = ROOT / "java/gateway/src/main/java"
PLUGIN = ROOT / "java/pulsar-plugin/src"
IN_THE_BROKER = (
    PLUGIN / "main",
    *sorted(PLUGIN.glob("line-*")),
    ROOT / "java/keeper-client/src/main",
    ROOT / "java/pulsar-receipts/src/main",
)
PLUGINS_METRICS = "pulsar_cursorkeeper_"
PYTHON = (ROOT / "daemon/cursorkeeper", ROOT / "clients/cursorkeeper_client")
GATEWAY_METRICS = "cursorkeeper_gateway_"


@cache
def java(path: Path) -> str:
    """A source with each text, and each call's first argument, on one line."""
    text = re.sub(r'"\s*\n\s*\+ "', "", path.read_text())
    return re.sub(
        r"(?<=[(=])\s*\n\s*", lambda gap: "" if gap.string[gap.start() - 1] == "(" else " ", text
    )


@cache
def java_source() -> str:
    """All of the jar's."""
    return "\n".join(java(path) for path in sorted(JAVA.rglob("*.java")))


@cache
def python_source() -> str:
    """All of the daemon's and its clients', without the generated message code."""
    return "\n".join(
        path.read_text()
        for folder in PYTHON
        for path in sorted(folder.rglob("*.py"))
        if "_pb2" not in path.name
    )


async def daemon_metrics() -> set[str]:
    """Names on a daemon's page, from the page itself, and on that of one with workers."""
    telemetry, world = DaemonTelemetry(), World()
    telemetry.watch(await world.keeper())
    several = MergedPages(lambda: {0: Page(1, 0, generate_latest(telemetry.registry).decode())})
    names: set[str] = set()
    for metric in [*telemetry.registry.collect(), *several.collect()]:
        names.add(metric.name + "_total" if metric.type == "counter" else metric.name)
        names |= {sample.name for sample in metric.samples}
    return names


@cache
def gateway_metrics() -> set[str]:
    """Names on a gateway's page: counters, gauges, and the histogram's three."""
    source = java_source()
    counters = re.findall(r'^\s+[A-Z_]+\("(\w+_total)"', source, re.MULTILINE)
    gauges = re.findall(r'metrics\.gauge\(\s*"(\w+)"', source)
    others = re.findall(r'head\(\s*page,\s*"(\w+)"', source) + re.findall(
        r'String name = "(append_seconds)"', source
    )
    histogram = [
        name + part
        for name in others
        if name.endswith("_seconds")
        for part in ("_bucket", "_sum", "_count")
    ]
    return {GATEWAY_METRICS + name for name in (*counters, *gauges, *others, *histogram)}


@cache
def broker_source() -> str:
    """All that runs in a Pulsar broker."""
    return "\n".join(
        java(path) for folder in IN_THE_BROKER for path in sorted(folder.rglob("*.java"))
    )


@cache
def plugin_settings() -> set[str]:
    """Of the plugin, by its own list."""
    source = java(PLUGIN / "main/java/io/cursorkeeper/pulsar/Settings.java")
    return {f"cursorKeeper{name}" for name in re.findall(r' = PREFIX \+ "(\w+)";', source)}


@cache
def plugin_metrics() -> set[str]:
    """What the plugin shows on the broker's page: by its table of figures."""
    table = java(PLUGIN / "main/java/io/cursorkeeper/pulsar/Figures.java")
    names = re.findall(r'gauge\("(\w+)"', table) + [
        name + "_total" for name in re.findall(r'counter\("(\w+)"', table)
    ]
    names += re.findall(r'\bPREFIX \+ "(\w+)"', table)
    histogram = [
        name + part
        for name in names
        if name.endswith("latency_seconds")
        for part in ("_bucket", "_sum", "_count")
    ]
    return {PLUGINS_METRICS + name for name in (*names, *histogram)}


def settings() -> set[str]:
    """Of the daemon, by our names."""
    return set(SETTINGS)


@cache
def jar_flags() -> set[str]:
    """Of all commands of the jar, without the dashes."""
    return _flags(java_source())


@cache
def gateway_flags() -> set[str]:
    """Of the command `gateway`, without the dashes."""
    folder = JAVA / "io/cursorkeeper/gateway"
    own = [path for path in folder.rglob("*.java") if "servers" not in path.parts]
    return _flags("\n".join(java(path) for path in sorted(own)))


def _flags(source: str) -> set[str]:
    constants = dict(re.findall(r'static final String ([A-Z_]+) = "([\w-]+)";', source))
    named = re.findall(r'Flag\.(?:text|number|required|yesNo)\(\s*("[\w-]+"|[A-Z_]+)', source)
    return {name.strip('"') if name[0] == '"' else constants[name] for name in named}


@cache
def module_flags(name: str) -> set[str]:
    """Of a module of the daemon that reads its command line with argparse, with the dashes."""
    return set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', (PYTHON[0] / name).read_text()))
