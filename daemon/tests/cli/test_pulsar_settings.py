"""Settings under Pulsar's own names, in every source, and which limit follows from them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cursorkeeper.bookkeeper.port import GatewayInfo
from cursorkeeper.cli import main as program
from cursorkeeper.connections import gateway_settings
from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from cursorkeeper.settings import ALIASES, Settings, SettingsError, load
from daemon.tests.cli.conftest import given_to

GATEWAY = GatewayInfo("one", "1", "4.17", 4 << 20, 5 << 20, 3, "")
MULTIPLE = "persistentUnackedRangesWithMultipleEntriesEnabled"
VALUES: dict[str, tuple[str, Any]] = {
    MULTIPLE: ("true", True),
    "persistentUnackedRangesMaxEntrySize": ("524288", 524_288),
    "cursorInfoCompressionType": ("LZ4", "LZ4"),
    "managedLedgerPersistIndividualAckAsLongArray": ("false", False),
    "managedLedgerMaxUnackedRangesToPersist": ("200000", 200_000),
    "managedLedgerMaxAckStateInBytesToPersist": ("2M", 2 << 20),
    "dispatcherPauseOnAckPersistentStateEnabled": ("false", False),
    "dispatcherPauseOnAckStatePersistentEnabled": ("false", False),
    "batchIndexAcknowledgeEnable": ("false", False),
    "acknowledgmentAtBatchIndexLevelEnabled": ("false", False),
    "managedLedgerDefaultMarkDeleteRateLimit": ("0.5", 0.5),
    "managedCursorInfoCompressionType": ("ZSTD", "ZSTD"),
    "managedCursorInfoCompressionThresholdInBytes": ("100", 100),
    "tlsCertificateFilePath": ("/own.pem", "/own.pem"),
    "tlsKeyFilePath": ("/key.pem", "/key.pem"),
    "tlsTrustCertsFilePath": ("/all.pem", "/all.pem"),
    "tlsRequireTrustedClientCertOnConnect": ("true", True),
    "tlsCertRefreshCheckDurationSec": ("60", 60.0),
    "tokenSecretKey": ("data:;base64,c2VjcmV0", "data:;base64,c2VjcmV0"),
    "tokenPublicKey": ("file:///public.key", "file:///public.key"),
    "tokenAuthClaim": ("role", "role"),
    "tokenAudienceClaim": ("aud", "aud"),
    "tokenAudience": ("this-cluster", "this-cluster"),
}


def whole(**flags: Any) -> WholeStateSettings:
    writer = load(environment={}, flags={"format": "pulsar", **flags}).state_writer(GATEWAY)
    assert isinstance(writer, PulsarStateWriter)
    return writer.settings


def test_every_alias_is_tried_here() -> None:
    assert VALUES.keys() == ALIASES.keys()


@pytest.mark.parametrize("key", VALUES)
def test_r05_each_of_pulsars_names_is_taken_in_every_source(key: str, tmp_path: Path) -> None:
    text, value = VALUES[key]
    (tmp_path / "broker.conf").write_text(f"{key}={text}\n")
    quoted = text if text in ("true", "false") or text.replace(".", "").isdecimal() else f'"{text}"'
    (tmp_path / "a.toml").write_text(f"{key} = {quoted}\n")
    found = [
        load(broker_conf=tmp_path / "broker.conf", environment={}),
        load(file=tmp_path / "a.toml", environment={}),
        load(environment={f"CURSORKEEPER_{key}": text}),
        load(environment={}, flags={key: text}),
        load(environment={f"CURSORKEEPER_{ALIASES[key].upper()}": text}),
        load(environment={}, flags={ALIASES[key]: text}),
    ]
    groups = [
        {
            name: value
            for group in (made.daemon, made.cursor, made.state, made.tls)
            for name, value in asdict(group).items()
        }
        for made in found
    ]
    assert [group[ALIASES[key]] for group in groups] == [value] * len(found)
    assert all(ALIASES[key] in made.given for made in found)


def test_r05_pulsars_names_are_flags_of_run() -> None:
    taken: dict[str, Any] = {}

    def serve(**given: Any) -> int:
        taken.update(given["flags"])
        return 0

    arguments = [
        "--format",
        "pulsar",
        "--managedLedgerMaxAckStateInBytesToPersist",
        "512K",
        "--no-batchIndexAcknowledgeEnable",
    ]
    assert (
        CliRunner()
        .invoke(
            given_to(serve), [*arguments, "--persistentUnackedRangesWithMultipleEntriesEnabled"]
        )
        .exit_code
        == 0
    )
    made = load(environment={}, flags=taken)
    assert made.state.managed_ledger_max_ack_state_in_bytes_to_persist == 512 << 10
    assert (
        made.state.persistent_unacked_ranges_with_multiple_entries_enabled
        and not made.machine_limits.batch_index_acks
    )
    text = " ".join(
        CliRunner()
        .invoke(program.app, ["run", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        .output.split()
    )
    assert "managedLedgerMaxAckStateInBytesToPersist" in text, "the help names it with ours"


BAD: list[tuple[dict[str, Any], str]] = [
    ({"managedLedgerMaxAckStateInBytesToPersist": "1023"}, "use 1K to 5M"),
    ({"managedLedgerMaxAckStateInBytesToPersist": "6M"}, "use 1K to 5M"),
    ({"managedLedgerMaxAckStateInBytesToPersist": "much"}, "a number of bytes"),
    ({"managedLedgerMaxUnackedRangesToPersist": 1 << 31}, "use 0 to"),
    ({"cursorInfoCompressionType": "GZIP"}, "NONE, LZ4, ZLIB, ZSTD, SNAPPY"),
    ({"managedCursorInfoCompressionType": "GZIP"}, "NONE, LZ4, ZLIB, ZSTD, SNAPPY"),
    ({"managedLedgerDefaultMarkDeleteRateLimit": -1}, "must not be negative"),
    ({"managedLedgerDefaultMarkDeleteRateLimit": "nan"}, "must not be negative"),
    ({"format": "parquet"}, "native, pulsar"),
]


def test_a_size_of_very_many_digits_is_refused_as_any_other() -> None:
    flags = {"managedLedgerMaxAckStateInBytesToPersist": "9" * 5_000}
    with pytest.raises(SettingsError, match="write a number of bytes"):
        load(environment={}, flags=flags)


@pytest.mark.parametrize(
    ("values", "says"), BAD, ids=["=".join(map(str, next(iter(v.items())))) for v, _ in BAD]
)
def test_r05_ranges_are_checked_and_errors_name_pulsars_key(
    values: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError) as error:
        load(environment={}, flags={"format": "pulsar", **values})
    key = next(iter(values))
    assert says in str(error.value) and ALIASES.get(key, key) in str(error.value)
    if key in ALIASES and "negative" not in says:
        assert key in str(error.value)


def test_the_gateway_client_has_room_for_all_states_that_may_be_on_their_way() -> None:
    """Of several megabytes each, where a state is one entry: an append without room is one that
    failed, and its ledger is left.
    """
    for values, entry_bytes in (
        ({"format": "pulsar"}, 5 << 20),
        ({"format": "pulsar", "max_entry_bytes": "3M", MULTIPLE: True}, 3 << 20),
    ):
        few = {"daemon_append_bytes_in_flight_max": 1 << 20, "appends_in_flight_max": 64}
        made = load(environment={}, flags=values | few)
        limits, cursor = made.limits, made.cursor
        room = limits.daemon_append_bytes_in_flight_max + cursor.appends_in_flight_max * entry_bytes
        assert gateway_settings(made, "writer").append_window_bytes_max >= room


def test_a_rate_of_next_to_nothing_is_a_long_interval() -> None:
    made = load(
        environment={},
        flags={"format": "pulsar", "managedLedgerDefaultMarkDeleteRateLimit": "5e-324"},
    )
    assert made.machine_limits.whole_state_interval_ms > 86_400_000


def test_r05_errors_of_a_broker_conf_name_the_key_and_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    for line, says in (
        (
            "managedLedgerMaxAckStateInBytesToPersist=9M",
            "managedLedgerMaxAckStateInBytesToPersist of",
        ),
        (
            "managedLedgerMaxAckStateInBytesToPersist=lots",
            "managedLedgerMaxAckStateInBytesToPersist=lots",
        ),
        ("persistentUnackedRangesWithMultipleEntriesEnabled=maybe", "use true or false"),
        ("managedLedgerDefaultMarkDeleteRateLimit=often", "not a number"),
        (
            "batchIndexAcknowledgeEnable=true\nacknowledgmentAtBatchIndexLevelEnabled=false",
            "the same setting and differ",
        ),
    ):
        conf.write_text(line + "\n")
        with pytest.raises(SettingsError) as error:
            load(broker_conf=conf, environment={}, flags={"format": "pulsar"})
        assert says in str(error.value) and str(conf) in str(error.value)


def test_limits_of_a_broker_conf_are_no_business_of_the_native_format(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "managedLedgerMaxAckStateInBytesToPersist=9M\ncursorInfoCompressionType=GZIP\nmanagedLedgerMaxUnackedRangesToPersist=5\n"
    )
    made = load(broker_conf=conf, environment={})
    assert made.state_writer(GATEWAY) is None and made.state.format == "native"


def test_one_setting_given_twice_in_one_source_must_agree() -> None:
    with pytest.raises(SettingsError, match="are the same setting and differ"):
        load(
            environment={},
            flags={
                "batchIndexAcknowledgeEnable": True,
                "acknowledgmentAtBatchIndexLevelEnabled": False,
            },
        )
    assert load(
        environment={},
        flags={
            "batchIndexAcknowledgeEnable": False,
            "acknowledgmentAtBatchIndexLevelEnabled": False,
        },
    )


def test_what_was_given_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('given = ["x"]\n')
    with pytest.raises(SettingsError, match="there is no setting given"):
        load(file=tmp_path / "a.toml", environment={})


# ---- which limit counts


@pytest.mark.parametrize(
    ("flags", "state_bytes_max", "ranges_max"),
    [
        ({}, 5 << 20, None),
        ({"managedLedgerMaxUnackedRangesToPersist": 10_000}, None, 10_000),
        ({"managedLedgerMaxAckStateInBytesToPersist": "1M"}, 1 << 20, None),
        (
            {
                "managedLedgerMaxAckStateInBytesToPersist": "1M",
                "managedLedgerMaxUnackedRangesToPersist": 7,
            },
            1 << 20,
            None,
        ),
        ({"persistentUnackedRangesWithMultipleEntriesEnabled": True}, None, None),
        (
            {
                "persistentUnackedRangesWithMultipleEntriesEnabled": True,
                "managedLedgerMaxUnackedRangesToPersist": 7,
            },
            None,
            7,
        ),
        (
            {
                "persistentUnackedRangesWithMultipleEntriesEnabled": True,
                "managedLedgerMaxAckStateInBytesToPersist": "5M",
            },
            5 << 20,
            None,
        ),
    ],
)
def test_r10_the_limit_in_bytes_wins_and_a_default_gives_way(
    flags: dict[str, Any], state_bytes_max: int | None, ranges_max: int | None
) -> None:
    made = whole(**flags)
    assert (made.state_bytes_max, made.ranges_max) == (state_bytes_max, ranges_max)


def test_form_codec_and_sizes() -> None:
    made = whole(
        cursorInfoCompressionType="zstd",
        managedLedgerPersistIndividualAckAsLongArray=False,
        max_entry_bytes="128K",
    )
    assert (made.form, made.compression, made.max_entry_bytes, made.entry_bytes_max) == (
        Form.RANGES,
        Compression.ZSTD,
        128 << 10,
        4 << 20,
    )
    assert (
        whole().form is Form.LONG_ARRAY
        and whole().compression is Compression.NONE
        and not whole().truncate
    )
    assert isinstance(
        load(environment={}, flags={"format": "pulsar"}).state_writer(GATEWAY), PulsarStateWriter
    )


def test_r13_the_rhythm_is_pulsars_unless_the_interval_is_given() -> None:
    assert Settings.of().machine_limits.whole_state_interval_ms == 1_000
    for flags, wanted in (
        ({"managedLedgerDefaultMarkDeleteRateLimit": 4}, 250),
        ({"managedLedgerDefaultMarkDeleteRateLimit": 0.1}, 10_000),
        ({"managedLedgerDefaultMarkDeleteRateLimit": 0}, 10),
        ({"managedLedgerDefaultMarkDeleteRateLimit": 4, "flush_interval_ms": 30}, 30),
    ):
        assert load(environment={}, flags=flags).machine_limits.whole_state_interval_ms == wanted


@pytest.mark.parametrize(
    "name", ["batchIndexAcknowledgeEnable", "acknowledgmentAtBatchIndexLevelEnabled"]
)
def test_r17_batch_indexes_are_kept_unless_either_name_turns_them_off(name: str) -> None:
    assert Settings.of().machine_limits.batch_index_acks
    assert not load(environment={}, flags={name: False}).machine_limits.batch_index_acks


def test_footers_with_properties_must_fit_a_znode() -> None:
    with pytest.raises(SettingsError, match=r"jute\.maxbuffer"):
        load(environment={}, flags={"format": "pulsar", "inline_state_max_bytes": 720_000})
    assert load(environment={}, flags={"inline_state_max_bytes": 720_000})
