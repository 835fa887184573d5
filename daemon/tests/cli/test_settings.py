"""Where settings come from, which source wins, and that every error names the setting and what to
do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cursorkeeper.bookkeeper.port import Digest, GatewayInfo
from cursorkeeper.core.limits import Limits
from cursorkeeper.format.codec import Codec
from cursorkeeper.problems import problem_of
from cursorkeeper.settings import SETTINGS, Settings, SettingsError, load
from cursorkeeper.terminal.failure import USAGE, exit_code


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_core() -> None:
    made = load(environment={})
    assert made.machine_limits == Limits()
    assert (
        made.ledgers.policy.ensemble,
        made.ledgers.policy.write_quorum,
        made.ledgers.policy.ack_quorum,
        made.ledgers.policy.digest,
    ) == (3, 3, 2, Digest.CRC32C)
    assert made.encode.codec is Codec.ZSTD


def test_each_source_wins_over_the_one_before(tmp_path: Path) -> None:
    conf = write(
        tmp_path / "broker.conf",
        "managedLedgerDefaultAckQuorum=1\nzookeeperServers=conf:1\nmanagedLedgerDigestType=MAC\n",
    )
    toml = write(tmp_path / "a.toml", 'zookeeper = "toml:1"\nroot = "/toml"\nlisten = "toml:1"\n')
    env = {"CURSORKEEPER_ROOT": "/env", "CURSORKEEPER_LISTEN": "env:1", "UNRELATED": "x"}
    made = load(
        broker_conf=conf, file=toml, environment=env, flags={"listen": "flag:1", "root": None}
    )
    assert (
        made.ledgers.ack_quorum,
        made.systems.zookeeper,
        made.systems.root,
        made.daemon.listen,
        made.ledgers.digest,
    ) == (
        1,
        "toml:1",
        "/env",
        "flag:1",
        "MAC",
    )
    assert load(broker_conf=conf, environment={}).systems.zookeeper == "conf:1"


def test_environment_values_are_text_of_any_type() -> None:
    env = {
        "CURSORKEEPER_ENSEMBLE": "5",
        "CURSORKEEPER_SHRINK_ENSEMBLE": "false",
        "CURSORKEEPER_LEDGER_AGE_MAX_S": "1.5",
        "CURSORKEEPER_SOURCES": "a:1,b:2",
        "CURSORKEEPER_UVLOOP": "1",
    }
    made = load(environment=env)
    assert (
        made.ledgers.ensemble,
        made.ledgers.shrink_ensemble,
        made.cursor.ledger_age_max_s,
        made.daemon.sources,
        made.limits.uvloop,
    ) == (5, False, 1.5, ["a:1", "b:2"], True)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"ensemble": 2}, "write_quorum"),
    ({"ack_quorum": 0}, "ack_quorum"),
    ({"digest": "SHA1"}, "CRC32C"),
    ({"codec": "gzip"}, "zstd"),
    ({"max_entry_bytes": 1000}, "64 KiB"),
    ({"max_entry_bytes": 5 << 20}, "64 KiB"),
    ({"chain_ledgers_max": 64}, "chain_ledgers_hard_max"),
    ({"inline_state_max_bytes": 2 << 20}, "jute.maxbuffer"),
    ({"flush_interval_ms": -1}, "use 1 to"),
    ({"snapshot_bytes_min": -1}, "negative"),
    ({"credit_bytes": 1}, "use 4,096 to"),
    ({"credit_bytes": 1 << 29}, "daemon_credit_bytes"),
    ({"state_bytes_max": 1}, "use 65,536 to"),
    *[
        ({"root": root}, says)
        for root, says in (
            ("nope", "must start with /"),
            ("", "must start"),
            ("/a//b", "an empty"),
            ("/a/", "end"),
        )
    ],
    ({"root": "/a\x1b[31m"}, "a character ZooKeeper does not take"),
    ({"root": "/"}, "other znodes are there"),
    ({"cursors_max": 1 << 40}, "to 10,000,000"),
    ({"ledger_age_max_s": float("nan")}, "use 0.01 to"),
    ({"log_level": "loud"}, "debug, info"),
    *[
        ({name: 0}, "use ")
        for name in (
            "flush_interval_ms",
            "flush_acks_max",
            "flush_acks_min",
            "flush_bytes_max",
            "retry_min_ms",
            "retry_max_ms",
            "cursors_max",
            "footer_poll_s",
            "credit_bytes",
            "daemon_credit_bytes",
            "openings_at_once_max",
            "ledger_requests_at_once_max",
            "footer_requests_at_once_max",
            "inline_states_per_s_max",
            "closings_at_once_max",
        )
    ],
    ({"retry_min_ms": 3_000}, "retry_max_ms"),
    ({"mark_delete_properties_bytes_max": 1 << 20}, "max_entry_bytes"),
    ({"cursor_properties_bytes_max": 1 << 20}, "max_entry_bytes"),
    (
        {"max_entry_bytes": 100_000, "mark_delete_properties_bytes_max": 60_000},
        "mark_delete_properties_bytes_max",
    ),
    ({"flush_interval_ms": "soon"}, "flush_interval_ms"),
    ({"appends_in_flight_max": 1}, "use 2 to"),
    ({"daemon_appends_in_flight_max": 1}, "use 4 to"),
    ({"workers": 0}, "use 1 to 64"),
    ({"daemon_appends_in_flight_max": 7, "workers": 2}, "a share of 3"),
    ({"daemon_credit_bytes": 5 << 20, "workers": 2}, "raise daemon_credit_bytes"),
    ({"worker_port": 65_535, "workers": 3}, "ports above 65535"),
]


@pytest.mark.parametrize(("values", "says"), BAD, ids=[next(iter(v)) for v, _ in BAD])
def test_every_error_names_the_setting_and_the_remedy(values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(environment={}, flags=values)
    text = str(error.value)
    assert next(iter(values)) in text and says in text
    problem = problem_of(error.value)
    assert exit_code(problem) == USAGE and problem.remedy


def test_errors_of_files_name_the_file(tmp_path: Path) -> None:
    for text in ("zookeeper = [", "zookeeper = 1", "\xff"):
        file = tmp_path / "a.toml"
        file.write_bytes(text.encode("latin-1"))
        with pytest.raises(SettingsError) as error:
            load(file=file, environment={})
        assert "a.toml" in str(error.value) or "zookeeper" in str(error.value)
    with pytest.raises(SettingsError, match="no such file"):
        load(file=tmp_path / "none.toml", environment={})


def refused(**sources: Any) -> tuple[str, str]:
    """The line and the remedy that a person sees."""
    with pytest.raises(SettingsError) as error:
        load(**{"environment": {}, **sources})
    problem = problem_of(error.value)
    assert exit_code(problem) == USAGE
    return problem.message, problem.remedy


def test_what_is_no_setting_is_named_with_its_source_and_what_may_be_meant(tmp_path: Path) -> None:
    message, remedy = refused(
        file=write(tmp_path / "a.toml", "ensembel = 3\nzookeeper = 'z:1'\n[qq]\nx = 1\n")
    )
    assert (
        message
        == f"{tmp_path / 'a.toml'}: there is no setting ensembel (did you mean ensemble?), qq"
    )
    assert remedy == "correct the name, or remove it; `cursorkeeper run --help` lists all settings"
    message, again = refused(
        environment={
            "CURSORKEEPER_ENSEMBEL": "3",
            "CURSORKEEPER_cursorInfoCompressonType": "LZ4",
            "HOME": "/",
        }
    )
    assert message == (
        "the environment: there is no setting CURSORKEEPER_cursorInfoCompressonType (did you "
        "mean CURSORKEEPER_cursorInfoCompressionType?),"
        " CURSORKEEPER_ENSEMBEL (did you mean CURSORKEEPER_ENSEMBLE?)"
    )
    assert again == remedy
    for hidden in (
        {"file": write(tmp_path / "b.toml", "given = ['a']\n")},
        {"environment": {"CURSORKEEPER_GIVEN": "a"}},
    ):
        assert "there is no setting" in refused(**hidden)[0]


def test_a_value_that_cannot_be_taken_is_named_with_its_source(tmp_path: Path) -> None:
    file = write(tmp_path / "a.toml", "flush_interval_ms = 'soon'\n")
    message, _ = refused(file=file)
    assert message.startswith(
        f"flush_interval_ms = 'soon', which is flush_interval_ms of {file}, cannot be taken: "
    )
    message, _ = refused(environment={"CURSORKEEPER_ENSEMBLE": "many"})
    assert message.startswith(
        "ensemble = 'many', which is CURSORKEEPER_ENSEMBLE, cannot be taken: "
    )
    message, remedy = refused(environment={"CURSORKEEPER_CREDIT_BYTES": "1"})
    assert message.endswith("; credit_bytes is CURSORKEEPER_CREDIT_BYTES") and remedy
    assert "secret" not in refused(file=write(file, "password = ['secret']\n"))[0]


def test_variables_of_others_with_our_prefix_are_none_of_ours() -> None:
    """A service called cursorkeeper-gateway, of which Kubernetes tells a pod; compose's ports;
    builds.
    """
    gateway = "CURSORKEEPER_GATEWAY"
    load(
        environment={
            "CURSORKEEPER_PORT": "7650",
            "CURSORKEEPER_VERSION": "0.2.0",
            f"{gateway}_SERVICE_HOST": "10.0.0.1",
            f"{gateway}_PORT": "tcp://10.0.0.1:7651",
            f"{gateway}_SERVICE_PORT": "7651",
            f"{gateway}_SERVICE_PORT_GRPC": "7651",
            f"{gateway}_PORT_7651_TCP": "tcp://10.0.0.1:7651",
            f"{gateway}_PORT_7651_TCP_ADDR": "10.0.0.1",
            "CURSORKEEPER_SERVICE_HOST": "10.0.0.2",
        }
    )


def gateway(entry_bytes_max: int, message_bytes_max: int) -> GatewayInfo:
    return GatewayInfo("one", "1", "4.17", entry_bytes_max, message_bytes_max, 3, "")


def test_limits_of_the_gateway() -> None:
    made = load(environment={})
    made.check_gateway(gateway((1 << 20) + (64 << 10), 4 << 20))
    with pytest.raises(SettingsError, match="above the gateway's entry limit"):
        made.check_gateway(gateway(1 << 20, 4 << 20))
    with pytest.raises(SettingsError, match="messages"):
        made.check_gateway(gateway(2 << 20, 1 << 20))


def test_the_identity_names_host_and_process() -> None:
    assert Settings.of(name="n").daemon.identity.startswith("n/")


def test_properties_of_a_mark_delete_fit_a_record_where_records_are_written() -> None:
    asked = Limits().mark_delete_properties_bytes_max
    for form, fits in (("native", False), ("pulsar", True)):
        small = load(environment={}, flags={"format": form, "max_entry_bytes": "64K"})
        most = small.machine_limits.mark_delete_properties_bytes_max
        assert (most == asked) is fits and 0 < most <= asked, form


def test_workers_share_what_counts_for_the_daemon() -> None:
    made = load(environment={}, flags={"workers": 3, "pulsar_metadata": "z:1"})
    shares = [made.of_worker(number, "h:1") for number in range(3)]
    shared = [one.name for one in SETTINGS.values() if one.is_shared]
    assert "cursors_max" in shared and "daemon_credit_bytes" in shared
    for name in shared:
        values = [getattr(share.limits, name) for share in shares]
        assert sum(values) == getattr(made.limits, name) and max(values) - min(values) <= 1, name
    assert [share.limits.gc_interval_s for share in shares] == [made.limits.gc_interval_s, 0, 0]
    assert [share.limits.pulsar_metadata for share in shares] == ["z:1", "", ""]
    assert len({share.daemon.identity.rpartition("/")[0] for share in shares}) == 3
    assert msgspec.json.decode(msgspec.json.encode(shares[1]), type=Settings) == shares[1]
