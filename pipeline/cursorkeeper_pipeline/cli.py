"""`cursorkeeper pipeline JOB`: the options that all jobs share, a job's own made from its
`Arguments`, and how a job ends.

Owns: from words on the command line (and a TOML file) to a job's values, the session around it, and
the exit code: 0 clean, 1 findings, 2 everything else. Nothing of Spark is imported before a job
really runs.

Invariant: an option that was not given is None here, so that the TOML file's value counts, then the
default.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from cursorkeeper.problems import Kind, Problem
from cursorkeeper.settings import SETTINGS
from cursorkeeper.terminal.failure import USAGE, install, show
from cursorkeeper.terminal.help import PlainCommand
from cursorkeeper.terminal.options import BrokerConf, Config, Debug, Gateway, Root, Zookeeper
from cursorkeeper_pipeline import job_file
from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.frame import FAILED, JOBS, LOCAL, SETTINGS_FIELD, Job, Reporter
from cursorkeeper_pipeline.redaction import SECRET_OPTIONS
from cursorkeeper_pipeline.source.options import (
    FOOTERS_ONLY,
    OF_GATEWAY,
    OF_ZOOKEEPER,
    PROTECTION,
    Options,
    text_of,
)
from cursorkeeper_pipeline.spelling import camel
from cursorkeeper_pipeline.submit import REMOTE, Submit, told_remote

_WHICH, _SPARK, _OWN = "Which cursors", "Spark", "This job"
EXTRA = ("pyspark", "pyarrow", "pandas")
_MASTER = re.compile(r"local(\[|-cluster\[|$)|yarn$|spark://.|k8s://.")
EPILOG = "Exit codes: 0 clean, 1 findings, 2 failed (usage, settings, a system that is away)."


def _text(help: str, panel: str, metavar: str = "") -> Any:
    return Annotated[
        str | None, typer.Option(help=help, rich_help_panel=panel, metavar=metavar or None)
    ]


COMMON: Mapping[str, Any] = {
    "zookeeper": Zookeeper,
    "gateway": Gateway,
    "root": Root,
    "config": Config,
    "broker_conf": BrokerConf,
    "tenant": _text("All cursors of a tenant.", _WHICH),
    "namespace": _text("All cursors of a namespace.", _WHICH, "TENANT/NAMESPACE"),
    "topic": _text("All cursors of a topic.", _WHICH),
    "subscription": _text("One cursor of the topic.", _WHICH),
    "option": Annotated[
        list[str] | None,
        typer.Option(
            help="A further option of the source, as mode=failfast, taskBytes=33554432, "
            "readRateMibS=10.",
            metavar="K=V",
            rich_help_panel=_WHICH,
        ),
    ],
    "master": _text(
        "Where it runs; default: local[*]. Under spark-submit, what that names.", _SPARK
    ),
    "remote": _text(
        "A Spark Connect server; its own Python path needs cursorkeeper.", _SPARK, "sc://HOST:PORT"
    ),
    "conf": Annotated[
        list[str] | None,
        typer.Option(help="A setting of Spark.", metavar="K=V", rich_help_panel=_SPARK),
    ],
    "print_submit": Annotated[
        bool | None,
        typer.Option(
            "--print-submit",
            help="Print the spark-submit line that does the same, and do nothing.",
            rich_help_panel=_SPARK,
        ),
    ],
    "job_config": Annotated[
        Path | None,
        typer.Option(
            help="These options as TOML: names as here, the job's own in a table of its name. "
            "The command line wins.",
            metavar="FILE.toml",
        ),
    ],
    "out": _text("Folder of the results.", "Output", "DIR"),
    "json": Annotated[
        bool | None,
        typer.Option(
            "--json", help="JSON on standard output, nothing else.", rich_help_panel="Output"
        ),
    ],
    "debug": Debug,
}
FLAGS = ("print_submit", "debug")
HAVE_FLAGS = ("zookeeper", "gateway", "root")
NOT_FOR_SUBMIT = ("master", "remote", "conf", *FLAGS)


class JobGroup(TyperGroup):
    """Knows the jobs by name and line; loads one when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As typer's, with the real command in place of its stub."""
        name, stub, rest = super().resolve_command(ctx, args)
        if name is None:
            return name, stub, rest
        missing = [module for module in EXTRA if find_spec(module) is None]
        if missing:
            show(
                Problem(
                    f"the pipeline needs {', '.join(missing)}",
                    install(distribution="cursorkeeper_spark"),
                    Kind.USAGE,
                )
            )
            raise typer.Exit(USAGE)
        return name, command(name), rest


