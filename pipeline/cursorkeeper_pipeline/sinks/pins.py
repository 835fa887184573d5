"""Which version of Pulsar's znode a run may replace: a znode for each cursor below the run's
record, in shards, made once, never moved.

Owns its value and its place. Who makes it asks the record afterwards (`Swap`): the pins of a run
that is decided are gone, so that what was not found may have been there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper.zookeeper.port import ZooKeeper

DELETE_BATCH: Final = 64


class Pin(NamedTuple):
    """What a run may replace: this version of the znode (ABSENT: none), which named this ledger
    (-1: none).
    """

    version: int
    old_ledger: int


@dataclass(frozen=True, slots=True)
class Pins:
    """Of one run. `record`: the path of its record."""

    zookeeper: ZooKeeper
    record: str

    async def find(self, ref: PulsarCursorRef) -> Pin | None:
        """None: no attempt of the run has pinned the cursor. Raises ZooKeeperError."""
        try:
            return msgspec.json.decode((await self.zookeeper.get(self._path(ref))).data, type=Pin)
        except zk.NoNode:
            return None

    async def pin(self, ref: PulsarCursorRef, seen: Pin) -> Pin:
        """What the run's first attempt has seen: `seen` itself, if this is it. Raises
        ZooKeeperError.
        """
        path = self._path(ref)
        try:
            try:
                await self.zookeeper.create(path, msgspec.json.encode(seen))
            except zk.NoNode:
                await self.zookeeper.ensure_path(path.rpartition("/")[0])
                await self.zookeeper.create(path, msgspec.json.encode(seen))
        except zk.NodeExists:
            # none: the run is decided, and its pins are being purged
            return await self.find(ref) or Pin(*seen)
        return seen

    async def unpin(self, ref: PulsarCursorRef) -> None:
        """Only after the run was decided. Raises ZooKeeperError."""
        path = self._path(ref)
        for one in (path, path.rpartition("/")[0], self._folder):  # folders that hold others' stay
            await self._delete(one)

    async def purge(self) -> None:
        """Only after the run was decided. Raises ZooKeeperError."""
        with suppress(zk.NoNode):
            for shard in await self.zookeeper.children(self._folder):
                names = await self.zookeeper.children(f"{self._folder}/{shard}")
                for first in range(0, len(names), DELETE_BATCH):
                    await asyncio.gather(
                        *(
                            self._delete(f"{self._folder}/{shard}/{n}")
                            for n in names[first : first + DELETE_BATCH]
                        )
                    )
                await self._delete(f"{self._folder}/{shard}")
            await self._delete(self._folder)

    async def _delete(self, path: str) -> None:
        with suppress(zk.NoNode, zk.NotEmpty):
            await self.zookeeper.delete(path, 0)

    def _path(self, ref: PulsarCursorRef) -> str:
        return f"{self._folder}/{ref.name.bucket[:2]}/{ref.name.znode}"

    @property
    def _folder(self) -> str:
        return f"{self.record}/pins"
