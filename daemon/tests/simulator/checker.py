"""What must hold, kept in plain sets beside the system: what each source sent, what was confirmed,
what footers said.

Owns the truth about one run and every judgement. An *atom* is (ledger, entry, batch index); entries
without a batch have index 0. Facts are judged twice. By epoch: an owner of epoch e must know all
facts of epochs up to e. And by time, whoever answers: what any source had been told before an open
was sent holds for the answer to that open (`History`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Purpose
from cursorkeeper.core.footer import (
    Base,
    EmptyBase,
    Footer,
    FooterState,
    InlineBase,
    PulsarBase,
    SnapshotBase,
)
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.snapshots import SnapshotPhase, SnapshotRun
from cursorkeeper.core.table import LIVE, OWNING
from cursorkeeper.core.values import LayoutItem, LayoutState, Segment, SnapshotEnd
from cursorkeeper.format import footer as footer_codec
from cursorkeeper.format import record
from daemon.tests.fakes.zookeeper.fake import FakeZooKeeperServer
from daemon.tests.simulator.brokers import Asking, Atom, Brokers

IDLE_TICKS_SPARE = 20
PAUSE_SPARE_S = 0.1
"""What the timer's turn may add, where virtual time passes only while everybody waits."""


class Violation(AssertionError):
    """The system broke a promise."""


@dataclass(slots=True)
class DataLedger:
    """One ledger of a topic. `batches`: entry -> messages in it, for entries that hold several."""

    ledger: int
    entries: int = 0
    closed: bool = False
    trimmed: bool = False
    batches: dict[int, int] = field(default_factory=dict)

    def atoms(self, entry: int) -> list[Atom]:
        """The messages of one entry."""
        return [(self.ledger, entry, i) for i in range(self.batches.get(entry, 1))]

    @property
    def item(self) -> LayoutItem:
        """What a source tells of it."""
        if self.trimmed:
            return LayoutItem(self.ledger, LayoutState.TRIMMED, 0)
        return (
            LayoutItem(self.ledger, LayoutState.CLOSED, self.entries)
            if self.closed
            else LayoutItem(self.ledger, LayoutState.OPEN, 0)
        )


@dataclass(slots=True)
class Topic:
    """The data ledgers as they really are; the last one is open."""

    ledgers: dict[int, DataLedger] = field(default_factory=dict)

    @property
    def last(self) -> DataLedger:
        """The one that grows."""
        return self.ledgers[max(self.ledgers)]

    def layout(self) -> tuple[LayoutItem, ...]:
        """The whole run."""
        return tuple(x.item for x in self.ledgers.values())

    def run_of(self, known: set[int]) -> tuple[LayoutItem, ...]:
        """The ledgers that are there, and of those that are known and are not, that they were
        trimmed.
        """
        own = [x.item for x in self.ledgers.values() if not x.trimmed]
        gone = known - {item.ledger for item in own}
        return tuple(
            sorted(
                [*(LayoutItem(x, LayoutState.TRIMMED, 0) for x in gone if x < own[-1].ledger), *own]
            )
        )

    def upto(self, position: Position) -> Iterable[Atom]:
        """Every message at or before a position."""
        for ledger, data in self.ledgers.items():
            if ledger > position.ledger:
                break
            last = (
                data.entries - 1
                if ledger < position.ledger
                else min(position.entry, data.entries - 1)
            )
            for entry in range(last + 1):
                yield from data.atoms(entry)

    def is_trimmed(self, atom: Atom) -> bool:
        """Its ledger is gone."""
        return self.ledgers[atom[0]].trimmed


@dataclass(slots=True)
class Generation:
    """Acks between two resets. `durable`: atom -> the epoch in which it was known to be durable."""

    floor: Position
    life: int
    sent: set[Atom] = field(default_factory=set)
    durable: dict[Atom, int] = field(default_factory=dict)
    """In the order in which sources learned of them."""
    properties_sent: dict[int, int] = field(default_factory=dict)
    """Number of a mark-delete property map -> epoch in which it was sent last."""
    properties_durable: tuple[int, int] = (0, 0)
    """(epoch, number) of the newest one known to be durable."""


