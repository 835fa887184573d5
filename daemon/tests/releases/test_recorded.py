"""The recordings hold what their names promise, so that reading them shows something; and the
sources are the release's.
"""

from __future__ import annotations

import tarfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from cursorkeeper.core.footer import (
    ChainLedger,
    EmptyBase,
    Footer,
    FooterState,
    InlineBase,
    PulsarBase,
    SnapshotBase,
    is_pulsar,
)
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec
from cursorkeeper.format.pulsar import chunks, cursor_info
from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.format.record import Kind
from daemon.tests.releases.recorded import RELEASES, Recorded, RecordedLedger, recordings, releases
from daemon.tests.releases.replayed import newest


@dataclass(frozen=True)
class Seen:
    """One recorded cursor, its parts taken apart."""

    recorded: Recorded
    footer: Footer

    @property
    def ledgers(self) -> dict[int, RecordedLedger]:
        return {own.ledger: own for own in self.recorded.ledgers}

    @property
    def newest(self) -> RecordedLedger:
        return self.ledgers[self.footer.chain[-1].ledger]

    @property
    def previous_chain(self) -> tuple[ChainLedger, ...]:
        return self.footer.previous.chain if self.footer.previous else ()

    def heads(self, *kinds: Kind) -> list[record.RecordHeader]:
        """Of every record of these kinds."""
        native = [
            own for own in self.recorded.ledgers if own.custom_metadata["format"] == b"native"
        ]
        return [
            head for own in native for head in map(record.peek, own.entries) if head.kind in kinds
        ]


def snapshot(seen: Seen) -> SnapshotBase:
    assert isinstance(seen.footer.base, SnapshotBase)
    return seen.footer.base


def has_codec(codec: Codec) -> Callable[[Seen], bool]:
    return lambda seen: codec in {head.codec for head in seen.heads(Kind.DELTA)}


def compressed(compression: Compression) -> Callable[[Seen], bool]:
    return lambda seen: (
        seen.newest.custom_metadata[chunks.COMPRESSION_KEY] == compression.name.encode()
    )


def sliced(seen: Seen) -> bool:
    return sum(chunks.parse_footer(entry) is not None for entry in seen.newest.entries) >= 2


