"""The spark-submit line that does the same as a call of `cursorkeeper pipeline`. Pure: it starts nothing.

A cluster's workers need Python with this package: `--archives` brings an environment that is unpacked as `ENVIRONMENT` in the working
directory of each executor, and PYSPARK_PYTHON names the Python in it. A Python data source is planned on the driver with that same
PYSPARK_PYTHON (Spark 4.3), so in client mode the archive must also be unpacked as `ENVIRONMENT` where spark-submit is called.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENVIRONMENT = "ckenv"
ARCHIVE = "cursorkeeper-env.tar.gz"
CODE = "cursorkeeper.zip"
MAIN = Path(__file__).with_name("pipeline_main.py")


@dataclass(frozen=True, slots=True)
class Submit:
    """What the line says. `arguments`: of the job, behind its name."""

    job: str
    arguments: Sequence[str] = ()
    master: str = ""
    remote: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """The driver's own Python does all the work."""
        return not self.remote and self.master.startswith("local")

    def line(self) -> str:
        """For a shell, one argument pair a line."""
        python = sys.executable if self.is_local else f"./{ENVIRONMENT}/bin/python"
        pairs = [("--remote", self.remote)] if self.remote else [("--master", self.master)]
        if not self.is_local and not self.remote:
            pairs += [("--archives", f"{ARCHIVE}#{ENVIRONMENT}"), ("--py-files", CODE)]
        pairs += [("--conf", f"{key}={value}") for key, value in self.conf.items()]
        words = [f"{flag} {shlex.quote(value)}" for flag, value in pairs]
        head = "spark-submit" if self.remote else f"PYSPARK_PYTHON={shlex.quote(python)} spark-submit"
        return " \\\n  ".join([head, *words, shlex.quote(str(MAIN)), shlex.join([self.job, *self.arguments])])

    def notes(self) -> list[str]:
        """What has to be done before the line works."""
        if self.is_local:
            return []
        if self.remote:
            return ["The server's own Python path needs cursorkeeper; nothing is sent to it."]
        return [
            f"Make the environment once: python -m venv /tmp/{ENVIRONMENT} && /tmp/{ENVIRONMENT}/bin/pip install 'cursorkeeper[spark]' "
            f"venv-pack && /tmp/{ENVIRONMENT}/bin/venv-pack -p /tmp/{ENVIRONMENT} -o {ARCHIVE}",
            f"Make the code: cd $(python -c 'import cursorkeeper, pathlib; print(pathlib.Path(cursorkeeper.__file__).parent.parent)') && "
            f"zip -qr $OLDPWD/{CODE} cursorkeeper cursorkeeper_clients cursorkeeper_pipeline pyspark_cursorkeeper",
            f"In client mode unpack the environment here too: mkdir {ENVIRONMENT} && tar -xzf {ARCHIVE} -C {ENVIRONMENT}",
            "Files that options name (settings, tokens) must be at the same path on every node.",
        ]