@dataclass(frozen=True, slots=True)
class History:
    """What sources had been told of a cursor at one moment, by whichever daemon."""

    generation: int
    durable: dict[int, int]
    """Generation -> how many of its acks had been confirmed, or shown in a state: the first so many
    of `Generation.durable`.
    """


@dataclass(slots=True)
class Model:
    """The truth about one cursor."""

    name: CursorName
    topic: Topic
    generations: dict[int, Generation] = field(default_factory=dict)
    floors: set[Position] = field(default_factory=set)
    """Where a generation may begin: starts and reset targets that were asked for."""
    generation_min: tuple[int, int] = (0, 0)
    """(epoch, generation): an owner of that epoch or a later one is in this generation or a later
    one.
    """
    cursor_properties_sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Number -> (life, epoch)."""
    cursor_properties_durable: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Life -> (epoch, number)."""
    lives_created: set[int] = field(default_factory=set)
    """Of which somebody was told that the cursor was created for him."""
    brokers: Brokers = field(default_factory=Brokers)
    numbers: int = 0
    """Of property maps that were made."""

    def history(self) -> History:
        """As of now."""
        return History(
            self.generation_min[1],
            {number: len(g.durable) for number, g in self.generations.items()},
        )

    def number(self) -> int:
        """Of a property map; grows."""
        self.numbers += 1
        return self.numbers

    def note_generation(self, epoch: int, generation: int) -> None:
        """It is committed."""
        if generation > self.generation_min[1]:
            self.generation_min = (epoch, generation)


@dataclass(slots=True)
class Check:
    """A question whether the footer has a version; `there`: which it had when the question was
    sent, in which step.
    """

    version: int
    there: int
    sent: int


@dataclass(slots=True)
class Proofs:
    """What one machine asked, and when, in its steps: an answer is proved by what was first sent
    after its question came.
    """

    came: dict[int, int] = field(default_factory=dict)
    """Attachment -> step in which it came."""
    checks: dict[int, Check] = field(default_factory=dict)
    """By token."""
    writes: dict[int, int] = field(default_factory=dict)
    """The version that a footer write makes -> step in which it was first sent."""
    first_tokens: dict[int, int] = field(default_factory=dict)
    """Token of its first try -> the version that a footer write makes."""
    properties: list[tuple[int, int, int]] = field(default_factory=list)
    """(attachment, seq, number) of those that were told of the subscription."""
    proved: int = -1
    """The newest step that is proved."""

    def stepped(
        self, at: int, there: int, machine: CursorMachine, event: ev.Event, effects: list[fx.Effect]
    ) -> bool:
        """One event and what it led to; `there`: the version that the footer has. False: a check
        was answered wrongly.
        """
        good = True
        match event:
            case ev.Attach():
                self.came[event.attach] = at
            case ev.SetProperties():
                self.properties.append((event.attach, event.seq, int(event.values["n"])))
            case ev.Sent():
                if event.token in self.checks:
                    self.checks[event.token].there, self.checks[event.token].sent = there, at
                if event.token in self.first_tokens:
                    self.writes[self.first_tokens.pop(event.token)] = at
            case ev.FooterChecked() if event.token in self.checks:
                check = self.checks[event.token]
                good = check.version >= check.there
                self.proved = max(self.proved, check.sent)
        committed = machine.ownership.commit.committed
        if committed is not None and committed.writer == machine.turn.writer:
            self.proved = max(self.proved, self.writes.get(machine.ownership.commit.version, -1))
        for effect in effects:
            match effect:
                case fx.CheckFooter():
                    self.checks[effect.token] = Check(effect.version, there, at)
                case fx.WriteFooter() if effect.expected_version + 1 not in self.writes:
                    self.writes[effect.expected_version + 1] = at
                    self.first_tokens[effect.token] = effect.expected_version + 1
        return good


