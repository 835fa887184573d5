"""Pulsar's own broker.conf: an excerpt as it is shipped, with what an operator would have
changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cursorkeeper import connections
from cursorkeeper.settings import Settings, SettingsError, load

REAL = """\
#
# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.
#

### --- General broker settings --- ###

# The metadata store URL
# Examples:
# * zk:my-zk-1:2181,my-zk-2:2181,my-zk-3:2181
# * my-zk-1:2181,my-zk-2:2181,my-zk-3:2181 (ZooKeeper, when no schema is specified)
# * zk:my-zk-1:2181,my-zk-2:2181,my-zk-3:2181/my-chroot-path (to add a ZK chroot path)
metadataStoreUrl=zk:zk-1:2181,zk-2:2181,zk-3:2181/pulsar-a

# The metadata store URL for the configuration data. If empty, we fall back to use metadataStoreUrl
configurationMetadataStoreUrl=

# Broker data port
brokerServicePort=6650
webServicePort=8080

# Metadata store session timeout in milliseconds.
metadataStoreSessionTimeoutMillis=20000
zooKeeperOperationTimeoutSeconds=-1

### --- Managed Ledger --- ###

# Number of bookies to use when creating a ledger
managedLedgerDefaultEnsembleSize=2

# Number of copies to store for each message
managedLedgerDefaultWriteQuorum=2

# Number of guaranteed copies (acks to wait before write is complete)
managedLedgerDefaultAckQuorum=2

# How frequently to flush the cursor positions that were accumulated, in seconds.
managedLedgerCursorPositionFlushSeconds = 60

# Default type of checksum to use when writing to BookKeeper. Default is "CRC32C". Others
# are "CRC32", "MAC" or "DUMMY" (no checksum).
managedLedgerDigestType=CRC32C

# Default  password to use when writing to BookKeeper.
managedLedgerPassword=

# Max number of entries to append to a cursor ledger
managedLedgerCursorMaxEntriesPerLedger=50000

# Max time before triggering a rollover on a cursor ledger
managedLedgerCursorRolloverTimeInSeconds=14400

# Max number of "acknowledgment holes" that are going to be persistently stored.
managedLedgerMaxUnackedRangesToPersist=10000
managedLedgerMaxUnackedRangesToPersistInMetadataStore=-1