app = typer.Typer(
    cls=JobGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
)


@app.callback()
def pipeline() -> None:
    """Every cursor of the fleet as tables, and jobs on them, in PySpark."""


def _stub() -> None:
    """Never called: `JobGroup` puts the real command in its place."""


for _name, (_where, _line) in JOBS.items():
    app.command(_name, help=_line)(_stub)


def job_of(name: str) -> Job:
    return cast(Job, import_module(JOBS[name][0]))


def command(name: str) -> Any:
    """The command of a job, with the job's own options."""
    job = job_of(name)

    def called(**given: Any) -> None:
        raise typer.Exit(execute(name, job, given))

    parameters = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for key, kind in {**COMMON, **own_options(job)}.items()
    ]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {}
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(
        name, cls=PlainCommand, help=inspect.getdoc(job) or JOBS[name][1], epilog=EPILOG
    )(called)
    return typer.main.get_command(single)


def own_options(job: Job) -> dict[str, Any]:
    """A job's `Arguments` as options of the command line."""
    hints = get_type_hints(job.Arguments)
    found = {}
    for field in fields(job.Arguments):
        if field.name == SETTINGS_FIELD:
            continue
        kind = hints[field.name]
        kind = next((k for k in get_args(kind) if k is not type(None)), kind)
        default = "" if field.default in (None, "", False) else f" [default: {field.default}]"
        option = typer.Option(
            help=field.metadata["help"] + default,
            rich_help_panel=_OWN,
            metavar=field.metadata["metavar"] or None,
        )
        found[field.name] = Annotated[kind | None, option]
    return found


def execute(name: str, job: Job, given: Mapping[str, Any]) -> int:
    """Runs a job with what the command line gave; the exit code. What it raises becomes a line with
    a remedy.
    """
    try:
        call = prepare(name, job, given)
        if given["print_submit"]:
            submit = submit_of(job, call, given)
            sys.stdout.write(submit.line() + "\n")
            sys.stderr.writelines(f"# {note}\n" for note in submit.notes())
            return 0
        return run(job, call)
    except Exception as error:
        if given["debug"]:
            traceback.print_exc()
        from cursorkeeper_pipeline.failures import problem_of_job

        show(problem_of_job(error))
        return FAILED


@dataclass(frozen=True, slots=True)
class Call:
    """A job and all that it was told. `conf`: settings of Spark."""

    name: str
    source: Options
    arguments: Any
    out: Reporter
    master: str
    remote: str
    conf: Mapping[str, str]


def prepare(name: str, job: Job, given: Mapping[str, Any]) -> Call:
    """Checked values, before anything is started. Raises OptionError, SettingsError."""
    values = {key: value for key, value in given.items() if value is not None}
    own = {key: values.pop(key) for key in own_options(job) if key in values}
    if given.get("job_config") is not None:
        common, theirs = job_file.load(
            given["job_config"], name, [k for k in COMMON if k not in (*FLAGS, "job_config")]
        )
        both = {key: job_file.joined(key, common, values) for key in job_file.PAIRED}
        values, own = {**common, **values, **both}, {**theirs, **own}
    settings = _settings(values)
    arguments = job_file.convert(name, job.Arguments, own)
    source = _source(job, values, settings)
    if any(field.name == SETTINGS_FIELD for field in fields(job.Arguments)):
        # what is written is protected as what is read
        told = {key.lower() for key in job_file.pairs("option", values.get("option", {}))}
        said = {name: getattr(source, name) for name in PROTECTION if camel(name).lower() in told}
        arguments = replace(arguments, **{SETTINGS_FIELD: settings.but(**said)})
    master, remote = _runs_at(values)
    out = Reporter(name, str(values.get("out", getattr(job, "OUT", ""))), bool(values.get("json")))
    return Call(
        name, source, arguments, out, master, remote, job_file.pairs("conf", values.get("conf", {}))
    )


