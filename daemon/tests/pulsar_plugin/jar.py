"""Where the plugin's jars and test classes are, as `make plugin-jar` leaves them."""

from __future__ import annotations

import os
from pathlib import Path

LINES = {"4.0": "4.0.7", "4.2": "4.2.4", "5.0": "5.0.0-M1"}
"""Line of Pulsar -> the version that its tests run on."""
ENDS = ("4.0", "5.0")
"""The oldest and the newest: of the two jars each is under one of them. `make test-brokers` plays
on the line between them what is played on these.
"""

_PLUGIN = Path(__file__).resolve().parents[3] / "java" / "pulsar-plugin"
JARS = {
    line: _PLUGIN / f"pulsar-{line}" / "target" / f"cursorkeeper-pulsar-plugin-{line}.jar"
    for line in ("4.0", "4.2")
}
JAR = JARS["4.2"]
"""For all lines from there on."""


def jar_of(line: str) -> Path:
    return JARS.get(line, JAR)


def class_path(line: str) -> str:
    """The plugin's jar, its tests, and what Pulsar's managed ledger needs."""
    jar = jar_of(line)
    if not jar.is_file():
        raise AssertionError(f"{jar} is missing: make plugin-jar")
    target = _PLUGIN / f"pulsar-{line}" / "target"
    return os.pathsep.join(
        [str(jar), str(target / "test-classes"), (target / "pulsar.classpath").read_text().strip()]
    )
