"""`cursorkeeper pipeline`: options from words and files, the spark-submit line, and what a failed
job says. Starts no Spark.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from typer.testing import CliRunner, Result

from cursorkeeper.cli import main as program
from cursorkeeper.problems import ProblemError
from cursorkeeper.settings import Settings
from cursorkeeper.terminal.failure import install
from cursorkeeper_pipeline import cli, job_file
from cursorkeeper_pipeline.failures import OptionError, from_spark, problem_of_job
from cursorkeeper_pipeline.jobs import frame
from cursorkeeper_pipeline.redaction import is_secret, masked
from cursorkeeper_pipeline.submit import Submit


def pipeline(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(
        program.app,
        ["pipeline", *arguments],
        env={"COLUMNS": "160", "NO_COLOR": "1", **environment},
    )


# --- the command line -----------------------------------------------------------------------------


def test_every_job_is_listed_and_has_the_common_options() -> None:
    listed = pipeline("--help")
    for name, (_, line) in frame.JOBS.items():
        assert f" {name} " in listed.output and line.split(",")[0][:40] in listed.output
        text = pipeline(name, "--help")
        assert text.exit_code == 0, text.output
        for flag in (
            "--zookeeper",
            "--gateway",
            "--root",
            "--config",
            "--broker-conf",
            "--tenant",
            "--topic",
            "--master",
            "--remote",
            "--conf",
            "--option",
            "--out",
            "--json",
            "--print-submit",
            "--job-config",
            "--debug",
        ):
            assert f"{flag} " in text.output, (name, flag)
        for field in get_type_hints(cli.job_of(name).Arguments):
            assert field == frame.SETTINGS_FIELD or f"--{field.replace('_', '-')}" in text.output


@pytest.mark.parametrize("name", frame.JOBS)
def test_the_help_of_a_job_shows_its_flags_whole_on_80_columns(name: str) -> None:
    text = pipeline(name, "--help", COLUMNS="80").output
    assert "…" not in text
    for field in get_type_hints(cli.job_of(name).Arguments):
        assert field == frame.SETTINGS_FIELD or f"--{field.replace('_', '-')}" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["repot"], "No such command"),
        (["report", "--no-such"], "No such option"),
        (["report", "--option", "mode"], "write key=value"),
        (["report", "--option", "mod=failfast"], "did you mean mode"),
        (["export", "--option", "zooKeeper=h:1"], "use --zookeeper"),
        (["report", "--option", "table=holes"], "leave it out"),
        (["report", "--conf", "x"], "write key=value"),
        (["report", "--master", "local[2]", "--remote", "sc://h:1"], "give one of them"),
        (["report", "--master", "foo"], "write local[*], yarn"),
        (
            ["report", "--tenant", "t", "--topic", "persistent://t/n/x"],
            "tenant and topic are given",
        ),
        (["report", "--since", "/nowhere", "--top", "x"], "top"),
        (["report", "--job-config", "/nowhere.toml"], "check the path"),
        (["report", "--remote", "http://h"], "write sc://host:port"),
        (["report", "--remote", "sc://127.0.0.1:1"], "start-connect-server"),
        (["report", "--remote", "sc://[::1]:1"], "start-connect-server"),
        (["report", "--remote", "sc://h:99999"], "write sc://host:port"),
    ],
)
def test_what_is_wrong_ends_with_2_a_line_and_a_remedy(arguments: list[str], said: str) -> None:
    found = pipeline(*arguments)
    assert found.exit_code == 2
    assert said in " ".join(found.output.split()) and "Traceback" not in found.output


def test_without_spark_the_remedy_is_the_wheel_that_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "EXTRA", ("pyspark_that_nobody_has", "pyarrow"))
    found = pipeline("report")
    assert found.exit_code == 2
    first, remedy = found.output.splitlines()
    assert first == "cursorkeeper: the pipeline needs pyspark_that_nobody_has"
    assert (
        remedy == f"What to do: {install(distribution='cursorkeeper_spark')}"
        and "cursorkeeper_spark-" in remedy
    )
    assert pipeline("--help").exit_code == 0


# --- a job's values -------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True)
class Arguments:
    text: str = frame.arg("", "A text.")
    count: int = frame.arg(3, "A count.")
    ratio: float | None = frame.arg(None, "A ratio.")
    deep: bool = frame.arg(False, "Deep.")
    place: Path | None = frame.arg(None, "A place.")
    colour: Colour = frame.arg(Colour.RED, "A colour.")
    many: tuple[str, ...] = frame.arg((), "Many.")
    settings: Settings | None = None


JOB: Any = SimpleNamespace(Arguments=Arguments, TABLES=("holes",), OUT="results", run=None)


def call(job: Any = JOB, **given: Any) -> cli.Call:
    names = [*cli.COMMON, *cli.own_options(job)]
    assert not set(given) - set(names)
    return cli.prepare(
        "report", job, {**dict.fromkeys(names), "print_submit": False, "debug": False, **given}
    )


def test_defaults_are_those_of_the_dataclass_and_of_the_daemon() -> None:
    found = call()
    assert found.arguments == Arguments(settings=found.arguments.settings)
    assert (found.source.zookeeper, found.source.gateway) == ("127.0.0.1:2181", "127.0.0.1:7651")
    assert (found.master, found.remote, found.out.folder, found.conf) == (
        "local[*]",
        "",
        "results",
        {},
    )
    assert "settings" not in cli.own_options(JOB)


def test_a_job_on_footers_alone_knows_no_gateway() -> None:
    job: Any = SimpleNamespace(Arguments=Arguments, TABLES=("cursors", "segments"), run=None)
    found = call(job, gateway="127.0.0.1:7651")
    assert (found.source.gateway, found.source.gateway_token_file, found.source.password) == (
        "",
        "",
        "",
    )
    assert found.out.folder == ""


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'zookeeper = "file:1"\nroot = "/file"\nmaster = "local[3]"\n[conf]\n"spark.ui.enabled" = '
        "true\n[option]\ntasks = 7\n"
        '[report]\ncount = 5\ntext = "file"\nmany = ["a", "b"]\ncolour = "green"\nplace = '
        '"/p"\n[audit]\nof_nobody_s_business_here = 1\n'
    )
    found = call(job_config=file, root="/flag", text="flag", many=["c"], conf=["a.b=c=d"])
    assert (found.source.zookeeper, found.source.root, found.source.tasks, found.master) == (
        "file:1",
        "/flag",
        7,
        "local[3]",
    )
    own = found.arguments
    assert (own.count, own.text, own.many, own.colour, own.place) == (
        5,
        "flag",
        ("c",),
        Colour.GREEN,
        Path("/p"),
    )
    assert found.conf == {"a.b": "c=d", "spark.ui.enabled": "true"}
    assert call(job_config=file).conf == {"spark.ui.enabled": "true"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dry_run = true", "stands in its table, as \\[report\\]"),
        ("conf = 3", "conf is no table"),
        ("topic = 3", "in quotes"),
        ("json = 'false'", "true or false"),
        ("[conf]\n'a.b' = [1]", "a.b = \\[1\\]"),
        ("[conf]\nx = 2026-01-01", "text in quotes"),
        ("conf = [1]", "key=value"),
        ("[conf]\na.b = 1\n'a.b' = 2", "given twice"),
        ("[conf]\nmaster = 'm'", "in front of the first"),
        ("[option]\nmode.x = 'failfast'", "unknown option mode.x"),
        ("zookeper = 'x'", "unknown option zookeper"),
        ("x =", "correct the TOML"),
        ("report = 3", "is no table"),
        ("[report]\nnothing = 1", "unknown option nothing"),
        ("[report]\nsettings = 1", "unknown option settings"),
        ("[report]\ncount = 'many'", "count"),
        ("[report]\ncolour = 'blue'", "colour"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=said) as found:
        call(job_config=file)
    assert "What to do" in str(found.value)


def test_words_are_joined_with_the_tables_of_the_file_key_by_key(tmp_path: Path) -> None:
    """A bookie must not be read unthrottled because of a word about something else."""
    file = tmp_path / "job.toml"
    file.write_text(
        "[option]\nreadRateMibS = 10\ntasks = 3\n[conf]\nspark.executor.memory = "
        '"2g"\nspark.executor.cores = 2\nspark.ui.enabled = false\n'
    )
    found = call(
        job_config=file, option=["mode=failfast", "TASKS=4"], conf=["spark.executor.cores=8"]
    )
    assert (found.source.read_rate_mib_s, found.source.tasks, found.source.mode) == (
        10.0,
        4,
        "failfast",
    )
    assert found.conf == {
        "spark.executor.memory": "2g",
        "spark.executor.cores": "8",
        "spark.ui.enabled": "false",
    }


def test_settings_come_from_the_daemon_s_file(tmp_path: Path) -> None:
    config = tmp_path / "daemon.toml"
    config.write_text(
        'zookeeper = "zk:2181"\ngateway = "gw:1"\npassword = "secret"\nensemble = 5\n'
    )
    found = call(config=config)
    assert (found.source.zookeeper, found.source.gateway, found.source.password) == (
        "zk:2181",
        "gw:1",
        "secret",
    )
    assert found.arguments.settings.ledgers.ensemble == 5
    found = call(config=config, option=["password=other", "gatewayTokenFile=/t"])
    read, written = found.source, found.arguments.settings
    assert (
        (read.password, read.gateway_token_file)
        == (written.ledgers.password, written.systems.gateway_token_file)
        == ("other", "/t")
    )


def test_words_of_pairs() -> None:
    assert job_file.pairs("conf", ["a=b", " c =d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}


# --- spark-submit ---------------------------------------------------------------------------------


def test_print_submit_on_a_cluster_brings_python_along() -> None:
    found = pipeline(
        "report",
        "--master",
        "spark://h:7077",
        "--tenant",
        "a b",
        "--conf",
        "spark.executor.memory=2g",
        "--json",
        "--print-submit",
    )
    assert found.exit_code == 0
    lines = [line for line in found.output.splitlines() if not line.startswith("#")]
    words = shlex.split(" ".join(line.removesuffix("\\") for line in lines))
    assert words[:4] == [
        "PYSPARK_PYTHON=./ckenv/bin/python",
        "spark-submit",
        "--master",
        "spark://h:7077",
    ]
    assert words[4:8] + words[10:12] == [
        "--archives",
        "cursorkeeper-env.tar.gz#ckenv",
        "--py-files",
        "cursorkeeper.zip",
        "--conf",
        "spark.executor.memory=2g",
    ]
    assert words[8:10] == [
        "--conf",
        "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ]
    assert Path(words[12]).name == "pipeline_main.py" and Path(words[12]).exists()
    assert words[13:] == ["report", "--tenant", "a b", "--json"]
    assert found.output.count("# ") >= 3


def test_print_submit_names_neither_password_nor_archives_where_they_are_not_needed() -> None:
    found = pipeline("report", "--print-submit", CURSORKEEPER_PASSWORD="secret")
    assert (
        "secret" not in found.output
        and "--archives" not in found.output
        and "local[*]" in found.output
    )
    remote = Submit("report", remote="sc://h:15002").line()
    assert (
        "--remote sc://h:15002" in remote
        and "--master" not in remote
        and "PYSPARK_PYTHON" not in remote
    )


def test_print_submit_says_no_where_no_was_said(tmp_path: Path) -> None:
    """The file says yes and is passed along: a no that were left out would be a yes."""
    file = tmp_path / "job.toml"
    file.write_text("[export]\ndry_run = true\n[import]\nrefresh = true\n")
    assert (
        "--no-dry-run"
        in pipeline("export", "--job-config", str(file), "--no-dry-run", "--print-submit").output
    )
    assert (
        "--no-refresh"
        in pipeline("import", "--job-config", str(file), "--no-refresh", "--print-submit").output
    )
    yes = pipeline("export", "--job-config", str(file), "--dry-run", "--print-submit").output
    assert "--dry-run" in yes and "--no-" not in yes


def test_print_submit_prints_no_secret_and_says_where_it_belongs(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        '[conf]\n"spark.hadoop.fs.s3a.secret.key" = "TOPSECRET"\n"spark.executor.memory" = '
        '"2g"\n[option]\npassword = "TOPSECRET"\n'
    )
    told = [
        "--conf",
        "spark.ssl.ui.keyStorePassword=TOPSECRET",
        "--conf",
        "spark.executor.extraJavaOptions=-Dtrust.password=TOPSECRET",
        "--option",
        "password=TOPSECRET",
        "--option",
        "Password=TOPSECRET",
        "--option",
        "mode=failfast",
    ]
    found = pipeline(
        "report", "--master", "spark://h:1", *told, "--job-config", str(file), "--print-submit"
    ).output
    line, notes = found.partition("# ")[0], " ".join(found.partition("# ")[2].split())
    assert (
        "TOPSECRET" not in found
        and "spark.executor.memory=2g" in line
        and "--option mode=failfast" in line
    )
    assert f"--job-config {file}" in line and "assword" not in line and "secret" not in line
    assert (
        "--conf spark.ssl.ui.keyStorePassword, spark.executor.extraJavaOptions. Put it into [conf]"
        in notes
    )
    assert "spark.hadoop.fs.s3a.secret.key; the job reads it from the file" in notes
    assert "--option password, Password. Put it into CURSORKEEPER_PASSWORD" in notes


def test_a_token_of_spark_connect_is_never_shown() -> None:
    remote = "sc://127.0.0.1:1/;token=TOPSECRET"
    printed = pipeline("report", "--remote", remote, "--print-submit").output
    assert '--remote "$SPARK_REMOTE"' in printed and "sc://127.0.0.1:1/;..." in printed
    submitted = {
        "PYSPARK_REMOTE_INIT_CONF_LEN": "1",
        "PYSPARK_REMOTE_INIT_CONF_0": json.dumps({"spark.x": "y", "spark.remote": remote}),
    }
    for found in (
        pipeline("report", "--remote", remote),
        pipeline("report", SPARK_REMOTE=remote),
        pipeline("report", **submitted),
    ):
        assert (
            found.exit_code == 2
            and "sc://127.0.0.1:1/;..." in found.output
            and "start-connect-server" in found.output
        )
        printed += found.output
    printed += pipeline("report", "--remote", "http://u:TOPSECRET@h/;token=TOPSECRET").output
    assert "TOPSECRET" not in printed


def test_a_master_is_not_taken_where_spark_was_told_a_remote() -> None:
    found = pipeline("report", "--master", "local[2]", SPARK_REMOTE="sc://127.0.0.1:1")
    assert found.exit_code == 2 and "unset SPARK_REMOTE" in found.output
    assert (
        "--remote sc://127.0.0.1:1"
        in pipeline("report", "--print-submit", SPARK_REMOTE="sc://127.0.0.1:1").output
    )


def test_what_is_secret_is_told_by_name_or_by_what_it_holds() -> None:
    for name in (
        "spark.hadoop.fs.s3a.access.key",
        "spark.authenticate.secret",
        "spark.x.accessKey",
        "a.TOKEN",
        "spark.my.credentials",
    ):
        assert is_secret(name, "x"), name
    assert is_secret("spark.remote", "sc://h/;token=x") and is_secret("spark.proxy", "http://u:p@h")
    for name, value in (
        ("spark.executor.memory", "2g"),
        ("spark.kubernetes.authenticate.oauthTokenFile", "/run/t"),
        ("spark.a", "hdfs://h:1"),
    ):
        assert not is_secret(name, value), name
    assert (
        masked("sc://h:15002") == "sc://h:15002"
        and masked("sc://u:p@h/;a=b;c=d") == "sc://...@h/;..."
    )


# --- failures -------------------------------------------------------------------------------------

TRACE = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/x/cursorkeeper_pipeline/source/footers.py", line 57, in plan
cursorkeeper.zookeeper.errors.ZooKeeperError: away

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "worker.py", line 1, in main
cursorkeeper_pipeline.failures.TaskError: ZooKeeper: 127.0.0.1:1 does not answer. \
What to do: start it, or name another
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.x(QueryCompilationErrors.scala:2000)
"""


