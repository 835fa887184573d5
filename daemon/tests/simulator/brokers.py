"""Several brokers of one topic, each with a fencing token of its own: what a later one was told, no
earlier one may undo.

Owns the truth about one cursor's brokers, and the judgements that need it. A broker that was
replaced goes on as if nothing had happened. Once the broker of a token got Opened: nothing that a
lower token sends becomes durable or changes a footer, no lower token is shown the cursor when it
asks, or ends a handle of the higher one; and the footer never says less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.footer import EmptyBase, Footer, FooterState, InlineBase
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.positions import Position

Atom = tuple[int, int, int]
That = Callable[[bool, str], None]


@dataclass(slots=True)
class Brokers:
    """Of one cursor. Where nobody has a token, nothing is judged."""

    given: int = 0
    """The highest token that anybody gave."""
    opened: int = 0
    """The highest one that got Opened."""
    allowed: dict[int, set[Atom]] = field(default_factory=dict)
    """Generation -> what that broker was shown, and what it has sent since."""
    resets: dict[Position, int] = field(default_factory=dict)
    """Target -> the highest token that asked for it."""
    deletes: int = -1
    """The highest token that asked for the cursor's deletion."""
    raises: int = 0
    """How often the footer's token grew and its epoch did not."""

    def asks(self, token: int) -> int:
        """An open, or a delete of a cursor that is not open, is sent. Returns what was Opened
        before.
        """
        self.given = max(self.given, token)
        return self.opened

    def resets_to(self, token: int, target: Position) -> None:
        self.resets[target] = max(token, self.resets.get(target, 0))

    def wants_deleted(self, token: int) -> None:
        self.deletes = max(token, self.deletes)

    def sends(self, token: int, generation: int, atoms: Iterable[Atom]) -> None:
        if token >= self.opened:
            self.allowed.setdefault(generation, set()).update(atoms)

    def shown(
        self, token: int, generation: int, found: set[Atom], floor: set[Atom], that: That, who: str
    ) -> None:
        """A state. What the broker before had sent and the state does not hold can come no more."""
        if token < self.opened:
            return
        if token == self.opened and token:
            late = sorted(found - floor - self.allowed.get(generation, set()))
            that(
                not late,
                f"{who}: acks of an earlier broker became durable after token {token} was "
                f"Opened: {late[:5]}",
            )
        elif token > self.opened:
            self.allowed.clear()
        self.opened = token
        self.allowed.setdefault(generation, set()).update(found)

    def committed(self, old: Footer, new: Footer, that: That) -> None:
        """One footer after the other."""
        who = f"{new.topic}|{new.subscription}"
        self.raises += new.epoch == old.epoch and new.fencing_token > old.fencing_token
        that(
            new.fencing_token >= old.fencing_token,
            f"{who}: the footer's token went from {old.fencing_token} to {new.fencing_token}",
        )
        that(
            new.fencing_token >= self.opened,
            f"{who}: the footer's token is {new.fencing_token}, {self.opened} was Opened",
        )
        if new.state is FooterState.DELETED:
            that(
                self.deletes >= self.opened,
                f"{who}: deleted for token {self.deletes}, {self.opened} was Opened",
            )
        elif new.generation > old.generation and old.state is not FooterState.DELETED:
            floor = new.base.mark_delete if isinstance(new.base, EmptyBase) else None
            floor = new.base.state.mark_delete if isinstance(new.base, InlineBase) else floor
            asked = self.resets.get(floor, -1) if floor is not None else self.opened
            that(
                asked >= self.opened,
                f"{who}: reset to {floor} for token {asked}, {self.opened} was Opened",
            )


@dataclass(slots=True)
class Asking:
    """Who wants something of one machine."""

    attach: int = -1
    token: int = 0
    """Of the handle that came last, as long as it is there."""
    delete: int = 0
    """The highest of who wants the cursor deleted."""
    claims: set[int] = field(default_factory=set)
    """Versions that its claims were sent for."""

    def stepped(
        self, machine: CursorMachine, event: ev.Event, effects: list[fx.Effect], that: That
    ) -> None:
        name = machine.name
        match event:
            case ev.Open() if event.for_delete:
                self.delete = event.fencing_token
            case ev.Attach():
                good = event.fencing_token >= max(self.token, self.delete)
                that(
                    good,
                    f"{name}: a handle of token {event.fencing_token} replaces one of {self.token}",
                )
                self.attach, self.token = event.attach, event.fencing_token
            case ev.Detach() if event.attach == self.attach:
                self.attach, self.token = -1, 0
            case ev.Delete():
                own = event.attach is not None and event.attach == self.attach
                good = own or event.attach is not None or event.fencing_token >= self.token
                that(
                    good,
                    f"{name}: deleted for token {event.fencing_token}, and one of {self.token} "
                    f"holds it",
                )
                self.delete = max(self.delete, event.fencing_token, self.token if own else 0)
        if any(
            isinstance(effect, fx.RefuseHandle) and effect.attach == self.attach
            for effect in effects
        ):
            self.attach, self.token = -1, 0
        for footer, expected in [
            (e.footer, e.expected_version) for e in effects if isinstance(e, fx.WriteFooter)
        ]:
            asked, says = max(self.token, self.delete), footer.fencing_token
            if footer.write == 1 and expected not in self.claims:
                self.claims.add(expected)
                that(
                    asked == says, f"{name}: claimed for token {asked}, and the footer says {says}"
                )
            if footer.state is FooterState.DELETED:
                that(
                    says >= self.delete,
                    f"{name}: deleted for token {self.delete}, and the tombstone says {says}",
                )
