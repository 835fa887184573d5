"""A job's options as a TOML file, and words K=V; both become the values that flags would have given.

    zookeeper = "zk1:2181,zk2:2181"
    master = "spark://host:7077"
    [conf]
    "spark.executor.memory" = "2g"
    [report]
    since = "reports/2026-11-20"

Every error names the file or the option, and the remedy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from cursorkeeper_pipeline.source.options import OptionError


def load(file: Path, job: str, known: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options that all jobs share, this job's own). Tables of other jobs are nobody's business here. Raises OptionError."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"job-config {file}: {error.strerror}. What to do: check the path and its rights") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"job-config {file}: {error}. What to do: correct the TOML") from None
    from cursorkeeper_pipeline.jobs.frame import JOBS

    common: dict[str, Any] = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name in known:
            common[name] = value
        elif key not in JOBS:
            raise OptionError(f"job-config {file}: unknown option {key}. What to do: use one of {', '.join(known)}, or [JOB]")
    own = found.get(job, {})
    if not isinstance(own, dict):
        raise OptionError(f"job-config {file}: {job} is no table. What to do: write [{job}]")
    return common, {key.replace("-", "_"): value for key, value in own.items()}


def convert(job: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A job's `Arguments`. Raises OptionError."""
    names = [field.name for field in fields(kind)]
    for key in values:
        if key not in names:
            raise OptionError(f"{job}: unknown option {key}. What to do: use one of {', '.join(names)}")
    try:
        return msgspec.convert(dict(values), kind, strict=False, dec_hook=lambda wanted, value: wanted(value))
    except (msgspec.ValidationError, ValueError) as error:
        raise OptionError(f"{job}: {error}. What to do: see `cursorkeeper pipeline {job} --help`") from None


def pairs(option: str, given: Mapping[str, Any] | Sequence[str]) -> dict[str, str]:
    """Of words K=V, or of a TOML table. Raises OptionError."""
    if isinstance(given, Mapping):
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{option} = {word!r}. What to do: write key=value")
        found[key.strip()] = value
    return found