class FooterMonitor:
    """Follows the tree: every committed footer is checked against the one before it."""

    def __init__(
        self, server: FakeZooKeeperServer, names: Iterable[CursorName], check: Checker
    ) -> None:
        self._server, self._check = server, check
        self._names = {n.path(): n for n in names}
        self.current: dict[CursorName, tuple[int, Footer]] = {}
        self.first_of: dict[tuple[CursorName, int], tuple[Footer, int]] = {}
        """(cursor, generation) -> its first footer that is not a tombstone, and how many tombstones
        came before.
        """
        self.tombstones: dict[CursorName, int] = {}
        self.claimed: dict[CursorName, list[Base]] = {}
        """What the footer named when it was claimed last."""
        self.snapshots: set[SnapshotBase] = set()
        """Those that were named."""
        self.on_switch: Callable[[CursorName, Footer], None] = lambda _name, _footer: None
        server.follow(self)

    def server_up(self) -> None:
        """The tree does not change by it."""

    def server_down(self) -> None:
        """The tree does not change by it."""

    def committed(self, paths: list[str]) -> None:
        """One transaction."""
        for path in paths:
            name = self._names.get(path)
            if name is not None:
                node = self._server.tree.get(path)
                self._one(name, node.version, footer_codec.decode(node.data, name))

    def _one(self, name: CursorName, version: int, footer: Footer) -> None:
        check = self._check
        check.log(
            f"footer {name.subscription} v{version} {footer.state} e{footer.epoch} w{footer.write} "
            f"g{footer.generation} "
            f"{f't{footer.fencing_token} ' if footer.fencing_token else ''}md{footer.mark_delete} "
            f"{type(footer.base).__name__}{getattr(footer.base, 'ledger', '')} "
            f"chain{[(c.ledger, c.last_entry) for c in footer.chain]} "
            f"prev{[c.ledger for c in footer.previous.chain] if footer.previous else None} by "
            f"{footer.writer}"
        )
        before = self.current.get(name)
        if before is None:
            check.that(version == 0, f"first footer of {name} has version {version}")
        else:
            v, old = before
            check.that(version == v + 1, f"version went from {v} to {version}")
            self._check_step(name, old, footer)
        self._check_chain(before[1] if before is not None else None, footer)
        if isinstance(footer.base, SnapshotBase) and footer.base not in self.snapshots:
            self.snapshots.add(footer.base)
            self._complete(name, footer.base)
        self.current[name] = (version, footer)
        if (
            before is not None
            and isinstance(footer.base, SnapshotBase)
            and footer.base != before[1].base
        ):
            self.on_switch(name, footer)
        if footer.state is FooterState.DELETED:
            self.tombstones[name] = self.tombstones.get(name, 0) + 1
        else:
            self.first_of.setdefault(
                (name, footer.generation), (footer, self.tombstones.get(name, 0))
            )

    def _check_step(self, name: CursorName, old: Footer, footer: Footer) -> None:
        check = self._check
        check.that(footer.epoch >= old.epoch, f"epoch went from {old.epoch} to {footer.epoch}")
        if footer.epoch > old.epoch:
            check.that(
                footer.writer != old.writer,
                f"{name}: epoch {footer.epoch} is no claim; ledgers not named yet are of "
                f"{old.epoch}",
            )
            self.claimed[name] = _bases(old)
            check.claimed(name, footer.writer)
        if (
            old.cursor_properties
            and not footer.cursor_properties
            and footer.generation == old.generation
        ):
            foreign = [
                b for b in _bases(footer) if b in self.claimed[name] or isinstance(b, PulsarBase)
            ]
            check.that(
                not foreign,
                f"{name}: only the footer held the properties, and {foreign} are not of its owner",
            )
        if name in check.brokers:
            check.brokers[name].committed(old, footer, check.that)
        check.that(
            footer.generation >= old.generation,
            f"generation went from {old.generation} to {footer.generation}",
        )
        if footer.epoch == old.epoch:
            check.that(
                footer.writer == old.writer,
                f"two writers in epoch {footer.epoch}: {old.writer}, {footer.writer}",
            )
            check.that(footer.write > old.write, f"write went from {old.write} to {footer.write}")
        check.that(
            sum(c.last_entry is None for c in footer.chain) <= 1,
            "two chain ledgers without a last entry",
        )

    def _check_chain(self, old: Footer | None, footer: Footer) -> None:
        check = self._check
        check.that(
            all(c.last_entry is not None for c in footer.chain[:-1]),
            "an earlier chain ledger has no last entry",
        )
        named = old.named_ledgers() if old is not None else frozenset()
        added = {c.ledger for c in footer.chain} - named  # none where a fall-back joins two chains
        good = len(footer.chain) <= check.chain_max or not added
        check.that(
            good,
            f"ledger {added} makes a chain of {len(footer.chain)} ledgers, {check.chain_max} are "
            f"allowed",
        )
        for ledger in footer.named_ledgers():
            check.that(
                ledger in check.ledgers, f"the footer names ledger {ledger}, which does not exist"
            )

    def _complete(self, name: CursorName, base: SnapshotBase) -> None:
        """A snapshot is in one ledger: its end record, and every segment that it names, in front of
        it.
        """
        stored = self._check.ledgers[base.ledger].entries
        end = (
            record.decode(stored[base.last_entry], name.record_hash).body
            if base.last_entry < len(stored)
            else None
        )
        if not isinstance(end, SnapshotEnd):
            self._check.that(
                False,
                f"entry {base.last_entry} of ledger {base.ledger} is named as the end of a "
                f"snapshot: {end}",
            )
            return
        at = end.segment_entries
        good = at[:1] == (base.first_entry,) and all(x < base.last_entry for x in at)
        good = good and all(
            isinstance(record.decode(stored[x], name.record_hash).body, Segment) for x in at
        )
        self._check.that(
            good,
            f"the snapshot in ledger {base.ledger} that ends at {base.last_entry} names entries "
            f"{at}",
        )

    def epoch(self, name: CursorName) -> int:
        """Of the committed footer."""
        return self.current[name][1].epoch if name in self.current else 0

    def names_ledger(self, ledger: int) -> CursorName | None:
        """Which committed footer names it."""
        return next((n for n, (_, f) in self.current.items() if ledger in f.named_ledgers()), None)


