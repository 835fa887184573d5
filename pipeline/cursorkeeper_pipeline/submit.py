"""The spark-submit line that does the same as a call of `cursorkeeper pipeline`. Pure: it starts
nothing.

A cluster's workers need Python with this package: `--archives` brings an environment that is
unpacked as `ENVIRONMENT` in the working directory of each executor, and PYSPARK_PYTHON names the
Python in it. A Python data source is planned on the driver with that same PYSPARK_PYTHON (Spark
4.3), so in client mode the archive must also be unpacked as `ENVIRONMENT` where spark-submit is
called.

Invariant: no secret is in the line. What is left out is named in the notes, with the place where it
belongs.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cursorkeeper_pipeline.redaction import is_secret, masked

ENVIRONMENT = "ckenv"
ARCHIVE = "cursorkeeper-env.tar.gz"
CODE = "cursorkeeper.zip"
REMOTE = "SPARK_REMOTE"
"""Where Spark itself looks for a Spark Connect server."""
_INIT = "PYSPARK_REMOTE_INIT_CONF"
MAIN = Path(__file__).with_name("pipeline_main.py")


def told_remote(environment: Mapping[str, str]) -> str:
    """The Spark Connect server that Spark was told, by somebody or by spark-submit --remote (which
    Spark 4.3 hands over as JSON); or "".
    """
    conf: dict[str, str] = {}
    for at in range(int(environment.get(f"{_INIT}_LEN", "0"))):
        conf |= json.loads(environment[f"{_INIT}_{at}"])
    return environment.get(REMOTE, "") or conf.get("spark.remote", "")


@dataclass(frozen=True, slots=True)
class Submit:
    """What the line says. `arguments`: of the job, behind its name, without secrets; `left_out`:
    options that were left out of them; `filed`: settings that the job's file has, which is among
    the arguments.
    """

    job: str
    arguments: Sequence[str] = ()
    master: str = ""
    remote: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    filed: Collection[str] = ()

    @property
    def is_local(self) -> bool:
        """The driver's own Python does all the work."""
        return not self.remote and self.master.startswith("local")

    def line(self) -> str:
        """For a shell, one argument pair a line."""
        python = sys.executable if self.is_local else f"./{ENVIRONMENT}/bin/python"
        pairs = [] if self.remote else [("--master", self.master)]
        if not self.is_local and not self.remote:
            pairs += [("--archives", f"{ARCHIVE}#{ENVIRONMENT}"), ("--py-files", CODE)]
        pairs += [
            ("--conf", f"{key}={value}")
            for key, value in self.conf.items()
            if not is_secret(key, value)
        ]
        words = [f"{flag} {shlex.quote(value)}" for flag, value in pairs]
        if self.remote:
            words.insert(
                0,
                f"--remote {shlex.quote(self.remote)}"
                if self._is_open
                else f'--remote "${REMOTE}"',
            )
        head = (
            "spark-submit" if self.remote else f"PYSPARK_PYTHON={shlex.quote(python)} spark-submit"
        )
        return " \\\n  ".join(
            [head, *words, shlex.quote(str(MAIN)), shlex.join([self.job, *self.arguments])]
        )

    def notes(self) -> list[str]:
        """What has to be done before the line works."""
        if self.is_local:
            return self._secrets()
        if self.remote:
            return [
                "The server's own Python path needs cursorkeeper; nothing is sent to it.",
                *self._secrets(),
            ]
        return [
            f"Make the environment once: python -m venv /tmp/{ENVIRONMENT} && "
            f"/tmp/{ENVIRONMENT}/bin/pip install cursorkeeper_client-VERSION-py3-none-any.whl "
            "cursorkeeper-VERSION-py3-none-any.whl cursorkeeper_spark-VERSION-py3-none-any.whl "
            f"venv-pack && /tmp/{ENVIRONMENT}/bin/venv-pack -p /tmp/{ENVIRONMENT} -o {ARCHIVE}",
            f"Make the code: cd $(python -c 'import cursorkeeper, pathlib; "
            f"print(pathlib.Path(cursorkeeper.__file__).parent.parent)') && "
            f"zip -qr $OLDPWD/{CODE} cursorkeeper cursorkeeper_client cursorkeeper_pipeline "
            f"pyspark_cursorkeeper",
            f"In client mode unpack the environment here too: mkdir {ENVIRONMENT} && tar -xzf "
            f"{ARCHIVE} -C {ENVIRONMENT}",
            "Files that options and settings name (tokens, ZooKeeper's user, certificates, keys) "
            "must be at the same path on every node, readable for the user of its executors.",
            *self._secrets(),
        ]

    @property
    def _is_open(self) -> bool:
        """The remote's address holds no secret."""
        return masked(self.remote) == self.remote

    def _secrets(self) -> list[str]:
        secret = [key for key, value in self.conf.items() if is_secret(key, value)]
        typed, filed = (
            [key for key in secret if key not in self.filed],
            [key for key in secret if key in self.filed],
        )
        notes = (
            []
            if self._is_open
            else [
                f"Not printed: the whole of {masked(self.remote)}. Put it into {REMOTE} in the "
                f"environment."
            ]
        )
        if typed:
            where = (
                "[conf] of a --job-config FILE.toml that only you can read, or spark-defaults.conf"
            )
            notes.append(f"Not printed: --conf {', '.join(typed)}. Put it into {where}.")
        if filed:
            notes.append(
                f"Not printed: {', '.join(filed)}; the job reads it from the file of --job-config."
            )
        if self.left_out:
            notes.append(
                f"Not printed: --option {', '.join(self.left_out)}. Put it into "
                f"CURSORKEEPER_PASSWORD in the environment, "
                "or as password into the file of --config."
            )
        return notes