def test_a_traceback_out_of_spark_is_reduced_to_our_message() -> None:
    found = from_spark(TRACE)
    assert (found.message, found.remedy) == (
        "ZooKeeper: 127.0.0.1:1 does not answer",
        "start it, or name another",
    )


def test_a_worker_without_our_code_is_told_what_it_needs() -> None:
    found = from_spark(
        "Job aborted: Traceback\n  File x\nModuleNotFoundError: No module named "
        "'cursorkeeper'\n\tat java"
    )
    assert "No module named 'cursorkeeper'" in found.message and "--archives" in found.remedy


def test_what_is_not_ours_keeps_its_first_line() -> None:
    from pyspark.errors import AnalysisException

    found = problem_of_job(
        AnalysisException(
            "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n\tat java.x"
        )
    )
    assert (
        found.message == "Spark: [PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03"
        and "--debug" in found.remedy
    )
    assert problem_of_job(ProblemError("no", "do")).remedy == "do"
    assert "internal error" in problem_of_job(KeyError("x")).message


def test_a_line_says_how_far_a_remote_query_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Told by Spark's own client, also that it is over because it failed."""
    from pyspark.sql.connect.shell.progress import Progress, StageInfo

    from cursorkeeper_pipeline.session import show

    with (
        pytest.raises(ZeroDivisionError),
        Progress(handlers=[show], operation_id="one") as progress,
    ):  # type: ignore[list-item]
        progress.update_ticks([StageInfo(0, 6, 6, 0, True), StageInfo(1, 2, 0, 0, False)], 2, "one")
        _ = 1 / 0
    told = capsys.readouterr()
    assert (
        told.out == ""
        and told.err == f"\r[{'=' * 30}{' ' * 10}] 6 of 8 tasks, 2 running\x1b[K\r\x1b[K"
    )