def _runs_at(values: Mapping[str, Any]) -> tuple[str, str]:
    """Master and remote, one of them empty. Raises OptionError."""
    master, remote, found = (
        str(values.get("master", "")),
        str(values.get("remote", "")),
        told_remote(os.environ),
    )
    if remote and master:
        raise OptionError("master and remote are given", "give one of them")
    if found and master:  # Spark itself refuses this too, in words of its own
        raise OptionError(
            f"master = {master}, and Spark was told a remote",
            f"unset {REMOTE}, or leave out master",
        )
    if master and not _MASTER.match(master):
        raise OptionError(
            f"master = {master!r}: Spark knows no such master",
            "write local[*], yarn, spark://host:port or k8s://...",
        )
    remote = remote or found
    return ("", remote) if remote else (master or LOCAL, "")


def _settings(values: Mapping[str, Any]) -> Any:
    from cursorkeeper.terminal.options import settings_of

    given = {key: values.get(key) for key in ("zookeeper", "gateway", "root")}
    for key in ("config", "broker_conf"):
        given[key] = Path(values[key]) if values.get(key) else None
    return settings_of(**given)


def _source(job: Job, values: Mapping[str, Any], settings: Any) -> Options:
    systems = settings.systems
    text = {"zookeeper": systems.zookeeper, "root": systems.root}
    protection = list(OF_ZOOKEEPER)
    if set(job.TABLES) - set(FOOTERS_ONLY):
        text["gateway"] = systems.gateway
        protection += OF_GATEWAY
    for name in protection:
        value = getattr(settings.ledgers if name == "password" else systems, name)
        if value != SETTINGS[name].default:
            text[camel(name)] = text_of(value)
    text |= {
        key: str(values[key])
        for key in ("tenant", "namespace", "topic", "subscription")
        if values.get(key)
    }
    further = job_file.pairs("option", values.get("option", {}))
    for key in further:  # a job that writes would write elsewhere than it reads
        if key.lower() in HAVE_FLAGS:
            raise OptionError(
                f"option {key}: the source is told this by the job", f"use --{key.lower()}"
            )
        if key.lower() == "table":
            raise OptionError(f"option {key}: each job reads its own tables", "leave it out")
    text |= further
    found = Options.parse(
        {key: value for key, value in text.items() if value}
        | ({"table": job.TABLES[0]} if job.TABLES else {})
    )
    for table in job.TABLES:
        found.with_table(table).check()
    return found


def run(job: Job, call: Call) -> int:
    """What needs no session; else the session, the job, the end of the session."""
    before = getattr(job, "before", None)
    if before is not None and (code := before(call.source, call.arguments, call.out)) is not None:
        return int(code)
    from cursorkeeper_pipeline.session import bars, session, slots_of

    wanted, shown = getattr(job, "CONF", {}), sys.stderr.isatty()
    with bars(shown):
        spark = session(
            f"cursorkeeper {call.name}",
            master=call.master,
            remote=call.remote,
            conf=call.conf,
            wanted=wanted,
            progress=shown,
        )
        try:
            source = (
                call.source if call.source.slots else replace(call.source, slots=slots_of(spark))
            )
            return job.run(spark, source, call.arguments, call.out)
        finally:
            spark.stop()


def submit_of(job: Job, call: Call, given: Mapping[str, Any]) -> Submit:
    """The same call for spark-submit, without what is secret."""
    own, words, left_out = own_options(job), [], []
    for key, value in given.items():
        flag = key.replace("_", "-")
        if key in NOT_FOR_SUBMIT or value is None:
            continue
        if isinstance(value, bool):
            if value or key in own:  # the others have no --no-...
                words.append(f"--{'' if value else 'no-'}{flag}")
            continue
        for one in value if isinstance(value, list) else [value]:
            name = str(one).partition("=")[0].strip()
            if key == "option" and name.lower() in SECRET_OPTIONS:
                left_out.append(name)
            else:
                words += [f"--{flag}", str(one)]
    # a driver's JVM takes its options when it starts, and so from this line alone
    wanted = {} if call.remote else getattr(job, "CONF", {})
    filed = set(call.conf) - set(job_file.pairs("conf", given.get("conf") or ()))
    return Submit(
        call.name, words, call.master, call.remote, {**wanted, **call.conf}, left_out, filed
    )


def main() -> None:
    """Entry point of `python -m cursorkeeper_pipeline` and of spark-submit."""
    app(prog_name="cursorkeeper pipeline")
