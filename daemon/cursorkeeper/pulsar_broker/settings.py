"""The settings of a Pulsar broker that decide which acks survive it, with the defaults of each
release line.

Owns names, defaults and their sources; `model` owns what they do. A broker.conf overrides the
defaults of its version, by Pulsar's own names. Differences between releases that no setting names
(one range more than the cap, how the cap of the long array counts, batch sets in the znode) are
fields too, because they decide as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cursorkeeper.core.errors import ExplainedError
from cursorkeeper.format.pulsar.values import Compression


class PulsarSettingsError(ExplainedError):
    """A version or a value that is not known. The message names it; the remedy says what to write
    instead.
    """


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """What decides. Counts are of what the names say; sizes in bytes, times in seconds."""

    version: str = "4.2"
    ranges_max: int = 10_000
    """managedLedgerMaxUnackedRangesToPersist. With the long array it is compared with acked
    *entries*.
    """
    batches_max: int = 10_000
    """managedLedgerMaxBatchDeletedIndexToPersist: partly acked batches."""
    znode_ranges_max: int = 1_000
    """managedLedgerMaxUnackedRangesToPersistInMetadataStore: up to it a graceful close uses the
    znode.
    """
    long_array: bool = True
    """managedLedgerPersistIndividualAckAsLongArray (and, before 5.0,
    managedLedgerUnackedRangesOpenCacheSetEnabled).
    """
    batch_index: bool = True
    """acknowledgmentAtBatchIndexLevelEnabled."""
    compression: Compression = Compression.NONE
    """managedCursorInfoCompressionType: of the znode only."""
    compression_threshold_bytes: int = 16_384
    """managedCursorInfoCompressionThresholdInBytes."""
    frame_bytes_max: int = 5_253_120
    """One BookKeeper message: maxMessageSize + 10,240."""
    znode_bytes_max: int = 1_048_575
    """One ZooKeeper request: jute.maxbuffer."""
    window_s: float = 1.0
    """1 / managedLedgerDefaultMarkDeleteRateLimit: between two flushes while acks arrive."""
    idle_window_s: float = 60.0
    """managedLedgerCursorPositionFlushSeconds: until a flush when acks have stopped."""
    one_range_more: bool = True
    """Range lists are cut one range after the cap (until #25548)."""
    cap_counts_ledger: bool = False
    """Whether the ledger in question counts when the long array is cut. False: the ledger that
    crosses the cap is still written (measured with 4.2.4 and 5.0.0-M1). True: it is not, and if it
    is the first one, ranges are written instead.
    """
    znode_restores_batches: bool = False
    """Whether recovery takes batch sets from a znode (since #26474)."""


_BEFORE_4_1 = PulsarSettings(long_array=False, batch_index=False)
_FIVE = PulsarSettings(
    ranges_max=200_000,
    batches_max=200_000,
    znode_ranges_max=200_000,
    compression=Compression.LZ4,
    one_range_more=False,
)
VERSIONS: Mapping[str, PulsarSettings] = {
    "3.0": replace(_BEFORE_4_1, version="3.0", compression_threshold_bytes=0),
    "4.0": replace(_BEFORE_4_1, version="4.0"),
    "4.1": PulsarSettings(version="4.1"),
    "4.2": PulsarSettings(version="4.2"),
    "5.0.0-M1": replace(_FIVE, version="5.0.0-M1"),
    "5.0": replace(_FIVE, version="5.0", cap_counts_ledger=True, znode_restores_batches=True),
}
"""Release line -> its defaults. 4.2 and 5.0.0-M1 are measured; 5.0 (after its first milestone) is
read from its source.
"""
DEFAULT_VERSION = "4.2"


def of_version(text: str) -> PulsarSettings:
    """The defaults of "4.2", "4.2.4", "5.0.0-M1", ... Raises PulsarSettingsError."""
    known = VERSIONS.get(text) or VERSIONS.get(".".join(text.split(".")[:2]))
    if known is None:
        raise PulsarSettingsError(
            f"Pulsar {text}: its defaults are not known",
            f"use one of {', '.join(VERSIONS)}, or the nearest to it",
        )
    return replace(known, version=text)


_COUNTS = {
    "managedLedgerMaxUnackedRangesToPersist": "ranges_max",
    "managedLedgerMaxBatchDeletedIndexToPersist": "batches_max",
    "managedCursorInfoCompressionThresholdInBytes": "compression_threshold_bytes",
}
_ZNODE_RANGES = (
    "managedLedgerMaxUnackedRangesToPersistInZooKeeper",
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
)
"""The old name counts only where it is not -1."""
_SWITCHES = {
    "managedLedgerPersistIndividualAckAsLongArray": "long_array",
    "acknowledgmentAtBatchIndexLevelEnabled": "batch_index",
}


def with_broker_conf(settings: PulsarSettings, conf: Mapping[str, str]) -> PulsarSettings:
    """A broker.conf's own values over a version's defaults. Raises PulsarSettingsError."""
    found: dict[str, object] = {
        name: _count(conf, key) for key, name in _COUNTS.items() if conf.get(key)
    }
    for key in _ZNODE_RANGES:
        if conf.get(key) and _count(conf, key, low=-1) >= 0:
            found["znode_ranges_max"] = _count(conf, key)
            break
    found.update({name: _switch(conf, key) for key, name in _SWITCHES.items() if conf.get(key)})
    if not _switch(
        conf, "managedLedgerUnackedRangesOpenCacheSetEnabled", default=True
    ) and not settings.version.startswith("5"):
        found["long_array"] = False
    if conf.get("managedCursorInfoCompressionType"):
        found["compression"] = _codec(conf, "managedCursorInfoCompressionType")
    if conf.get("maxMessageSize"):
        found["frame_bytes_max"] = _count(conf, "maxMessageSize", low=1) + 10_240
    rate = _number(
        conf,
        "managedLedgerDefaultMarkDeleteRateLimit",
        1 / settings.window_s if settings.window_s else 0.0,
    )
    found["window_s"] = 1 / rate if rate > 0 else 0.0
    found["idle_window_s"] = _number(
        conf, "managedLedgerCursorPositionFlushSeconds", settings.idle_window_s
    )
    return replace(settings, **found)  # type: ignore[arg-type]


def _bad(conf: Mapping[str, str], key: str, why: str) -> PulsarSettingsError:
    return PulsarSettingsError(f"{key}={conf[key]}: {why}", "correct the broker.conf")


def _count(conf: Mapping[str, str], key: str, low: int = 0) -> int:
    try:
        value = int(conf[key])
    except ValueError:
        raise _bad(conf, key, "not a whole number") from None
    if value < low:
        raise _bad(conf, key, f"below {low}")
    return value


def _number(conf: Mapping[str, str], key: str, default: float) -> float:
    try:
        return float(conf.get(key) or default)
    except ValueError:
        raise _bad(conf, key, "not a number") from None


def _switch(conf: Mapping[str, str], key: str, default: bool = False) -> bool:
    text = conf.get(key, "").lower()
    if text not in ("", "true", "false"):
        raise _bad(conf, key, "neither true nor false")
    return text == "true" if text else default


def _codec(conf: Mapping[str, str], key: str) -> Compression:
    try:
        return Compression[conf[key].upper()]
    except KeyError:
        names = ", ".join(c.name for c in Compression)
        raise PulsarSettingsError(
            f"{key}={conf[key]}: no such codec", f"use one of {names}"
        ) from None