# Deprecated settings
zookeeperServers=
"""


def conf(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    return file


def test_a_shipped_one(tmp_path: Path) -> None:
    made = load(broker_conf=conf(tmp_path, REAL), environment={})
    assert made.systems.zookeeper == "zk-1:2181,zk-2:2181,zk-3:2181/pulsar-a"
    assert (
        made.ledgers.ensemble,
        made.ledgers.write_quorum,
        made.ledgers.ack_quorum,
        made.ledgers.digest,
    ) == (2, 2, 2, "CRC32C")
    assert (
        made.systems.zookeeper_session_timeout_ms,
        made.cursor.ledger_age_max_s,
        made.ledgers.password,
    ) == (
        20_000,
        14_400,
        "",
    )
    assert made.cursor.max_entry_bytes == Settings.of().cursor.max_entry_bytes
    parsed = connections.zookeeper_settings(made.systems)
    assert (
        parsed.servers == (("zk-1", 2181), ("zk-2", 2181), ("zk-3", 2181))
        and parsed.chroot == "/pulsar-a"
    )


def test_an_older_one(tmp_path: Path) -> None:
    text = (
        "zookeeperServers=zk:2181\nzooKeeperSessionTimeoutMillis=30000\n"
        "managedLedgerPassword=s3cret\nmanagedLedgerDigestType=MAC\n"
    )
    made = load(broker_conf=conf(tmp_path, text), environment={})
    assert made.systems.zookeeper == "zk:2181", "a host may be called zk"
    assert (made.ledgers.password, made.ledgers.digest) == ("s3cret", "MAC")


def test_limits_of_pip_381(tmp_path: Path) -> None:
    made = load(
        broker_conf=conf(tmp_path, "persistentUnackedRangesMaxEntrySize=524288\n"), environment={}
    )
    assert made.cursor.max_entry_bytes == 524_288


def test_the_last_of_several_counts(tmp_path: Path) -> None:
    made = load(
        broker_conf=conf(
            tmp_path, "managedLedgerDefaultEnsembleSize=3\n managedLedgerDefaultEnsembleSize = 4 \n"
        ),
        environment={},
    )
    assert made.ledgers.ensemble == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("managedLedgerDefaultEnsembleSize=many\n", "managedLedgerDefaultEnsembleSize=many"),
        ("managedLedgerDigestType=SHA\n", "managedLedgerDigestType=SHA"),
        ("metadataStoreUrl=oxia://x:6648/default\n", "--zookeeper"),
        ("metadataStoreUrl=etcd:http://x:2379\n", "--zookeeper"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as error:
        load(broker_conf=conf(tmp_path, text), environment={})
    assert "broker.conf" in str(error.value)


def test_a_whole_number_of_pulsars_has_no_fraction(tmp_path: Path) -> None:
    for text in ("4.5", "1e3", "nan"):
        line = f"managedLedgerCursorRolloverTimeInSeconds={text}\n"
        with pytest.raises(SettingsError, match="not a number"):
            load(broker_conf=conf(tmp_path, line), environment={})


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(broker_conf=tmp_path / "none", environment={})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "persistentUnackedRangesMaxEntrySize=1000\n",
            "max_entry_bytes is persistentUnackedRangesMaxEntrySize of ",
        ),
        (
            "managedLedgerDefaultEnsembleSize=1\n",
            "ensemble is managedLedgerDefaultEnsembleSize of ",
        ),
        (
            "managedLedgerCursorRolloverTimeInSeconds=-1\n",
            "ledger_age_max_s is managedLedgerCursorRolloverTimeInSeconds of ",
        ),
    ],
)
def test_a_number_out_of_range_is_told_by_the_name_that_stands_in_the_file(
    tmp_path: Path, text: str, says: str
) -> None:
    file = conf(tmp_path, text)
    with pytest.raises(SettingsError) as error:
        load(broker_conf=file, environment={})
    assert f"{says}{file}" in str(error.value)


def test_who_overrides_it_is_not_told_of_the_file(tmp_path: Path) -> None:
    file = conf(tmp_path, "persistentUnackedRangesMaxEntrySize=524288\n")
    with pytest.raises(SettingsError) as error:
        load(broker_conf=file, environment={}, flags={"max_entry_bytes": 1000})
    assert "broker.conf" not in str(error.value)


def test_not_a_text(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_bytes(b"managedLedgerPassword=\xff\xfe\n")
    with pytest.raises(SettingsError, match=r"broker\.conf: byte 22 is not UTF-8"):
        load(broker_conf=file, environment={})


@pytest.mark.parametrize(
    ("said", "is_secure"),
    [
        ("zookeeper.client.secure=true\nzookeeper.ssl.trustStore.type=PEM\n", True),
        ("zookeeper.client.secure=false\n", False),
        ("zookeeper.request.timeout=5000\n", False),
    ],
)
def test_zookeeper_is_dialled_with_tls_where_a_broker_does(
    said: str, is_secure: bool, tmp_path: Path
) -> None:
    (tmp_path / "client.conf").write_text(said)
    file = conf(tmp_path, f"metadataStoreConfigPath={tmp_path}/client.conf\n")
    assert load(broker_conf=file, environment={}).systems.zookeeper_tls_enabled is is_secure
    given = {"zookeeper_tls_enabled": False}
    assert not load(broker_conf=file, environment={}, flags=given).systems.zookeeper_tls_enabled


def test_the_file_of_zookeepers_client_must_be_there(tmp_path: Path) -> None:
    file = conf(tmp_path, f"metadataStoreConfigPath={tmp_path}/nowhere.conf\n")
    with pytest.raises(
        SettingsError, match=r"metadataStoreConfigPath=.*nowhere.conf.*No such"
    ) as e:
        load(broker_conf=file, environment={})
    assert "zookeeper_tls_enabled" in e.value.remedy
