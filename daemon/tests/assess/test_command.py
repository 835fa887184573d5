"""`cursorkeeper assess` where it is called wrongly, or where its systems are away; the rest is in
`test_real_pulsar`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cursorkeeper.cli.main import app
from cursorkeeper.demo.stack.ports import free_port
from cursorkeeper.format.pulsar.values import Compression
from cursorkeeper.pulsar_broker.settings import PulsarSettingsError, of_version, with_broker_conf

TOPIC = "persistent://t/ns/topic"


def err(*arguments: str, code: int = 2) -> str:
    done = CliRunner().invoke(app, ["assess", *arguments])
    assert done.exit_code == code, done.output
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which cursors?"),
        ([TOPIC, "--all"], "more than one choice"),
        (["topic"], "topic"),
        (["--all", "--pulsar-version", "1.22"], "Pulsar 1.22: its defaults are not known"),
        (["--all", "--admin-url", "broker:8080"], "write http://HOST:8080"),
        (["--all", "--admin-url", "http://b", "--internal-stats", "x"], "give one of them"),
        (["--all", "--internal-stats", "no-such-file"], "no-such-file"),
        (["--all", "--html", "no-such-folder/page.html"], "no-such-folder"),
        (["--all", "--html", "."], "it is a folder"),
        (["--all", "--broker-conf", "no-such.conf"], "no-such.conf"),
    ],
)
def test_usage(arguments: list[str], said: str) -> None:
    assert said in err(*arguments)


def test_a_file_that_is_no_answer_is_usage(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("<html>")
    assert "not JSON" in err("--all", "--internal-stats", str(tmp_path / "x.json"))
    (tmp_path / "one.json").write_text('{"ledgers": [], "cursors": {}}')
    assert "name the topic" in err("--all", "--internal-stats", str(tmp_path / "one.json"))


@pytest.mark.slow
def test_zookeeper_away_is_three() -> None:
    assert "does not answer" in err(
        "--all", "--pulsar-zookeeper", f"127.0.0.1:{free_port()}", code=3
    )


def test_defaults_and_broker_conf() -> None:
    assert of_version("4.2.4").ranges_max == 10_000 and of_version("4.2.4").long_array
    assert not of_version("4.0.8").long_array
    assert (
        of_version("5.0.0-M1").ranges_max == 200_000
        and not of_version("5.0.0-M1").cap_counts_ledger
    )
    assert of_version("5.0.1").cap_counts_ledger
    conf = {
        "managedLedgerMaxUnackedRangesToPersist": "100000000",
        "managedLedgerMaxUnackedRangesToPersistInZooKeeper": "-1",
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "77",
        "managedCursorInfoCompressionType": "ZSTD",
        "maxMessageSize": "10485760",
        "managedLedgerDefaultMarkDeleteRateLimit": "0.1",
        "managedLedgerCursorPositionFlushSeconds": "30",
        "acknowledgmentAtBatchIndexLevelEnabled": "false",
        "somethingElse": "x",
    }
    found = with_broker_conf(of_version("4.2"), conf)
    assert (found.ranges_max, found.znode_ranges_max, found.compression) == (
        100_000_000,
        77,
        Compression.ZSTD,
    )
    assert (found.frame_bytes_max, found.window_s, found.idle_window_s) == (
        10_485_760 + 10_240,
        10.0,
        30.0,
    )
    assert found.long_array and not found.batch_index
    older = with_broker_conf(
        found,
        {
            "managedLedgerMaxUnackedRangesToPersistInZooKeeper": "5",
            "managedLedgerUnackedRangesOpenCacheSetEnabled": "false",
        },
    )
    assert older.znode_ranges_max == 5 and not older.long_array


@pytest.mark.parametrize(
    "conf",
    [
        {"managedLedgerMaxUnackedRangesToPersist": "many"},
        {"managedLedgerMaxUnackedRangesToPersist": "-1"},
        {"managedLedgerPersistIndividualAckAsLongArray": "yes"},
        {"managedCursorInfoCompressionType": "GZIP"},
        {"managedLedgerDefaultMarkDeleteRateLimit": "fast"},
        {"maxMessageSize": "0"},
    ],
)
def test_a_broker_conf_that_makes_no_sense_names_its_line(conf: dict[str, str]) -> None:
    with pytest.raises(PulsarSettingsError, match=next(iter(conf))):
        with_broker_conf(of_version("4.2"), conf)
