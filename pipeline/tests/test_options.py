"""Every option is checked before anything is asked of a system; what is wrong is named, and so is the remedy."""

from __future__ import annotations

import pickle

import pytest
from cursorkeeper_pipeline.source.options import Mode, OptionError, Options

GIVEN = {"zookeeper": "127.0.0.1:2181", "gateway": "127.0.0.1:7651"}


def test_names_are_spark_s_own_and_take_any_case() -> None:
    options = Options.parse({**GIVEN, "TABLE": "holes", "gatewaytokenfile": "/token", "taskBytes": "1024", "Mode": "FAILFAST"})
    assert (options.table, options.gateway_token_file, options.task_bytes, options.mode) == ("holes", "/token", 1024, Mode.FAILFAST)


def test_text_and_pickle_mean_the_same() -> None:
    options = Options.parse({**GIVEN, "table": "deltas", "since": "2026-01-01", "deleted": "true", "tasks": "7", "tenant": "t"})
    assert Options.parse(options.as_text()) == options == pickle.loads(pickle.dumps(options))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "hole"}, "did you mean holes"),
        ({"zookeper": "x"}, "did you mean zookeeper"),
        ({"path": "/x"}, "reads no path"),
        ({"table": "holes", "gateway": ""}, "gateway is not given"),
        ({"zookeeper": ""}, "zookeeper is not given"),
        ({"mode": "fast"}, "permissive or failfast"),
        ({"deleted": "yes"}, "use true or false"),
        ({"tasks": "many"}, "must be a number"),
        ({"tasks": "-1"}, "0 to 10,000"),
        ({"splitBytes": "0"}, "above 0"),
        ({"readRateMibS": "-1"}, "not be negative"),
        ({"tenant": "t", "topic": "persistent://t/n/x"}, "tenant and topic are given"),
        ({"subscription": "s"}, "without topic"),
        ({"topic": "nonsense"}, "topic"),
        ({"namespace": "t"}, "namespace"),
        ({"since": "2026-01-01"}, "options of the table deltas"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Options.parse({**GIVEN, **given})