PROMISES: dict[str, Callable[[Seen], bool]] = {
    "created": lambda s: isinstance(s.footer.base, InlineBase) and not s.footer.chain,
    "native-deltas": lambda s: (
        has_codec(Codec.ZSTD)(s)
        and len(s.recorded.ledgers) == 1
        and isinstance(s.footer.base, EmptyBase)
    ),
    "native-deltas-lz4": has_codec(Codec.LZ4),
    "native-deltas-none": lambda s: {head.codec for head in s.heads(*Kind)} == {Codec.NONE},
    "native-digest-mac": lambda s: s.newest.spec.digest.name == "MAC",
    "native-power-cut": lambda s: not s.newest.closed and len(s.footer.chain) == 2,
    "native-killed-in-traffic": lambda s: (
        s.recorded.sent is not None and s.recorded.expected["acked"] != s.recorded.sent["acked"]
    ),
    "native-snapshot-and-chain": lambda s: (
        snapshot(s).num_parts >= 3 and len(s.footer.chain) >= 5 and bool(s.heads(Kind.DELTA))
    ),
    "native-two-snapshots": lambda s: (
        s.footer.previous is not None and isinstance(s.footer.previous.base, SnapshotBase)
    ),
    "native-killed-in-snapshot": lambda s: (
        s.footer.previous is not None
        and snapshot(s).ledger != s.newest.ledger
        and {record.peek(entry).kind for entry in s.newest.entries} >= {Kind.SEGMENT}
        and Kind.SNAPSHOT_END not in {record.peek(entry).kind for entry in s.newest.entries}
    ),
    "native-closed-inline": lambda s: isinstance(s.footer.base, InlineBase) and not s.footer.chain,
    "native-closed-in-ledger": lambda s: (
        s.footer.state is FooterState.CLOSED and s.footer.chain[0].last_entry is not None
    ),
    "native-inline-backstop": lambda s: (
        isinstance(s.footer.base, InlineBase)
        and s.footer.state is FooterState.OPEN
        and not s.footer.chain
        and bool(s.ledgers)
    ),
    "native-reset": lambda s: (
        s.footer.generation == 2 and isinstance(s.footer.base, InlineBase) and bool(s.footer.chain)
    ),
    "native-batch-indexes": lambda s: (
        len(s.recorded.expected["partials"]) >= 4
        and 0 in {p[2] for p in s.recorded.expected["partials"]}
    ),
    "native-mark-delete-over-ledgers": lambda s: s.recorded.expected["markDelete"][0] == 40,
    "native-trimmed-ledger": lambda s: (
        "TRIMMED" in {item[1] for item in s.recorded.expected["layout"]}
    ),
    "native-properties": lambda s: (
        bool(s.recorded.expected["markDeleteProperties"]) and not s.recorded.name.topic.isascii()
    ),
    "pulsar-one-entry": lambda s: (
        newest(s.newest)[0].form is Form.LONG_ARRAY and s.footer.cursor_properties is not None
    ),
    "pulsar-ranges": lambda s: newest(s.newest)[0].form is Form.RANGES,
    "pulsar-lz4": compressed(Compression.LZ4),
    "pulsar-zlib": compressed(Compression.ZLIB),
    "pulsar-zstd": compressed(Compression.ZSTD),
    "pulsar-snappy": compressed(Compression.SNAPPY),
    "pulsar-several-entries": lambda s: sliced(s) and not s.newest.closed,
    "pulsar-several-entries-lz4": lambda s: sliced(s) and compressed(Compression.LZ4)(s),
    "pulsar-cut-off": lambda s: (
        len(s.newest.entries[-1]) == int(s.newest.custom_metadata["entry-bytes-max"])
    ),
    "pulsar-closed-inline": lambda s: (
        isinstance(s.footer.base, PulsarBase)
        and cursor_info.unwrap(s.footer.base.info, limit_bytes=1 << 20)[1] is Compression.ZSTD
    ),
    "pulsar-closed-in-ledger": lambda s: (
        is_pulsar(s.footer.chain[0]) and s.footer.chain[0].last_entry is not None
    ),
    "pulsar-reset": lambda s: s.footer.generation == 2 and is_pulsar(s.footer.chain[0]),
    "pulsar-truncated": lambda s: s.footer.truncated is not None and s.footer.truncated.acks > 0,
    "pulsar-to-native": lambda s: [item.format for item in s.footer.chain] == ["pulsar", "native"],
    "pulsar-behind-native": lambda s: bool(snapshot(s)) and any(map(is_pulsar, s.previous_chain)),
    "native-deleted": lambda s: s.footer.state is FooterState.DELETED and s.recorded.epoch == 2,
}


def of(release: str) -> dict[str, Recorded]:
    return {recorded.story: recorded for recorded in recordings() if recorded.release == release}


@pytest.mark.parametrize("release", releases())
def test_every_story_is_there(release: str) -> None:
    assert set(of(release)) >= set(PROMISES)


@pytest.mark.parametrize("release", releases())
@pytest.mark.parametrize("story", PROMISES)
def test_a_story_is_what_its_name_says(release: str, story: str) -> None:
    recorded = of(release)[story]
    assert PROMISES[story](Seen(recorded, footer_bytes.decode(recorded.footer, recorded.name)))


# ---- the sources


def members(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for member in archive.getmembers():
        yield member.name.partition("/")[2], member


@pytest.mark.parametrize("release", releases())
def test_the_sources_are_those_of_the_release_and_nothing_that_was_built(release: str) -> None:
    with tarfile.open(RELEASES / f"cursorkeeper-{release}-sources.tar.xz") as archive:
        found = dict(members(archive))
        project = archive.extractfile(found["pyproject.toml"])
        assert project is not None
        assert tomllib.load(project)["project"]["version"] == release
    needed = {
        "java/pom.xml",
        "java/gateway/pom.xml",
        "proto/acks.proto",
        "proto/ledgers.proto",
        "requirements.lock",
        "README.md",
        "LICENSE",
    }
    needed |= {
        "tools/build_protos.py",
        "tools/hatch_build.py",
        "daemon/cursorkeeper/app.py",
        "clients/cursorkeeper_clients/py.typed",
    }
    assert needed <= set(found)
    assert not [
        name
        for name in found
        if name.endswith((".jar", ".class", ".pyc", "_pb2.py")) or "target" in name.split("/")
    ]
    assert {(member.uid, member.mtime) for member in found.values()} == {
        (0, found["LICENSE"].mtime)
    }
    assert list(found) == sorted(found)
