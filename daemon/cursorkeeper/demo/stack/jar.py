"""What a process of the gateway jar needs: the jar, and a Java that can run it.

Owns: where the jar is looked for, and what is said when one of them is missing. Does not own: the
process (`java_process`), nor how the jar comes into a wheel (the build hook in `tools/`).
Invariant: a checkout never runs another jar than its own, unless it is named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cursorkeeper.demo.stack.errors import StackError

JAR_VARIABLE = "CURSORKEEPER_GATEWAY_JAR"
JAR_NAME = "cursorkeeper-gateway.jar"
SOURCES_IN_REPOSITORY = Path("java/gateway/pom.xml")
JAR_IN_REPOSITORY = Path("java/gateway/target") / JAR_NAME
JAVA_MIN = 17
VERSION_MAX_S = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
"""Of `java -version`: "1.8.0_402" is 8, "17.0.15" is 17, "25-ea" is 25."""


def find_jar(environment: Mapping[str, str] | None = None, here: Path = Path(__file__)) -> Path:
    """The gateway jar: the one that `CURSORKEEPER_GATEWAY_JAR` names, the one built in this
    checkout, or the one that the wheel brought.

    `here`: the place of this file, which says whether it is a checkout's. Raises StackError.
    """
    named = (os.environ if environment is None else environment).get(JAR_VARIABLE)
    if named:
        return _there(
            Path(named), f"{JAR_VARIABLE} names it: name one that is there, or unset the variable"
        )
    folder = here.resolve().parent
    repository = folder.parents[3]
    if (repository / SOURCES_IN_REPOSITORY).is_file():
        return _there(
            repository / JAR_IN_REPOSITORY,
            f"build it with `make jar`, or name one in {JAR_VARIABLE}",
        )
    return _there(
        folder / JAR_NAME,
        "this cursorkeeper was installed from a wheel that was built without it "
        "(CURSORKEEPER_WHEEL_JAR=no): "
        f"install the wheel that brings it along, or name a jar in {JAR_VARIABLE}",
    )


def _there(jar: Path, remedy: str) -> Path:
    if not jar.is_file():
        raise StackError(f"no gateway jar at {jar}. What to do: {remedy}")
    return jar


def check_java(java: str = "java") -> int:
    """The version of the Java on PATH, 17 or newer. Raises StackError."""
    remedy = (
        f"What to do: install a JDK or a JRE of version {JAVA_MIN} or newer, and put its "
        f"`java` on PATH"
    )
    program = shutil.which(java)
    if program is None:
        raise StackError(f"there is no `{java}` on PATH, and the gateway runs in it. {remedy}")
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_MAX_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise StackError(f"{program} cannot be run: {e}. {remedy}") from e
    said = (done.stderr + done.stdout).strip()
    found = _VERSION.search(said)
    if done.returncode != 0 or found is None:
        raise StackError(
            f"{program} -version ended with status {done.returncode} and said {said[:300]!r}. "
            f"{remedy}"
        )
    version = int(found[1])
    if version < JAVA_MIN:
        raise StackError(f"{program} is Java {version}, and the gateway needs {JAVA_MIN}. {remedy}")
    return version
