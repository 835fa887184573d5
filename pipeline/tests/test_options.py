"""Every option is checked before anything is asked of a system; what is wrong is named, and so is
the remedy.
"""

from __future__ import annotations

import pickle

import pytest

from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.source.options import Mode, Options

GIVEN = {"zookeeper": "127.0.0.1:2181", "gateway": "127.0.0.1:7651"}


def test_names_are_spark_s_own_and_take_any_case() -> None:
    options = Options.parse(
        {
            **GIVEN,
            "TABLE": "holes",
            "gatewaytokenfile": "/token",
            "taskBytes": "1024",
            "Mode": "FAILFAST",
        }
    )
    assert (options.table, options.gateway_token_file, options.task_bytes, options.mode) == (
        "holes",
        "/token",
        1024,
        Mode.FAILFAST,
    )


def test_text_and_pickle_mean_the_same() -> None:
    options = Options.parse(
        {
            **GIVEN,
            "table": "deltas",
            "since": "2026-01-01",
            "deleted": "true",
            "tasks": "7",
            "tenant": "t",
        }
    )
    assert Options.parse(options.as_text()) == options == pickle.loads(pickle.dumps(options))


def test_a_root_is_the_same_with_a_slash_at_its_end() -> None:
    options = Options.parse({**GIVEN, "root": "/my/cursors//"})
    assert (
        options.root == options.settings.systems.root == "/my/cursors"
        and options == Options.parse({**GIVEN, "root": "/my/cursors"})
    )
    assert (
        Options.parse(
            {**GIVEN, "readRateMibS": "0.01", "zookeeper": "[::1]:2181,zk2/a/b"}
        ).read_rate_mib_s
        == 0.01
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": "hole"}, "did you mean holes"),
        ({"zookeper": "x"}, "did you mean zookeeper"),
        ({"path": "/x"}, "reads no path"),
        ({"table": "holes", "gateway": ""}, "gateway is not given"),
        ({"zookeeper": ""}, "zookeeper is not given.*catalog.*CREATE TEMPORARY VIEW"),
        ({"mode": "fast"}, "permissive or failfast"),
        ({"deleted": "yes"}, "use true or false"),
        ({"tasks": "many"}, "must be a number"),
        ({"tasks": "-1"}, "0 to 4,096"),
        ({"splitBytes": "0"}, "above 0"),
        ({"readRateMibS": "-1"}, "not be negative"),
        ({"tenant": "t", "topic": "persistent://t/n/x"}, "tenant and topic are given"),
        ({"subscription": "s"}, "without topic"),
        ({"topic": "nonsense"}, "topic"),
        ({"namespace": "t"}, "namespace"),
        ({"since": "2026-01-01"}, "options of the table deltas"),
        ({"table": "deltas", "since": "20261121", "until": "2026-11-21"}, "is not before until"),
        (
            {"table": "deltas", "until": "2026"},
            "until = '2026' is no time.*What to do: write ISO 8601",
        ),
        ({"waitS": "nan"}, "waitS = nan: it must be above 0, and finite"),
        ({"waitS": "inf"}, "waitS = inf: it must be above 0, and finite"),
        ({"waitS": "0"}, "above 0"),
        ({"readRateMibS": "nan"}, "readRateMibS = nan.*What to do"),
        ({"readRateMibS": "inf"}, "readRateMibS = inf.*What to do"),
        ({"readRateMibS": "0.001"}, "at least 0.01 MiB/s"),
        ({"root": "cursors"}, "root = 'cursors'.*must start with /.*What to do"),
        ({"root": "/a//b"}, "root = '/a//b'.*empty.*What to do"),
        ({"root": "//"}, "root = '//'.*What to do"),
        ({"root": "/"}, "below a node of their own"),
        ({"zookeeper": "zk1:2181,"}, "zookeeper = 'zk1:2181,'.*What to do: write host:port"),
        ({"zookeeper": "zk1:99999"}, "is not host:port"),
        ({"zookeeper": "zk1:2181/chroot/"}, "must not end with /"),
        ({"pulsarZookeeper": "zk1:x"}, "pulsarZookeeper = 'zk1:x'.*What to do: write host:port"),
        ({"gateway": "gw"}, "gateway = 'gw' is not an address.*host:port"),
        ({"gateway": "gw:70000"}, "is not an address"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Options.parse({**GIVEN, **given})
