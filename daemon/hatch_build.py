"""Build hook: what a distribution holds that no checkout does. The message code, and the gateway's
jar.

In a checkout the message code is generated first, and the jar is taken from where Maven puts it.
Both distributions hold the jar beside `demo/stack/jar.py`, which finds it there; a wheel is built
from the sdist alone, without Maven. An editable install takes the checkout's own jar. Invariant: a
wheel or an sdist that lacks the jar was asked for, by `CURSORKEEPER_WHEEL_JAR=no` (of wheels only).

`CURSORKEEPER_WHEEL_COMPILED=yes` makes a wheel of this interpreter and this machine's libraries,
with what acks pass as machine code beside its source; in a checkout, with a C compiler.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR_OF_MAVEN = "java/gateway/target/cursorkeeper-gateway.jar"
JAR = "cursorkeeper/demo/stack/cursorkeeper-gateway.jar"
JAR_VARIABLE = "CURSORKEEPER_WHEEL_JAR"
COMPILED = "cursorkeeper/_compiled"
COMPILED_VARIABLE = "CURSORKEEPER_WHEEL_COMPILED"


class DistributionHook(BuildHookInterface):  # type: ignore[type-arg]
    """Of the targets wheel and sdist; `version` is standard or editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        checkout = Path(self.root).parent
        is_checkout = (checkout / "tools/build_protos.py").is_file()
        if is_checkout:
            sys.path.insert(0, str(checkout / "tools"))
            from build_protos import build

            build()
        if version == "editable":
            return
        if self.target_name == "wheel":
            if self._said(COMPILED_VARIABLE) == "yes":
                self._compile(is_checkout, build_data)
            if self._said(JAR_VARIABLE) == "no":
                return
        jar = checkout / JAR_OF_MAVEN if is_checkout else Path(self.root) / JAR
        if not jar.is_file():
            self.app.abort(
                f"no gateway jar at {jar}: build it with `make jar` (needs a JDK and Maven). "
                f"{JAR_VARIABLE}=no in the environment builds a wheel without it, for a daemon "
                f"whose gateway runs elsewhere."
            )
        build_data["force_include"][str(jar)] = JAR

    def _compile(self, is_checkout: bool, build_data: dict[str, Any]) -> None:
        if not is_checkout:
            self.app.abort(f"{COMPILED_VARIABLE} is for builds from the repository")
        from compile_core import main

        folder = main(["--fail-on", "lack"])
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["force_include"][str(folder)] = f"{COMPILED}/{folder.name}"

    def _said(self, variable: str) -> str:
        said = os.environ.get(variable, "")
        if said not in ("", "yes", "no"):
            self.app.abort(f"{variable} = {said!r}: use yes or no")
        return said
