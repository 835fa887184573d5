"""Deleting one orphan: proof that Pulsar does not have it, then its tombstone, then its ledgers.
For operators.

The order, and what it prevents:

1. The footer is read once more. It must be the one that the search saw, and closed: an open cursor
   is its owner's.
2. Pulsar's store is asked, through the quorum, whether the cursor is still gone.
3. One compare-and-set on the footer that was read makes the tombstone. Whoever has opened the
   cursor since, wins: nothing was changed.
   Whoever opens it later finds a tombstone, and creates it anew. At no time is there an open footer
   of which nobody would know
   whether its writer still lives, so that a crash leaves nothing behind but ledgers, which are
   garbage then.
4. The ledgers that the footer had named are deleted. Those that cannot be are left to garbage
   collection.

An answer that is lost is found out as every footer write is: the same bytes again at the same
version, until it is decided. Each try asks Pulsar first. If the cursor has come back by then, an
earlier try may still arrive: a write at the same version, with the footer as it was, keeps it out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cursorkeeper.bookkeeper import errors as bk
from cursorkeeper.bookkeeper.port import LedgerStore
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer, FooterState, tombstone_of
from cursorkeeper.core.positions import NUMBER_MAX
from cursorkeeper.orphans.fleet import Orphan
from cursorkeeper.orphans.pulsar_store import PulsarStore
from cursorkeeper.runtime.footers import FooterStore
from cursorkeeper.zookeeper import errors as zk
from cursorkeeper_client.back_off import BackOff

WAIT_S = 30.0
"""For ZooKeeper to decide about one orphan, from the first time that it does not answer."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 2.0
AT_ONCE = 8
"""Orphans that are deleted at the same time."""


class Ending(StrEnum):
    """What became of an orphan."""

    DELETED = "deleted"
    CAME_BACK = "came back"
    """Pulsar has it again. It is as it was."""
    TAKEN = "taken"
    """Somebody else has written its footer. It is theirs."""
    UNDECIDED = "undecided"
    """ZooKeeper was away. It is as it was, or deleted: the next search tells."""


@dataclass(frozen=True, slots=True)
class Removed:
    """`said`: more about it, for people. `ledgers_left`: of a deleted one, for garbage
    collection.
    """

    ending: Ending
    said: str = ""
    ledgers_left: int = 0


@dataclass(frozen=True, slots=True)
class Remover:
    """`new_writer` makes a writer's name that no footer has had; `wait_s` see WAIT_S."""

    pulsar: PulsarStore
    footers: FooterStore
    ledgers: LedgerStore
    new_writer: Callable[[], str]
    wait_s: float = WAIT_S

    async def remove(self, orphan: Orphan) -> Removed:
        """Raises ZooKeeperError only where ZooKeeper will refuse it again."""
        removal = _Removal(self, orphan)
        try:
            return await removal.run()
        except _AwayError as e:
            return Removed(Ending.UNDECIDED, f"ZooKeeper: {e}")

    async def remove_all(self, orphans: Sequence[Orphan]) -> AsyncIterator[tuple[Orphan, Removed]]:
        """`AT_ONCE` of them at a time. Raises as `remove`."""
        for start in range(0, len(orphans), AT_ONCE):
            some = orphans[start : start + AT_ONCE]
            removed = await asyncio.gather(*map(self.remove, some))
            for each in zip(some, removed, strict=True):
                yield each


class _AwayError(Exception):
    """The time is over."""


