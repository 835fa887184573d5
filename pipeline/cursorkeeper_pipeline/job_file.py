"""A job's options as a TOML file, and words K=V; both become the values that flags would have
given.

    zookeeper = "zk1:2181,zk2:2181"
    master = "spark://host:7077"
    [conf]
    "spark.executor.memory" = "2g"          # without the quotes TOML makes tables of it; they are
    read as the same name
    [report]
    since = "reports/2026-11-20"

Invariant: the tables `conf` and `option` of the file and the words of the command line are joined
key by key; the command line wins. Every error names the file or the option, and the remedy.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import msgspec

from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.frame import JOBS, SETTINGS_FIELD

PAIRED: Final = ("conf", "option")
"""Words K=V, or a table."""


def load(file: Path, job: str, known: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options that all jobs share, this job's own). Tables of other jobs are nobody's business
    here. Raises OptionError.
    """
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(
            f"job-config {file}: {error.strerror}", "check the path and its rights"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"job-config {file}: {error}", "correct the TOML") from None
    common: dict[str, Any] = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name in known:
            common[name] = _common(file, name, value, known)
        elif key not in JOBS:
            here = (
                f"use one of {', '.join(known)}; an option of one job stands in its table, as "
                f"[{job}]"
            )
            raise OptionError(f"job-config {file}: unknown option {key}", here)
    own = found.get(job, {})
    if not isinstance(own, dict):
        raise OptionError(f"job-config {file}: {job} is no table", f"write [{job}]")
    return common, {key.replace("-", "_"): value for key, value in own.items()}


def convert(job: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A job's `Arguments`. Raises OptionError."""
    names = [field.name for field in fields(kind) if field.name != SETTINGS_FIELD]
    for key in values:
        if key not in names:
            raise OptionError(f"{job}: unknown option {key}", f"use one of {', '.join(names)}")
    try:
        return msgspec.convert(
            dict(values), kind, strict=False, dec_hook=lambda wanted, value: wanted(value)
        )
    except (msgspec.ValidationError, ValueError) as error:
        raise OptionError(f"{job}: {error}", f"see `cursorkeeper pipeline {job} --help`") from None


def _common(file: Path, name: str, value: object, known: Sequence[str]) -> object:
    """The value as the command line would have given it. Raises OptionError."""
    where = f"job-config {file}: {name}"
    if name in PAIRED:
        if not isinstance(value, Mapping | list):
            raise OptionError(f"{where} is no table", f"write [{name}] and its settings behind it")
        found = pairs(f"job-config {file}: [{name}]", value)
        for key in found if name == "conf" else ():
            if key.replace("-", "_") in known:
                raise OptionError(
                    f"{where} has {key}, which is no setting of Spark",
                    "move it in front of the first [table]",
                )
        return found
    kind = bool if name == "json" else str
    if not isinstance(value, kind):
        raise OptionError(
            f"{where} = {value!r}", f"write {'true or false' if kind is bool else 'it in quotes'}"
        )
    return value


def pairs(option: str, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, str]:
    """Of words K=V, or of a TOML table; tables in it are the parts of dotted names. Raises
    OptionError.
    """
    found: dict[str, str] = {}
    if isinstance(given, Mapping):
        for key, value in _flat(option, given):
            if key in found:
                raise OptionError(f"{option} {key} is given twice", "write it once, in quotes")
            found[key] = value
        return found
    for word in given:
        key, equals, value = word.partition("=") if isinstance(word, str) else ("", "", "")
        if not equals or not key.strip():
            raise OptionError(f"{option} = {word!r}", "write key=value")
        found[key.strip()] = value
    return found


def joined(option: str, filed: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, str]:
    """Of the file and of the command line, which wins. Options of the source are the same in any
    case. Raises OptionError.
    """
    mine, theirs = pairs(option, typed.get(option) or ()), pairs(option, filed.get(option) or {})
    same = str.lower if option == "option" else str
    said = {same(key) for key in mine}
    return {key: value for key, value in theirs.items() if same(key) not in said} | mine


def _flat(option: str, given: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            yield from _flat(option, value, f"{name}.")
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise OptionError(
                f"{option} {name} = {value!r}", "write text in quotes, a number, true or false"
            )
