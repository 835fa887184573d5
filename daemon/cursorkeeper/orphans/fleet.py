"""What a search for orphans found, whether it can be believed, and which of them may go. Values and
decisions only, for operators.

An orphan is a cursor whose znode Pulsar has no more: a topic that is deleted by force takes its
cursors from Pulsar's store without telling anybody else. A search that looks in the wrong store
finds nothing but orphans, so that nothing is deleted after one that looks wrong as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cursorkeeper.core.footer import Footer, FooterState, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.zookeeper.values import Stat

ORPHANS_KEPT_MAX = 100_000
"""Of one search; what is found beyond them is counted."""
PERCENT_MAX = 25.0
"""So many of all cursors may be orphans before a search is not believed."""


class Why(StrEnum):
    """An orphan's topic is gone, or the topic is there without the subscription."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A cursor of ours that Pulsar does not have, as its footer was read. `version` is the znode's,
    `written_ms` the time of the last write by ZooKeeper's clock, `stored_bytes` what the footer
    knows of: itself, the snapshot, the deltas.
    """

    name: CursorName
    why: Why
    state: FooterState
    writer: str
    version: int
    written_ms: int
    ledgers: int
    stored_bytes: int
    fencing_token: int = 0

    @classmethod
    def of(
        cls,
        name: CursorName,
        why: Why,
        footer: Footer,
        stat: Stat,
    ) -> Orphan:
        snapshot_bytes = footer.base.length if isinstance(footer.base, SnapshotBase) else 0
        stored_bytes = stat.data_bytes + snapshot_bytes + footer.stats.delta_bytes
        ledgers = len(footer.named_ledgers())
        return cls(
            name,
            why,
            footer.state,
            footer.writer,
            stat.version,
            stat.mtime_ms,
            ledgers,
            stored_bytes,
            footer.fencing_token,
        )

    @property
    def is_open(self) -> bool:
        """At a daemon, or left so by one that was killed."""
        return self.state is FooterState.OPEN

    def idle_s(self, now_ms: int) -> float:
        """Since the last write of the footer."""
        return max(0.0, (now_ms - self.written_ms) / 1000)

    def stays(self, now_ms: int, age_s: float) -> str:
        """Why it must not be deleted; empty: it may."""
        if self.is_open:
            return "open"
        return "young" if self.idle_s(now_ms) < age_s else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "cursor": self.name.display,
            "topic": self.name.topic,
            "subscription": self.name.subscription,
            "gone": str(self.why),
            "state": str(self.state),
            "writer": self.writer,
            "writtenMs": self.written_ms,
            "ledgers": self.ledgers,
            "storedBytes": self.stored_bytes,
            "fencingToken": self.fencing_token,
        }


@dataclass(slots=True)
class Fleet:
    """Counts of one search, of cursors that are not deleted."""

    cursors: int = 0
    """That a topic of Pulsar's can have. The others are in `foreign`, those with a footer that
    cannot be read in `unreadable`.
    """
    with_topic: int = 0
    foreign: int = 0
    unreadable: int = 0
    orphans_count: int = 0
    orphans: list[Orphan] = field(default_factory=list)

    def add(self, orphan: Orphan) -> None:
        """Beyond ORPHANS_KEPT_MAX it is only counted."""
        self.orphans_count += 1
        if len(self.orphans) < ORPHANS_KEPT_MAX:
            self.orphans.append(orphan)

    @property
    def percent(self) -> float:
        """How many of the cursors are orphans."""
        return 100 * self.orphans_count / self.cursors if self.cursors else 0.0

    def doubt(self, percent_max: float) -> str:
        """Why the search is not believed; empty: it is. With 100 percent allowed, all of them may
        be orphans.
        """
        if self.orphans_count and not self.with_topic and percent_max < 100:
            return f"Pulsar's metadata store has no topic of any of the {self.cursors:,} cursors"
        if self.percent > percent_max:
            share = f"{self.orphans_count:,} of {self.cursors:,} cursors"
            return (
                f"{share} are orphans, {self.percent:.1f} percent; {percent_max:g} percent "
                f"are believed"
            )
        return ""

    def as_json(self) -> dict[str, Any]:
        """Its part of the last line of `--json`."""
        return {
            "orphans": self.orphans_count,
            "cursors": self.cursors,
            "foreign": self.foreign,
            "unreadable": self.unreadable,
        }


class Ages:
    """For how long each orphan has been one, seen by one daemon: from the first of the searches
    that all found it, its footer unwritten. What a search does not find, or finds written, begins
    anew; so does everything with the daemon.
    """

    def __init__(self) -> None:
        self._since_s: dict[CursorName, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def found(self, orphans: Iterable[Orphan], now_s: float) -> None:
        """All orphans of one search: those that are not among them are forgotten."""
        before, self._since_s = self._since_s, {}
        for orphan in orphans:
            version, since_s = before.get(orphan.name, (orphan.version, now_s))
            self._since_s[orphan.name] = (
                orphan.version,
                since_s if version == orphan.version else now_s,
            )

    def age_s(self, orphan: Orphan, now_s: float) -> float:
        """0 for one that the last search did not find."""
        version, since_s = self._since_s.get(orphan.name, (orphan.version, now_s))
        return now_s - since_s if version == orphan.version else 0.0