class _Removal:
    def __init__(self, remover: Remover, orphan: Orphan) -> None:
        self._r, self._orphan, self._name = remover, orphan, orphan.name
        self._back_off = BackOff(PAUSE_MIN_S, PAUSE_MAX_S, limit_s=remover.wait_s)

    async def run(self) -> Removed:
        footer = await self._footer()
        if isinstance(footer, Removed):
            return footer
        writer = self._r.new_writer()
        tombstone = tombstone_of(footer, writer)
        sent = False
        while True:
            try:
                gone = await self._r.pulsar.is_proved_gone(self._name)
            except zk.ZooKeeperError as e:
                await self._again(e)
                continue
            if not gone:
                return await self._keep(footer, tombstone) if sent else Removed(Ending.CAME_BACK)
            sent = True
            ending = await self._write(tombstone)
            if ending is not None:
                return (
                    await self._delete_ledgers(footer)
                    if ending
                    else await self._whose(footer, tombstone)
                )

    async def _footer(self) -> Footer | Removed:
        """As the search saw it."""
        while True:
            try:
                deployment = await self._r.footers.known_deployment()
                await self._r.footers.sync()
                [stored] = await self._r.footers.read_stored([self._name])
            except zk.ZooKeeperError as e:
                await self._again(e)
                continue
            if deployment is not None:
                self._r.ledgers.act_for(deployment)
            footer = stored.footer
            if footer is None or stored.stat is None:
                return Removed(Ending.TAKEN, "its footer is gone")
            if isinstance(footer, DamageError):
                return Removed(Ending.TAKEN, str(footer))
            if (
                stored.stat.version != self._orphan.version
                or footer.state is not FooterState.CLOSED
            ):
                return Removed(Ending.TAKEN, _by(footer))
            if footer.epoch >= NUMBER_MAX:
                return Removed(
                    Ending.TAKEN,
                    f"its footer is of epoch {footer.epoch}, and there is none after that",
                )
            return footer

    async def _write(self, footer: Footer) -> bool | None:
        """Whether it was applied by this try; None: nobody knows."""
        version = self._orphan.version
        answer = await self._r.footers.write(self._name, 0, footer.written_at(version + 1), version)
        match answer:
            case ev.FooterWritten():
                return True
            case ev.FooterBadVersion() | ev.FooterGone():
                return False
            case ev.FooterWriteUnknown():
                await self._again(answer.reason)
                return None
        raise AssertionError(f"a footer with less in it than before was not taken: {answer}")

    async def _whose(self, footer: Footer, own: Footer) -> Removed:
        """Another write was there first: an earlier try of ours, or somebody else's."""
        now, said = await self._now()
        if now is not None and now.is_same_write(own):
            return await self._delete_ledgers(footer)
        return Removed(Ending.TAKEN, said)

    async def _keep(self, footer: Footer, tombstone: Footer) -> Removed:
        """It came back while it was not known whether the tombstone is there, or may come yet."""
        kept = replace(
            footer, epoch=tombstone.epoch, writer=tombstone.writer, write=tombstone.write + 1
        )
        while True:
            done = await self._write(kept)
            if done:
                return Removed(Ending.CAME_BACK)
            if done is None:
                continue
            now, said = await self._now()
            if now is not None and now.is_same_write(kept):
                return Removed(Ending.CAME_BACK)
            if now is not None and now.is_same_write(tombstone):
                deleted = await self._delete_ledgers(footer)
                return replace(
                    deleted,
                    said="and Pulsar has it again: it came back between the proof and the "
                    "answer, which was lost",
                )
            return Removed(Ending.TAKEN, said)

    async def _now(self) -> tuple[Footer | None, str]:
        """Its footer behind a sync, and what is to be said of it."""
        while True:
            answer = await self._r.footers.read(self._name, 0, sync=True)
            match answer:
                case ev.FooterRead():
                    return answer.footer, "its footer is gone" if answer.footer is None else _by(
                        answer.footer
                    )
                case ev.FooterUnreadable():
                    return None, answer.reason
                case ev.FooterReadFailed():
                    await self._again(answer.reason)

    async def _delete_ledgers(self, footer: Footer) -> Removed:
        left = 0
        for ledger in sorted(footer.named_ledgers()):
            try:
                await self._r.ledgers.delete(ledger)
            except bk.NoSuchLedger:
                continue
            except bk.GatewayError:
                left += 1
        return Removed(Ending.DELETED, ledgers_left=left)

    async def _again(self, problem: object) -> None:
        """After a pause; _AwayError if the time is over. Raises what ZooKeeper would refuse
        again.
        """
        if isinstance(problem, zk.ZooKeeperError) and problem.kind is zk.Kind.REFUSED:
            raise problem
        if self._back_off.is_over():
            raise _AwayError(str(problem))
        await asyncio.sleep(self._back_off.next_s())


def _by(footer: Footer) -> str:
    return f"its footer is {footer.state} now, in epoch {footer.epoch} of {footer.writer}"
