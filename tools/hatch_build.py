"""Build hook: what a distribution holds that no checkout does. The message code, and the gateway's jar.

A wheel and an editable install generate the message code first. A wheel brings the jar along beside `java_process.py`, which finds it
there; an sdist holds it where Maven puts it, so that a wheel can be built from the sdist without Maven. An editable install takes
the checkout's own. Invariant: a distribution that lacks the jar was asked for, by `CURSORKEEPER_WHEEL_JAR=no`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR = "java/gateway/target/cursorkeeper-gateway.jar"
JAR_IN_WHEEL = "cursorkeeper/demo/stack/cursorkeeper-gateway.jar"
JAR_VARIABLE = "CURSORKEEPER_WHEEL_JAR"


class DistributionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Of the targets wheel and sdist; `version` is standard or editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel":
            self._generate_message_code()
        if version == "editable" or (self.target_name == "wheel" and self._is_without_jar()):
            return
        jar = Path(self.root) / JAR
        if not jar.is_file():
            self.app.abort(
                f"no gateway jar at {jar}: build it with `make jar` (needs a JDK and Maven). "
                f"{JAR_VARIABLE}=no in the environment builds a wheel without it, for a daemon whose gateway runs elsewhere."
            )
        build_data["force_include"][str(jar)] = JAR_IN_WHEEL if self.target_name == "wheel" else JAR

    def _generate_message_code(self) -> None:
        sys.path.insert(0, str(Path(self.root) / "tools"))
        from build_protos import build

        build()

    def _is_without_jar(self) -> bool:
        said = os.environ.get(JAR_VARIABLE, "")
        if said not in ("", "yes", "no"):
            self.app.abort(f"{JAR_VARIABLE} = {said!r}: use yes or no")
        return said == "no"