def _bases(footer: Footer) -> list[Base]:
    return [footer.base] if footer.previous is None else [footer.base, footer.previous.base]


class WatchedLedgers(dict[int, Any]):
    """The store's ledgers; a named one must not go."""

    check: Checker

    def pop(self, ledger: int, *default: Any) -> Any:
        if ledger in self:
            who = self.check.monitor.names_ledger(ledger)
            self.check.log(f"ledger {ledger} deleted")
            self.check.that(
                who is None, f"ledger {ledger} was deleted while the footer of {who} names it"
            )
        return super().pop(ledger, *default)


class Checker:
    """Collects the trace and raises nothing: violations are listed, so that a callback's caller
    cannot swallow them.
    """

    monitor: FooterMonitor
    ledgers: WatchedLedgers

    def __init__(self, clock: Any, verbose: bool = False) -> None:
        self._clock, self._verbose = clock, verbose
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.chain_max = 0
        """A chain with more ledgers than that does not grow."""
        self.steps: dict[str, Counter[str]] = {}
        """Writer of a claim -> what its machine was given, and what it did."""
        self.proofs: dict[str, Proofs] = {}
        """Writer of a claim -> what its machine asked."""
        self.asking: dict[str, Asking] = {}
        """Writer of a claim -> who wants something of its machine."""
        self.brokers: dict[CursorName, Brokers] = {}
        self.last_shown: dict[str, str] = {}
        """Writer of a claim -> the source that got the state from its machine last."""
        self.confirmed_by: dict[tuple[CursorName, int], str] = {}
        self.begun_for: dict[str, Any] = {}
        """Writer of a claim -> the handle whose open its machine was made for."""
        self.claims: dict[Any, set[str]] = {}
        """Handle -> the claimers among the machines that were made for its open."""
        self.claims_max: int | None = 1
        self.snapshots: dict[str, tuple[SnapshotRun, int]] = {}
        """Writer of a claim -> the snapshot that its machine wrote last, and the ledger in which it
        began.
        """

    def log(self, text: str) -> None:
        """One line of the trace."""
        line = f"{self._clock():10.4f} {text}"
        self.trace.append(line)
        if self._verbose:
            print(line)

    def that(self, condition: bool, problem: str) -> None:
        """A promise."""
        if not condition:
            self.log(f"VIOLATION {problem}")
            self.violations.append(f"{self._clock():.4f} {problem}")

    # ---- judgements

    def claimed(self, name: CursorName, writer: str) -> None:
        """An open takes the cursor from its owner once: two that wait in two daemons do not take it
        from one another for ever. A claim whose answer is lost may be repeated by who sent it.
        """
        handle = self.begun_for.get(writer)
        if handle is None or self.claims_max is None:
            return
        claims = self.claims.setdefault(handle, set())
        claims.add(writer)
        self.that(
            len(claims) <= self.claims_max,
            f"{name}: {len(claims)} claims for one open, {handle.title}",
        )

    def answered(
        self, model: Model, machine: CursorMachine, asked: History, found: set[Atom]
    ) -> None:
        """By time: what was told before the open was sent is in its answer, whoever gives it."""
        name, number = model.name.subscription, machine.generation
        self.that(
            number >= asked.generation,
            f"{name}: an open is answered in generation {number}, {asked.generation} was told "
            f"before it was sent",
        )
        generation = model.generations.get(number)
        if generation is None:
            return
        before = islice(generation.durable, asked.durable.get(number, 0))
        missing = [a for a in before if a not in found and not model.topic.is_trimmed(a)]
        self.that(
            not missing,
            f"{name}: told before the open was sent, and missing in its answer: "
            f"{sorted(missing)[:5]}",
        )

    def created(self, model: Model, machine: CursorMachine, found: set[Atom]) -> None:
        """A source was told that the cursor was made for it: nobody else is, and there is nothing
        in it.
        """
        generation = model.generations.get(machine.generation)
        if generation is None:
            return
        name = model.name.subscription
        self.that(
            generation.life not in model.lives_created,
            f"{name}: life {generation.life} was created for two",
        )
        acked = sorted(
            a
            for a in found - set(model.topic.upto(generation.floor))
            if not model.topic.is_trimmed(a)
        )
        self.that(not acked, f"{name}: it was created with acks: {acked[:5]}")
        model.lives_created.add(generation.life)

    def continued(self, machine: CursorMachine, source: str) -> None:
        """Only who got the state last goes on without it."""
        last = self.last_shown.get(machine.turn.writer)
        self.that(
            last == source, f"{machine.name}: {source} resumes, the state was given to {last} last"
        )

    def state_streamed(self, model: Model, machine: CursorMachine) -> set[Atom]:
        """A source got the state: nothing durable is missing, nothing is there that was never sent.
        Returns its acks.
        """
        epoch, number, name = machine.epoch, machine.generation, model.name.subscription
        at, least = model.generation_min
        self.that(
            epoch < at or number >= least,
            f"{name}: epoch {epoch} opened generation {number}, {least} was committed in epoch "
            f"{at}",
        )
        generation = self._generation(model, number)
        if generation is None:
            return set()
        model.note_generation(epoch, number)
        state, topic = machine.acks, model.topic
        found: set[Atom] = set()
        for ledger, data in topic.ledgers.items():
            if data.trimmed:
                continue
            for entry in range(data.entries):
                atoms = data.atoms(entry)
                if state.is_acked(ledger, entry):
                    found.update(atoms)
                elif (partial := state.partial(ledger, entry)) is not None:
                    found.update(a for a in atoms if a[2] not in partial.missing)
            for entry in range(data.entries, data.entries + 3):
                self.that(
                    data.closed or not state.is_acked(ledger, entry),
                    f"{name}: {ledger}:{entry} is acked and does not exist",
                )
        self.that(
            not state.is_acked(topic.last.ledger + 1, 0),
            f"{name}: mark-delete {state.mark_delete} is beyond the topic",
        )
        base = set(topic.upto(generation.floor))
        phantom = sorted(found - base - generation.sent)
        self.that(
            not phantom,
            f"{name}: acked but never sent in generation {number}: {phantom[:5]} (mark-delete "
            f"{state.mark_delete})",
        )
        needed = {a for a, e in generation.durable.items() if e <= epoch} | base
        lost = sorted(a for a in needed - found if not topic.is_trimmed(a))
        self.that(
            not lost,
            f"{name}: confirmed and lost in generation {number}, epoch {epoch}: {lost[:5]}",
        )
        self._properties(model, generation, machine)
        return found

    def _generation(self, model: Model, number: int) -> Generation | None:
        known = model.generations.get(number)
        if known is not None:
            return known
        first = self.monitor.first_of.get((model.name, number))
        self.that(first is not None, f"{model.name}: generation {number} is in no footer")
        if first is None:
            return None
        footer, life = first
        base = footer.base
        floor = (
            base.mark_delete
            if isinstance(base, EmptyBase)
            else base.state.mark_delete
            if isinstance(base, InlineBase)
            else None
        )
        self.that(
            floor is not None and floor in model.floors,
            f"{model.name}: generation {number} begins at {floor}, nobody asked for it",
        )
        model.generations[number] = made = Generation(floor or Position(0, BEFORE_FIRST), life)
        return made

    def _properties(self, model: Model, generation: Generation, machine: CursorMachine) -> None:
        epoch, state, name = machine.epoch, machine.acks, model.name.subscription
        found = state.mark_delete_properties
        number = found.values.get("n", 0) if found is not None else 0
        self.that(
            number == 0 or number in generation.properties_sent,
            f"{name}: mark-delete properties {number} were never sent",
        )
        mine = (generation.properties_sent.get(number, 0), number)
        least = generation.properties_durable
        self.that(
            least[0] > epoch or mine >= least,
            f"{name}: mark-delete properties are {mine}, {least} was confirmed",
        )
        texts = state.cursor_properties
        number = int(texts.values.get("n", "0")) if texts is not None else 0
        life, at = model.cursor_properties_sent.get(number, (generation.life, 0))
        self.that(
            number == 0 or number in model.cursor_properties_sent,
            f"{name}: cursor properties {number} were never sent",
        )
        self.that(
            life in (-1, generation.life),
            f"{name}: cursor properties {number} are of life {life}, this is {generation.life}",
        )
        durable = model.cursor_properties_durable.get(generation.life, (0, 0))
        self.that(
            durable[0] > epoch or (at, number) >= durable,
            f"{name}: cursor properties are {(at, number)}, {durable} was confirmed",
        )

    def confirmed(self, model: Model, epoch: int, writer: str) -> None:
        """Somebody confirmed something: one owner per epoch."""
        known = self.confirmed_by.setdefault((model.name, epoch), writer)
        self.that(
            known == writer, f"{model.name}: {known} and {writer} both confirm in epoch {epoch}"
        )

    def stepped(self, machine: CursorMachine, event: ev.Event, effects: list[fx.Effect]) -> None:
        """One event's cost, and what is said and written because of it."""
        count = self.steps.setdefault(machine.turn.writer, Counter())
        count["steps"] += 1
        count["effects"] += len(effects)
        if isinstance(event, ev.Tick):
            count["ticks"] += 1
            count["idle ticks"] += not effects
        proofs = self.proofs.setdefault(machine.turn.writer, Proofs())
        there = (
            self.monitor.current[machine.name][0] if machine.name in self.monitor.current else -1
        )
        good = proofs.stepped(count["steps"], there, machine, event, effects)
        self.asking.setdefault(machine.turn.writer, Asking()).stepped(
            machine, event, effects, self.that
        )
        self.that(
            good,
            f"{machine.name}: a check found a version that had been replaced before it was sent",
        )
        for effect in effects:
            match effect:
                case fx.StreamState():
                    good = proofs.proved >= proofs.came[effect.attach]
                    self.that(
                        good,
                        f"{machine.name}: a state is told, and nothing that was asked since the "
                        f"open proves it",
                    )
                    self.that(
                        machine.progress.is_clear,
                        f"{machine.name}: a state is told that is not durable",
                    )
                case fx.CreateLedger():
                    self._judge_chain(machine)
                case fx.Confirm() if not machine.form.has_records and machine.state in LIVE:
                    self._judge_properties(machine, proofs, effect)
                case fx.WriteFooter():
                    self._judge_naming(machine, effect.footer)

    def _judge_properties(
        self, machine: CursorMachine, proofs: Proofs, confirm: fx.Confirm
    ) -> None:
        """Pulsar's form has no place for the properties of a subscription: the footer holds them
        before they are confirmed.
        """
        told = [
            n
            for attach, seq, n in proofs.properties
            if attach == confirm.attach and seq <= confirm.seq
        ]
        held = (
            machine.ownership.commit.committed.cursor_properties
            if machine.ownership.commit.committed is not None
            else None
        )
        number = int(held.values.get("n", "0")) if held is not None else 0
        self.that(
            number >= max(told, default=0),
            f"{machine.name}: properties {told} are confirmed, the footer holds {number}",
        )

    def _judge_chain(self, machine: CursorMachine) -> None:
        """A ledger beyond the chain's limit is for the snapshot that shortens the chain."""
        long = (
            machine.form.has_records and len(machine.chain) >= machine.limits.chain_ledgers_hard_max
        )
        self.that(
            not long or machine.snapshots.run is not None,
            f"{machine.name}: one more ledger, and {len(machine.chain)} in the chain",
        )

    def _judge_naming(self, machine: CursorMachine, footer: Footer) -> None:
        """A footer leads to a ledger once that holds what a reader needs first: the open record, or
        a whole state.
        """
        current = machine.writer.current
        if current is None or current.named or current.ledger not in footer.named_ledgers():
            return
        good = (
            current.acked_entry >= 0
            if machine.form.has_records
            else current.acked_record is not None
        )
        self.that(
            good,
            f"{machine.name}: ledger {current.ledger} is named, and its first entries are not "
            f"acknowledged",
        )

    def judge_costs(self) -> None:
        """A machine that is woken for nothing again and again keeps others waiting."""
        for writer, count in self.steps.items():
            idle, others = count["idle ticks"], count["steps"] - count["ticks"]
            self.that(
                idle <= IDLE_TICKS_SPARE + others // 2,
                f"{writer}: {idle} ticks for nothing, {others} other events",
            )

    def judge_pause(self, machine: CursorMachine, unanswered_since_s: float) -> None:
        """The source of a cursor whose append is not answered knows it in time, whatever else the
        daemon does.
        """
        oldest = machine.progress.oldest_unconfirmed_s
        if (
            machine.state not in LIVE
            or not machine.form.has_records
            or oldest is None
            or machine.pause.paused_for
        ):
            return
        waits_s = self._clock() - max(unanswered_since_s, oldest, machine.form.fits_since_s)
        limit_s = machine.limits.bookkeeper_away_ms / 1000
        self.that(
            waits_s <= limit_s + PAUSE_SPARE_S,
            f"{machine.name}: not paused, {waits_s:.2f} s without an answer, {limit_s} allowed",
        )

    def judge_rest(self, machine: CursorMachine) -> None:
        """Nothing breaks any more and everything is durable: what was begun has ended."""
        snapshot, outstanding = machine.snapshots.run, machine.ownership.commit.outstanding
        self.that(
            snapshot is None, f"{machine.name}: a snapshot that began does not end: {snapshot}"
        )
        self.that(
            outstanding is None,
            f"{machine.name}: a footer write that was sent is not decided: {outstanding}",
        )
        self.that(
            machine.writer.is_settled,
            f"{machine.name}: a ledger is not replaced: {machine.writer.phase}",
        )

    def judge_snapshot(self, machine: CursorMachine) -> None:
        """A snapshot is written into one ledger, and goes no further once that is left, unless its
        switch was sent.
        """
        run, outstanding = machine.snapshots.run, machine.ownership.commit.outstanding
        if run is None or run.phase is SnapshotPhase.MOVING or machine.state not in OWNING:
            return
        if outstanding is not None and outstanding.purpose is Purpose.SWITCH:
            return
        current = machine.writer.current
        ledger = current.ledger if current is not None else -1
        known = self.snapshots.get(machine.turn.writer)
        if known is None or known[0] is not run:
            known = self.snapshots[machine.turn.writer] = (run, ledger)
        good = ledger == known[1] and machine.writer.is_usable
        self.that(
            good,
            f"{machine.name}: a snapshot goes on in ledger {ledger}, "
            f"{machine.writer.phase.name}; it began in {known[1]}",
        )

    def after_step(self, machine: CursorMachine) -> None:
        """The invariant line of progress."""
        self.judge_snapshot(machine)
        progress, writer = machine.progress, machine.writer
        current = writer.current
        sent = [s.record for s in current.in_flight if s.record is not None] if current else []
        in_flight = max([progress.durable, *sent])
        self.that(
            progress.durable <= in_flight <= progress.taken,
            f"{machine.name}: durable {progress.durable}, in flight {in_flight}, accepted "
            f"{progress.taken}",
        )
        self.that(
            sent == sorted(sent), f"{machine.name}: records are in flight out of order: {sent}"
        )
        self.that(
            writer.in_flight <= machine.limits.appends_in_flight_max + 1,
            f"{machine.name}: {writer.in_flight} appends in flight",
        )
