"""Serves every part of a cursor: whose it is, and what its footer says and will say (ARCHITECTURE
rules 3, 4 and 9).

Owns the one footer write at a time, the epoch, the generation, and the ledgers that the next footer
names. Invariants: nothing that a committed footer names is deleted; a footer once seen is never
created again; an owner that was deposed writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from enum import Enum
from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core.commit import Committed, FooterCommit, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.fencing import Fencing
from cursorkeeper.core.footer import (
    Base,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    Previous,
    Truncation,
    ended,
    is_native,
    is_pulsar,
    parts_of,
)
from cursorkeeper.core.handles import Handles
from cursorkeeper.core.life import Life
from cursorkeeper.core.positions import FIRST
from cursorkeeper.core.questions import Questions
from cursorkeeper.core.shape import component
from cursorkeeper.core.table import OWNING, State
from cursorkeeper.core.turn import Turn

RESTORE = (
    "Put the *latest* bytes of the footer back with `cursorkeeper restore-footer`, which "
    "shows first what they hold"
)


class Owner(Enum):
    """What a read of the footer says of who owns the cursor."""

    WE = "the footer is of our epoch, and of our writer"
    NOT_KNOWN = (
        "there is none where there was one: a server that lags may say so, until it is "
        "asked after a sync"
    )
    ENDED = "it is somebody else's, or gone: this machine has ended"


CLAIM_WRITE = 1
"""The number of the footer write that claims."""


@component
class Ownership:
    _turn: Turn
    _life: Life
    _handles: Handles
    _questions: Questions
    commit: FooterCommit = field(init=False)
    fencing: Fencing = field(init=False)
    epoch: int = 0
    generation: int = 1
    write: int = 0
    """The number of the newest footer write of this epoch."""
    sequence: int = 0
    """The number of the newest record of this epoch."""
    # what the next footer will say; the committed one is in `commit`
    base: Base = EmptyBase(FIRST)
    chain: tuple[ChainLedger, ...] = ()
    previous: Previous | None = None
    names_native: bool = False
    names_pulsar: bool = False
    damaged: tuple[EntryAddress, ...] = ()
    claimed_bases: tuple[Base, ...] = ()
    """What the footer named when it was claimed: written by owners before us."""
    truncated: Truncation | None = None
    """What the next footer says is left out of the stored state."""
    look_again: bool = False
    """The footer may have changed since it was read last."""
    look_token: int = 0
    """Of the read that looks; 0: none is on its way."""
    has_failed_to_look: bool = False
    """The last read that looked was not answered: what it should have seen is not known yet."""
    _is_synced: bool = False

    def __post_init__(self) -> None:
        self.commit = FooterCommit(self._turn)
        self.fencing = Fencing(self.commit, self._handles, self._questions)

    # ---- footer writes

    @property
    def is_writing(self) -> bool:
        """A footer write is not decided."""
        return self.commit.outstanding is not None

    def is_deciding(self, *purposes: Purpose) -> bool:
        """Whether a footer write for one of these purposes is not decided."""
        return self.commit.outstanding is not None and self.commit.outstanding.purpose in purposes

    @property
    def committed(self) -> Footer | None:
        return self.commit.committed

    def _lead_to(
        self, base: Base, chain: tuple[ChainLedger, ...], previous: Previous | None
    ) -> None:
        """What the next footer names. Which forms that is in is asked at every event."""
        self.base, self.chain, self.previous = base, chain, previous
        parts = parts_of(base, chain, previous)
        self.names_native, self.names_pulsar = (
            any(map(is_native, parts)),
            any(map(is_pulsar, parts)),
        )

    @property
    def has_only_claimed(self) -> bool:
        """The committed footer says nothing of this owner but that it is one."""
        return self.committed is not None and self.committed.write == CLAIM_WRITE

    def next_write(self) -> int:
        self.write += 1
        return self.write

    def begin_writes(self) -> int:
        """The first write of an epoch."""
        self.write = CLAIM_WRITE
        return self.write

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def draft(self, **says: Any) -> Footer:
        """The next footer: what we know now, and what it says of the state. Draws the next write
        number.
        """
        committed = self.commit.committed
        known: dict[str, Any] = {
            "topic": self._turn.name.topic,
            "subscription": self._turn.name.subscription,
            "state": FooterState.OPEN,
            "epoch": self.epoch,
            "writer": self._turn.writer,
            "write": self.next_write(),
            "generation": self.generation,
            "base": self.base,
            "chain": self.chain,
            "previous": self.previous,
            "truncated": self.truncated,
            "fencing_token": committed.fencing_token if committed else 0,
            "cursor_properties": committed.cursor_properties if committed else None,
            "extra": committed.extra if committed else {},
        }
        footer = Footer(**(known | says))
        if self.damaged:
            named = footer.named_ledgers()
            footer = replace(footer, damaged=tuple(d for d in self.damaged if d.ledger in named))
        return footer

    def propose(self, footer: Footer, purpose: Purpose) -> None:
        self._questions.write_sent(purpose)
        self.commit.propose(footer, purpose)

    def raise_token(self) -> bool:
        """Sends the write that raises the fencing token, and changes nothing else; True: it did.
        Its OK proves, as any write of ours.
        """
        token, footer = self.fencing.wanted, self.commit.committed
        if token is None or footer is None:
            return False
        self.propose(replace(footer, write=self.next_write(), fencing_token=token), Purpose.TOKEN)
        return True

    # ---- what is decided

    def claim(self, footer: Footer) -> None:
        """The claim is committed: epoch, generation and ledgers are those of its footer."""
        self.epoch, self.generation = footer.epoch, footer.generation
        self.follow(footer)
        self.claimed_bases = (
            (self.base,) if self.previous is None else (self.base, self.previous.base)
        )
        self.truncated = footer.truncated
        self.look_again = True  # a footer that we have just created could not be watched before

    def follow(self, footer: Footer) -> None:
        """What the committed footer leads to."""
        self._lead_to(footer.base, footer.chain, footer.previous)

    def begin_generation(self, footer: Footer) -> None:
        """A reset is committed: what the owners before wrote is of another generation, and named no
        more.
        """
        self.generation = footer.generation
        self.follow(footer)

    def end_ledger(self, ledger: int, last_entry: int) -> None:
        """What recovery or close answered goes into the next footer."""
        self._lead_to(self.base, *ended(self.chain, self.previous, ledger, last_entry))

    def fall_back(self) -> None:
        """The newest base cannot be read: until there is another one, the footer leads to the one
        before, and all that came since.
        """
        if self.previous is None:
            return
        known = {c.ledger for c in self.previous.chain}
        since = tuple(c for c in self.chain if c.ledger not in known)
        self._lead_to(self.previous.base, self.previous.chain + since, None)

    def bar_fall_back(self) -> None:
        """What the previous base leads to is not enough any more."""
        self._lead_to(self.base, self.chain, None)

    def note_truncation(self, truncated: Truncation | None) -> None:
        """What the stored state leaves out, or will."""
        self.truncated = truncated

    def note_damage(self, damaged: tuple[EntryAddress, ...]) -> None:
        self.damaged = damaged

    def delete_dropped(self, done: Committed, extra: Iterable[int] = ()) -> None:
        """Ledgers that the footer named and, now that its answer is known, names no more."""
        before = done.before.named_ledgers() if done.before else frozenset()
        gone = tuple(sorted((before | set(extra)) - done.after.named_ledgers()))
        if gone:
            self._turn.emit(fx.DeleteLedgers(gone))

    # ---- ends

    def refuse(self, code: Refusal, message: str, remedy: str) -> None:
        """The cursor cannot go on; it is left as it is on disk."""
        self._life.move(State.REFUSED)
        self.commit.forget()
        self._turn.emit(fx.Refuse(code, message, remedy))
        self._turn.emit(fx.Ended())

    def keep_footer(self) -> None:
        """What an owner had committed is needed to go on, and may be nowhere else."""
        if self._life.state in OWNING and self.commit.committed is not None:
            self._turn.emit(fx.KeepFooter(self.commit.committed))

    def footer_lost(self) -> None:
        """A footer once seen is gone: never created again."""
        self.keep_footer()
        self.refuse(
            Refusal.FOOTER_LOST,
            "its footer was in ZooKeeper and is gone",
            "find out who removed the znode; the ledgers still exist and name this cursor in "
            "their custom metadata. " + RESTORE,
        )

    def depose(self, epoch: int) -> None:
        """A higher epoch exists: final. No footer write, no append, no deletion. The waiting handle
        goes on with a claim if it has not had one: who has had one does not claim again by itself,
        or two daemons with a waiting open each would take the cursor from one another for ever. Nor
        does one that asked for the cursor's end meanwhile.
        """
        self._life.move(State.DEPOSED)
        # undecided for ever: its repetition would be a write of a deposed owner
        self.commit.forget()
        waiting = self._handles.waiting
        if waiting is None or not self._wants_reopening(waiting):
            self._turn.emit(fx.Ended(epoch))
        else:
            self._turn.emit(
                fx.Ended(epoch, waiting, self._questions.waited_s(waiting, self._turn.now))
            )

    def _wants_reopening(self, waiting: int) -> bool:
        question = self._questions.get(waiting)
        return self._handles.wish is None and question is not None and question.joined

    # ---- whose it is

    def owner(self, footer: Footer | None) -> Owner:
        """Judges a footer that was read, and ends this machine if it is another one's."""
        if footer is None and not self._is_synced:
            self._is_synced = True
            return Owner.NOT_KNOWN
        self._is_synced = False
        if footer is None:
            self.footer_lost()
            return Owner.ENDED
        if footer.epoch > self.epoch or (
            footer.epoch == self.epoch and footer.writer != self._turn.writer
        ):
            self.depose(footer.epoch)
            return Owner.ENDED
        return Owner.WE

    def changed(self) -> None:
        """Is there a new owner? An idle one would never learn it otherwise."""
        self.look_again = True

    def look(self) -> None:
        """Reads the footer when it may have changed, which also sets the next watch: our own writes
        use it up, during the claim and later, so a change that comes at a bad time must be
        remembered.
        """
        if self.look_again and not self.is_writing and not self.look_token:
            self.look_again = False
            self._look(sync=False)

    def _look(self, *, sync: bool) -> None:
        self.look_token = self._turn.token()
        self._turn.emit(fx.ReadFooter(self.look_token, sync))

    def is_looking(self, token: int) -> bool:
        return bool(token) and token == self.look_token

    def on_looked(self, footer: Footer | None) -> None:
        self.look_token, self.has_failed_to_look = 0, False
        if self.owner(footer) is Owner.NOT_KNOWN:
            self._look(sync=True)

    def on_look_failed(self) -> None:
        self.look_token, self.has_failed_to_look = 0, True  # the next poll asks again
