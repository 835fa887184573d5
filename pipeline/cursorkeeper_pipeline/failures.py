"""Errors of a job as people read them: a line and a remedy, also when they come out of a task as a
Python traceback in Java's.

Owns how a problem is put into a task's failure, of which Spark carries nothing but its text, and
how it is found in Spark's own. Invariant: what is shown is the innermost error of ours, if there is
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cursorkeeper.bookkeeper.errors import GatewayError
from cursorkeeper.core.errors import CursorKeeperError, ExplainedError
from cursorkeeper.problems import Kind, Problem, ProblemError, problem_of
from cursorkeeper.zookeeper.errors import ZooKeeperError

_OURS = re.compile(r"^[ \t|]*(?:\S*?: )?cursorkeeper[\w.]*\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback: an exception of ours, by its full name."""
_MISSING = re.compile(r"^[ \t|]*ModuleNotFoundError: (No module named .*)$", re.MULTILINE)
_PYTHON = re.compile(
    r"^[ \t|]*(?!(?:java|javax|org|scala)\.)([A-Za-z_][\w.]*(?:Error|Exception)): (.*)$",
    re.MULTILINE,
)
"""The last line of any other traceback."""
_NO_JVM = "JAVA_GATEWAY_EXITED"
_CALLING = "An error occurred while calling "
"""What was called is no name that anybody knows; the line behind it is what happened."""
JVM = (
    "Spark needs a JDK, 17 or newer, as JAVA_HOME or on the path; if there is one, what it "
    "said above tells what it did not like"
)
LINE_MAX = 600
MORE = (
    "run it again with --debug to see all of it, or with --conf spark.log.level=WARN for "
    "Spark's own log"
)
WORKERS = (
    "give the workers this environment: --print-submit shows how, with PYSPARK_PYTHON and "
    "--archives"
)


class OptionError(ExplainedError, ValueError):
    """An option that cannot be used; the message names it."""


class TaskError(ProblemError):
    """A problem on its way through Spark: its text holds the remedy, too."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem), problem.remedy, problem.kind)
        self.args = (problem.told,)


@contextmanager
def telling() -> Iterator[None]:
    """Errors of a task, as `from_spark` finds them."""
    try:
        yield
    except (CursorKeeperError, GatewayError, ZooKeeperError) as e:
        raise TaskError(problem_of(e)) from e


def problem_of_job(error: BaseException) -> Problem:
    """The problem that an exception of a job stands for. A job that failed ends with 2, whatever
    its kind.
    """
    if isinstance(error, OptionError):
        return Problem(
            error.message, error.remedy or "correct the option; --help lists them", Kind.USAGE
        )
    is_spark_s = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    if is_spark_s or _OURS.search(str(error)):
        return from_spark(str(error))
    return problem_of(error)


def from_spark(text: str) -> Problem:
    """What one of Spark's messages is about."""
    message, remedy = _said_by_spark(text)
    return Problem(message, remedy, Kind.USAGE)


def _said_by_spark(text: str) -> tuple[str, str]:
    found = _OURS.findall(text)
    if found:
        message, _, remedy = found[-1][1].partition(". What to do: ")
        return message, remedy or MORE
    missing = _MISSING.findall(text)
    if missing:
        return f"a Python of Spark has not what is needed: {missing[-1]}", WORKERS
    if _NO_JVM in text:
        return "Spark: its JVM did not start", JVM
    raised = _PYTHON.findall(text) if "Traceback" in text else []
    if raised:
        return f"Spark: {raised[-1][0]}: {raised[-1][1]}"[:LINE_MAX], MORE
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith(_CALLING):
        lines = [lines[1].removeprefix(": ")]
    return f"Spark: {(lines[0] if lines else 'no message')[:LINE_MAX]}", MORE
