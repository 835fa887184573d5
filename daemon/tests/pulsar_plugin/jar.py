"""Where the plugin's jars and test classes are, as `make plugin-jar` leaves them."""

from __future__ import annotations

import os
from pathlib import Path

LINES = {"4.2": "4.2.4", "5.0": "5.0.0-M1"}
"""Line of Pulsar -> the version that its tests run on."""

_PLUGIN = Path(__file__).resolve().parents[3] / "java" / "pulsar-plugin"
JAR = _PLUGIN / "pulsar-4.2" / "target" / "cursorkeeper-pulsar-plugin-4.2.jar"
"""One for all lines from 4.2 on."""


def class_path(line: str) -> str:
    """The plugin's jar, its tests, and what Pulsar's managed ledger needs."""
    if not JAR.is_file():
        raise AssertionError(f"{JAR} is missing: make plugin-jar")
    target = _PLUGIN / f"pulsar-{line}" / "target"
    return os.pathsep.join([str(JAR), str(target / "test-classes"), (target / "pulsar.classpath").read_text().strip()])