@pytest.mark.parametrize(
    ("shown", "said"), [(True, "[Stage 0:>\r\x1b[Kthe problem"), (False, "[Stage 0:>the problem")]
)
def test_what_spark_left_of_its_bar_is_cleared_when_a_job_fails(
    shown: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cursorkeeper_pipeline.session import bars

    with pytest.raises(ZeroDivisionError), bars(shown):
        sys.stderr.write("[Stage 0:>")
        _ = 1 / 0
    sys.stderr.write("the problem")
    assert capsys.readouterr().err == said


def test_an_error_of_python_in_a_task_is_told_by_its_last_line() -> None:
    java = (
        "org.apache.spark.SparkException: Job aborted\n\tat java.x\nCaused by: "
        "java.lang.RuntimeException: no\n"
    )
    trace = (
        "Traceback (most recent call last):\n  File x\nValueError: path '/x/' must not end "
        "with /\n. SQLSTATE: 38000\n"
    )
    found = from_spark(
        f"[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance: {trace}{java}"
    )
    assert (
        found.message == "Spark: ValueError: path '/x/' must not end with /"
        and "--debug" in found.remedy
    )


def test_without_a_jvm_the_remedy_is_one() -> None:
    found = from_spark(
        "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    )
    assert "did not start" in found.message and "JAVA_HOME" in found.remedy
    found = from_spark(
        "An error occurred while calling o247.overwrite.\n: java.lang.NoSuchMethodError: 'void "
        "a.B()'\n\tat c.D"
    )
    assert found.message == "Spark: java.lang.NoSuchMethodError: 'void a.B()'"
