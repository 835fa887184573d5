"""What a real Pulsar `broker.conf` says that applies to cursors: addresses, quorums, digest,
limits.

Names are Pulsar's. The limits of the state, its form and its codec count only with `format =
"pulsar"`: the native format has no ceiling to configure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_NUMBERS = {
    "managedLedgerDefaultEnsembleSize": "ensemble",
    "managedLedgerDefaultWriteQuorum": "write_quorum",
    "managedLedgerDefaultAckQuorum": "ack_quorum",
    "zooKeeperSessionTimeoutMillis": "zookeeper_session_timeout_ms",
    "metadataStoreSessionTimeoutMillis": "zookeeper_session_timeout_ms",
    "managedLedgerCursorRolloverTimeInSeconds": "ledger_age_max_s",
    "managedLedgerMaxUnackedRangesToPersist": "managed_ledger_max_unacked_ranges_to_persist",
    "managedCursorInfoCompressionThresholdInBytes": (
        "managed_cursor_info_compression_threshold_in_bytes"
    ),
}
_SIZES = ("persistentUnackedRangesMaxEntrySize", "managedLedgerMaxAckStateInBytesToPersist")
_SWITCHES = (
    "persistentUnackedRangesWithMultipleEntriesEnabled",
    "managedLedgerPersistIndividualAckAsLongArray",
    "dispatcherPauseOnAckPersistentStateEnabled",
    "dispatcherPauseOnAckStatePersistentEnabled",
    "batchIndexAcknowledgeEnable",
    "acknowledgmentAtBatchIndexLevelEnabled",
)
_CODECS = ("cursorInfoCompressionType", "managedCursorInfoCompressionType")
_RATE = "managedLedgerDefaultMarkDeleteRateLimit"
_ADDRESSES = ("zookeeperServers", "metadataStoreUrl")
_DIGESTS = {"CRC32C": "CRC32C", "CRC32": "CRC32", "MAC": "MAC", "DUMMY": "DUMMY"}


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file, as Pulsar's are: `key=value` lines, `#` comments, the last of several
    counts.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, _, value = stripped.partition("=")
        found[key.strip()] = value.strip()
    return found


def read_broker_conf(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings by our names, and by the same names Pulsar's keys that they come from. Raises
    SettingsError.
    """
    from cursorkeeper.settings import SettingsError

    try:
        conf = read_properties(file.read_text(encoding="utf-8"))
    except OSError as e:
        raise SettingsError(f"{file}: {e.strerror or e}") from e
    except UnicodeDecodeError as e:
        raise SettingsError(
            f"{file}: byte {e.start} is not UTF-8: is it a broker.conf? Save it as UTF-8 text"
        ) from e
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key in _ADDRESSES:
        address = conf.get(key, "")
        if address:
            scheme, colon, rest = address.partition(":")
            # the older name knows no scheme: a host may be called zk
            if colon and scheme == "zk" and key == "metadataStoreUrl":
                address = rest
            elif scheme in ("rocksdb", "etcd", "memory", "oxia"):
                raise SettingsError(
                    f"{file}: {key}={address}: footers are kept in ZooKeeper; give its address "
                    f"with --zookeeper"
                )
            found["zookeeper"], keys["zookeeper"] = address, key
    for key, name in _NUMBERS.items():
        text = conf.get(key, "")
        if text:
            try:
                found[name], keys[name] = int(text), key
            except ValueError as e:
                raise SettingsError(f"{file}: {key}={text}: not a number") from e
    _read_state(file, conf, found, keys)
    digest = conf.get("managedLedgerDigestType", "")
    if digest:
        if digest not in _DIGESTS:
            raise SettingsError(
                f"{file}: managedLedgerDigestType={digest}: use one of {', '.join(_DIGESTS)}"
            )
        found["digest"], keys["digest"] = _DIGESTS[digest], "managedLedgerDigestType"
    if conf.get("managedLedgerPassword"):
        found["password"], keys["password"] = conf["managedLedgerPassword"], "managedLedgerPassword"
    return found, keys


def _read_state(
    file: Path, conf: dict[str, str], found: dict[str, Any], keys: dict[str, str]
) -> None:
    """How the state is written, and what limits it."""
    from cursorkeeper.settings import ALIASES, SettingsError, byte_size

    for key in (*_SIZES, *_SWITCHES, *_CODECS, _RATE):
        text, name = conf.get(key, ""), ALIASES[key]
        if not text:
            continue
        value: Any = text
        if key in _SWITCHES:
            if text.lower() not in ("true", "false"):
                raise SettingsError(f"{file}: {key}={text}: use true or false")
            value = text.lower() == "true"
        elif key in _SIZES:
            value = byte_size(text)
            if value is None:
                raise SettingsError(
                    f"{file}: {key}={text}: not a number (of bytes, K or M may follow)"
                )
        elif key == _RATE:
            try:
                value = float(text)
            except ValueError as e:
                raise SettingsError(f"{file}: {key}={text}: not a number") from e
        if name in found and name in keys and keys[name] != key and found[name] != value:
            raise SettingsError(
                f"{file}: {keys[name]} and {key} are the same setting and differ: give one of them"
            )
        found[name], keys[name] = value, key
