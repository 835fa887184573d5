"""Sources: what a broker would send, at random, and what it remembers of it.

Owns one cursor's actions and its handles. Tells the `Model` everything it sends before it sends it.
Sends only what a correct source may send: a refused message is a violation.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.batch import AckBatch, LedgerColumns, count_acks
from cursorkeeper.core.entries import Sent, kept
from cursorkeeper.core.errors import RefusedError
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.positions import BEFORE_FIRST, Position
from cursorkeeper.core.values import Partial
from cursorkeeper.runtime.listener import Listener
from daemon.tests.simulator.checker import Atom, DataLedger, Model

if TYPE_CHECKING:
    from daemon.tests.simulator.simulator import Node, Simulation

HELD = {"OPEN_ELSEWHERE", "ALREADY_OPEN"}
MAY_REFUSE = {*HELD, "NOT_FOUND", "SHUTTING_DOWN", "UNAVAILABLE"}


@dataclass(slots=True)
class Message:
    """One message with a seq, until it is confirmed. `dropped`: a reset was on its way, it promises
    nothing.
    """

    seq: int
    generation: int
    atoms: list[Atom] = field(default_factory=list)
    properties: int = 0
    cursor_properties: int = 0
    resets_to: int = 0
    dropped: bool = False


class Handle(Listener):
    """A listener that holds what it is told against the model."""

    def __init__(
        self, sim: Simulation, model: Model, node: Node, number: int, token: int = 0
    ) -> None:
        self.sim, self.model, self.node, self.token = sim, model, node, token
        self.opened_before = model.brokers.asks(token)
        """The highest token that had got Opened when this one asked."""
        self.attach = node.keeper.attach_id()
        self.title = f"{model.name.subscription}/h{number}@{node.title}"
        self.live = False
        self.resumes: Handle | None = None
        """The handle whose stream broke, and which this one would continue."""
        self.leaving = self.deleting = False
        self.ended = ""
        self.gone = False
        """Its process died: nobody hears what it is told."""
        self.epoch = self.generation = self.seq = self.durable = 0
        self.writer = ""
        self.asked = model.history()
        """What had been told when its open was sent; of a handle that resumes, when its
        predecessor's was.
        """
        self.source = self.title
        self.told_last = -1
        self.told: set[int] | None = None
        """The ledgers that the keeper knows, of a source that is told them; None: it tells all
        there ever were.
        """
        self.needs_layout = False
        self.waiting: deque[Message] = deque()
        self.resets_pending = 0
        self.changed = asyncio.Event()

    # ---- told by the keeper

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        if self.gone:
            return
        check = self.sim.check
        self.epoch, self.generation, self.writer = (
            machine.epoch,
            machine.generation,
            machine.turn.writer,
        )
        check.log(
            f"{self.title} state e{self.epoch} g{self.generation} md{machine.acks.mark_delete}"
        )
        found = check.state_streamed(self.model, machine)
        check.answered(self.model, machine, self.asked, found)
        if created:
            check.created(self.model, machine, found)
        check.last_shown[self.writer] = self.source
        generation = self.model.generations[self.generation]
        self._shown()
        floor = set(self.model.topic.upto(generation.floor))
        self.model.brokers.shown(self.token, self.generation, found, floor, check.that, self.title)
        for atom in found:
            generation.durable[atom] = min(self.epoch, generation.durable.get(atom, self.epoch))
        if self.sim.plan.loads:
            self.told = {item.ledger for item in machine.acks.layout} | {
                machine.acks.mark_delete.ledger
            }
            self.needs_layout = True
        self.live = True
        self.changed.set()

    def _shown(self) -> None:
        """It may use the cursor now, and its token is kept where no crash takes it away."""
        check, name = self.sim.check, self.model.name
        good = self.token >= self.opened_before
        check.that(
            good,
            f"{self.title}: opened with token {self.token}, and {self.opened_before} was Opened "
            f"before it asked",
        )
        kept = check.monitor.current[name][1].fencing_token
        check.that(
            kept >= self.token,
            f"{self.title}: opened with token {self.token}, and the footer says {kept}",
        )

    def on_recovering(self, machine: CursorMachine, joined: object) -> None:
        """It is judged by the state that follows, which holds what was joined."""

    def on_continued(self, machine: CursorMachine) -> None:
        if self.gone:
            return
        self.sim.stats["resumed"] += 1
        self.sim.check.log(f"{self.title} goes on in e{machine.epoch} g{machine.generation}")
        self.sim.check.that(
            self.resumes is not None, f"{self.title}: goes on, and did not ask for it"
        )
        self.sim.check.continued(machine, self.source)
        committed = machine.ownership.commit.committed
        good = committed is not None and committed.fencing_token == self.token
        self.sim.check.that(
            good, f"{self.title}: goes on with token {self.token}, and that is not the footer's"
        )
        assert self.resumes is not None
        old = self.resumes
        self.sim.check.that(
            (machine.epoch, machine.generation) == (old.epoch, old.generation),
            f"{self.title}: goes on elsewhere",
        )
        self.epoch, self.generation, self.writer, self.asked = (
            machine.epoch,
            machine.generation,
            machine.turn.writer,
            old.asked,
        )
        if old.told is not None:
            self.told, self.told_last, self.needs_layout = set(old.told), old.told_last, True
        self.live = True
        self.changed.set()

    def on_confirm(self, confirm: fx.Confirm) -> None:
        if self.gone:
            return
        check, model = self.sim.check, self.model
        check.log(f"{self.title} durable {confirm.seq}")
        check.that(
            self.durable <= confirm.seq <= self.seq,
            f"{self.title}: confirmed {confirm.seq} after {self.durable}, sent {self.seq}",
        )
        check.confirmed(model, self.epoch, self.writer)
        self.durable = confirm.seq
        while self.waiting and self.waiting[0].seq <= confirm.seq:
            self._decided(self.waiting.popleft())
        self.changed.set()

    def _decided(self, message: Message) -> None:
        model, epoch = self.model, self.epoch
        if message.resets_to and not self.deleting:  # a tombstone decides them too
            model.note_generation(epoch, message.resets_to)
        generation = model.generations[message.generation]
        if not message.dropped:
            for atom in message.atoms:
                generation.durable[atom] = min(epoch, generation.durable.get(atom, epoch))
            if message.properties:
                generation.properties_durable = max(
                    generation.properties_durable, (epoch, message.properties)
                )
        if message.cursor_properties:
            known = model.cursor_properties_durable.get(generation.life, (0, 0))
            model.cursor_properties_durable[generation.life] = max(
                known, (epoch, message.cursor_properties)
            )

    def on_reset_done(self, done: fx.ResetDone) -> None:
        if self.gone:
            return
        check, model = self.sim.check, self.model
        check.log(f"{self.title} reset done g{done.generation} {done.mark_delete}")
        check.that(
            done.generation == self.generation + 1,
            f"{self.title}: reset from {self.generation} to {done.generation}",
        )
        check.that(
            done.mark_delete in model.floors,
            f"{self.title}: reset to {done.mark_delete}, nobody asked",
        )
        model.note_generation(self.epoch, done.generation)
        check._generation(model, done.generation)
        self.generation = done.generation
        self.resets_pending -= 1
        self.needs_layout = True
        self.changed.set()

    def on_pause(self, reason: str) -> None:
        self.sim.stats["pauses"] += 1
        self.sim.check.log(f"{self.title} pause")

    def on_resume(self) -> None:
        self.sim.check.log(f"{self.title} resume")

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        if not self.gone:
            may = MAY_REFUSE - HELD if self.token else MAY_REFUSE
            may = may | {"FENCED"} if self.token < self.model.brokers.given else may
            self.sim.check.that(str(code) in may, f"{self.title}: refused {code}: {message}")
            self.sim.stats["fenced"] += str(code) == "FENCED"
        self._end(f"refused {code}")

    def on_deposed(self, epoch: int) -> None:
        self._end("deposed")

    def on_closed(self) -> None:
        if not self.gone and self.token:
            self.sim.check.that(self.leaving, f"{self.title}: closed by somebody else")
        self._end("closed")

    def on_deleted(self) -> None:
        if not self.gone and self.token:
            good = self.model.brokers.deletes >= self.token
            self.sim.check.that(
                good, f"{self.title}: deleted by somebody with a token below {self.token}"
            )
        if not self.gone and self.live:
            self.model.note_generation(self.epoch, self.generation + 1)
        self._end("deleted")

    def _end(self, how: str) -> None:
        if not self.gone:
            self.sim.check.log(f"{self.title} {how}")
        self.ended = self.ended or how
        self.live = False
        self.changed.set()

    def lose(self) -> None:
        """The process or the stream died."""
        self.gone = True
        self._end("lost")

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """False when the time is over."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return condition()
        return True

    # ---- sending

    @property
    def may_send(self) -> bool:
        return self.live and not self.leaving and not self.ended

    def _dispatch(self, event: ev.Event) -> None:
        runner = self.node.keeper.cursors.get(self.model.name)
        if runner is not None:
            runner.dispatch(event)

    def _next(self, message: Message) -> int:
        self.seq += 1
        message.seq = self.seq
        self.waiting.append(message)
        return self.seq

    def send_layout(self) -> None:
        """The whole run, as it is now; or what is there, and what the keeper knows and is there no
        more (`CursorState.run_of`).
        """
        self.needs_layout = False
        self.told_last = self.model.topic.last.ledger
        run = self.model.topic.layout()
        if self.told is not None:
            run = self.model.topic.run_of(self.told)
            self.told |= {item.ledger for item in run}
        seq = self._next(Message(0, self.generation))
        self._dispatch(ev.SetLayout(self.attach, seq, self.generation, run))

    def send_acks(
        self,
        atoms: Iterable[Atom],
        columns: tuple[LedgerColumns, ...] = (),
        mark_delete: Position | None = None,
        properties: int = 0,
    ) -> None:
        """One batch; `atoms` is what it means."""
        if self.needs_layout:
            self.send_layout()
        if not self.may_send:
            return
        generation = self.model.generations[self.generation]
        message = Message(
            0, self.generation, list(atoms), properties, dropped=self.resets_pending > 0
        )
        generation.sent.update(message.atoms)
        self.model.brokers.sends(self.token, self.generation, message.atoms)
        if properties:
            generation.properties_sent[properties] = self.epoch
        seq = self._next(message)
        values = {"n": properties} if properties else None
        batch = AckBatch(
            seq, self.generation, mark_delete, columns, values, 50, count_acks(columns, mark_delete)
        )
        self._dispatch(ev.Acks(self.attach, batch))

    def send_properties(self, number: int) -> None:
        """The subscription's own."""
        model = self.model
        life = model.generations[self.generation].life
        model.cursor_properties_sent[number] = (life, self.epoch)
        seq = self._next(Message(0, self.generation, cursor_properties=number))
        self._dispatch(ev.SetProperties(self.attach, seq, self.generation, {"n": str(number)}))

    def send_reset(self, target: Position) -> None:
        """Seek."""
        self.model.floors.add(target)
        self.model.brokers.resets_to(self.token, target)
        self.resets_pending += 1
        seq = self._next(
            Message(0, self.generation, resets_to=self.generation + self.resets_pending)
        )
        self._dispatch(ev.Reset(self.attach, seq, self.generation, target))

    def close(self) -> None:
        self.leaving = True
        self.node.keeper.end(self.model.name, ev.Close(self.attach))

    def delete(self) -> None:
        self.leaving = self.deleting = True
        self.model.brokers.wants_deleted(self.token)
        self.node.keeper.end(self.model.name, ev.Delete(self.attach))

    def detach(self) -> None:
        """The stream broke."""
        self.lose()
        self.node.keeper.detach(self.model.name, self.attach)


class Source:
    """Acts for one cursor. `rng` is its own, `token` its fencing token."""

    def __init__(self, sim: Simulation, model: Model, rng: random.Random, token: int = 0) -> None:
        self.sim, self.model, self.rng, self.token = sim, model, rng, token
        self.stands_until_s = 0.0
        """It does nothing before."""
        self.handles: list[Handle] = []
        self.broken: Handle | None = None
        """Whose stream broke last."""

    @property
    def usable(self) -> list[Handle]:
        """Those that may send."""
        return [h for h in self.handles if h.may_send]

    def number(self) -> int:
        """Of a property map."""
        return self.model.number()

    # ---- opening

    def open(
        self, node: Node, *, takeover: bool, create: bool = True, resumes: Handle | None = None
    ) -> Handle | None:
        """A new handle that waits for the state, or goes on where `resumes` broke off."""
        rng, model, topic = self.rng, self.model, self.model.topic
        handle = Handle(self.sim, model, node, len(self.sim.opened), self.token)
        resume = None
        if resumes is not None:
            handle.resumes, handle.source = resumes, resumes.source
            resume = ev.Resume(resumes.epoch, resumes.generation)
        self.sim.opened.append(handle)
        start = rng.choice([None, None, self._position()])
        layout = topic.layout()
        handle.told_last = topic.last.ledger
        if self.sim.plan.loads:
            there = topic.run_of(set())
            layout, start, handle.told_last = (
                (),
                start or Position(there[0].ledger, BEFORE_FIRST),
                -1,
            )
            if resumes is not None:
                handle.told_last = resumes.told_last
        model.floors.add(start if start is not None else Position(layout[0].ledger, BEFORE_FIRST))
        properties = None
        if rng.random() < 0.3:
            number = self.number()
            properties = {"n": str(number)}
            model.cursor_properties_sent[number] = (-1, 0)
        token = f" token={self.token}" if self.token else ""
        self.sim.check.log(
            f"{handle.title} open takeover={takeover} start={start} resume={resume}{token}"
        )
        request = ev.Open(
            create,
            takeover,
            start,
            layout,
            properties,
            resume=resume,
            source=handle.source,
            fencing_token=self.token,
        )
        try:
            node.keeper.open(model.name, request, handle.attach, handle)
        except RefusedError as e:
            handle.on_refused(e.code, e.message, e.remedy)
            return None
        self.handles.append(handle)
        return handle

    def delete_unopened(self, node: Node) -> None:
        """By somebody who has no handle."""
        tool = Handle(self.sim, self.model, node, len(self.sim.opened), self.token)
        self.sim.opened.append(tool)
        self.model.brokers.wants_deleted(self.token)
        try:
            node.keeper.delete_unopened(self.model.name, tool, fencing_token=self.token)
        except RefusedError as e:
            tool.on_refused(e.code, e.message, e.remedy)

    def _position(self) -> Position:
        ledger = self.rng.choice([x for x in self.model.topic.ledgers.values() if not x.trimmed])
        return Position(ledger.ledger, self.rng.randint(-1, ledger.entries - 1))

    # ---- one action

    def act(self) -> None:
        """Whatever comes to mind."""
        rng = self.rng
        if self.sim.loop.time() < self.stands_until_s:
            return
        self.handles = [h for h in self.handles if not h.ended]
        usable = self.usable
        if not self.handles or rng.random() < self.sim.plan.open_again:
            node = self.sim.some_node(rng)
            if self.broken is not None and rng.random() < 0.5:
                broken, self.broken = self.broken, None
                if broken.node.alive:
                    self.open(
                        broken.node if rng.random() < 0.9 or node is None else node,
                        takeover=True,
                        resumes=broken,
                    )
            elif node is not None:
                self.open(node, takeover=rng.random() < 0.85, create=rng.random() < 0.95)
            return
        if not usable:
            if self.sim.plan.impatience and rng.random() < self.sim.plan.impatience:
                self.sim.check.log(f"{self.handles[0].title} does not wait")
                self.handles[0].detach()
            return
        handle = rng.choice(usable)
        if handle.needs_layout:
            handle.send_layout()
            return
        actions, weights = zip(*self.sim.plan.actions.items(), strict=True)
        getattr(self, f"_do_{rng.choices(actions, weights)[0]}")(handle)

    def _known(self, handle: Handle) -> list[DataLedger]:
        return [
            x
            for x in self.model.topic.ledgers.values()
            if x.ledger <= handle.told_last and x.entries and not x.trimmed
        ]

    def _some_number(self) -> int:
        return self.number() if self.rng.random() < 0.3 else 0

    def _do_acks(self, handle: Handle) -> None:
        rng = self.rng
        atoms: list[Atom] = []
        columns = []
        known = self._known(handle)
        for data in rng.sample(known, min(len(known), rng.choice((1, 1, 2)))):
            entries = sorted(
                rng.sample(range(data.entries), min(data.entries, rng.choice((1, 2, 3, 8, 20))))
            )
            atoms += [a for e in entries for a in data.atoms(e)]
            if rng.random() < 0.2:
                columns.append(LedgerColumns(data.ledger, bitmap=BitMap(entries)))
            else:
                columns.append(LedgerColumns(data.ledger, as_sent(entries)))
        if columns:
            handle.send_acks(atoms, tuple(columns), properties=self._some_number())

    def _do_ranges(self, handle: Handle) -> None:
        rng = self.rng
        known = self._known(handle)
        if not known:
            return
        data = rng.choice(known)
        first = rng.randrange(data.entries)
        last = min(data.entries - 1, first + rng.choice((0, 3, 10, 40)))
        atoms = [a for e in range(first, last + 1) for a in data.atoms(e)]
        handle.send_acks(
            atoms, (LedgerColumns(data.ledger, ranges=np.array([first, last], dtype=np.uint32)),)
        )

    def _do_partials(self, handle: Handle) -> None:
        rng = self.rng
        atoms: list[Atom] = []
        columns = []
        for data in self._known(handle):
            partials = []
            for entry in rng.sample(
                sorted(data.batches), min(len(data.batches), rng.choice((0, 1, 3)))
            ):
                size = data.batches[entry]
                missing = BitMap(rng.sample(range(size), rng.randint(1, size - 1)))
                partials.append((entry, Partial(size if rng.random() < 0.8 else 0, missing)))
                atoms += [a for a in data.atoms(entry) if a[2] not in missing]
            if partials:
                columns.append(LedgerColumns(data.ledger, partials=tuple(partials)))
        if columns:
            handle.send_acks(atoms, tuple(columns), properties=self._some_number())

    def _do_cumulative(self, handle: Handle) -> None:
        rng = self.rng
        known = self._known(handle)
        if not known:
            return
        data = rng.choice(known[:2])
        entry = rng.randrange(data.entries)
        position = Position(data.ledger, entry)
        if entry in data.batches and rng.random() < 0.7:
            # inside a batch: everything before it, and the first messages of it
            count = rng.randint(1, data.batches[entry] - 1)
            position = Position(data.ledger, entry - 1)
            missing = BitMap(range(count, data.batches[entry]))
            part = (
                LedgerColumns(
                    data.ledger, partials=((entry, Partial(data.batches[entry], missing)),)
                ),
            )
            atoms = [
                *self.model.topic.upto(position),
                *(a for a in data.atoms(entry) if a[2] < count),
            ]
            handle.send_acks(atoms, part, position, self._some_number())
            return
        handle.send_acks(list(self.model.topic.upto(position)), (), position, self._some_number())

    def _do_grow(self, handle: Handle) -> None:
        data = self.model.topic.last
        for _ in range(self.rng.choice((1, 5, 20))):
            if data.entries >= self.sim.plan.entries_max:
                break
            if self.rng.random() < self.sim.plan.batches:
                data.batches[data.entries] = self.rng.randint(2, self.sim.plan.batch_max)
            data.entries += 1

    def _do_next_ledger(self, handle: Handle) -> None:
        topic = self.model.topic
        topic.last.closed = True
        made = DataLedger(topic.last.ledger + self.rng.randint(1, 4))
        topic.ledgers[made.ledger] = made
        self._do_grow(handle)
        if self.rng.random() < 0.9:
            handle.send_layout()

    def _do_layout(self, handle: Handle) -> None:
        handle.send_layout()

    def _do_trim(self, handle: Handle) -> None:
        for data in list(self.model.topic.ledgers.values())[:-1]:
            if data.closed and not data.trimmed:
                data.trimmed = True
                handle.send_layout()
                return

    def _do_trim_untold(self, handle: Handle) -> None:
        """The topic's retention is over while nobody tells the cursor; a ledger that was never told
        may be among them.
        """
        for data in list(self.model.topic.ledgers.values())[:-1][: self.rng.randint(1, 3)]:
            data.trimmed = data.closed

    def _do_properties(self, handle: Handle) -> None:
        handle.send_properties(self.number())

    def _do_reset(self, handle: Handle) -> None:
        known = self._known(handle)
        if known:
            data = self.rng.choice(known)
            handle.send_reset(Position(data.ledger, self.rng.randint(-1, data.entries - 1)))

    def _do_close(self, handle: Handle) -> None:
        self.sim.check.log(f"{handle.title} close")
        handle.close()
        if self.rng.random() < 0.1:
            self._do_delete(handle)

    def _do_delete(self, handle: Handle) -> None:
        self.sim.check.log(f"{handle.title} delete")
        handle.delete()

    def _do_detach(self, handle: Handle) -> None:
        self.sim.check.log(f"{handle.title} detach")
        self.broken = handle
        handle.detach()

    def _do_reset_and_detach(self, handle: Handle) -> None:
        """The reset is answered to nobody."""
        self._do_reset(handle)
        self._do_detach(handle)

    def _do_resend(self, handle: Handle) -> None:
        self.resend(handle)

    def _do_burst(self, handle: Handle) -> None:
        for _ in range(self.rng.randint(3, 12)):
            if handle.may_send:
                self.rng.choice((self._do_acks, self._do_partials, self._do_ranges))(handle)

    # ---- after a reconnect

    def resend(self, handle: Handle, *, everything: bool = False) -> None:
        """What was sent in this generation and not confirmed, once more, entry by entry."""
        if handle.needs_layout:
            handle.send_layout()
        generation = self.model.generations[handle.generation]
        entries: dict[tuple[int, int], set[int]] = {}
        for ledger, entry, index in generation.sent:
            if ledger <= handle.told_last and not self.model.topic.ledgers[ledger].trimmed:
                entries.setdefault((ledger, entry), set()).add(index)
        todo = [
            k for k in sorted(entries) if any((*k, i) not in generation.durable for i in entries[k])
        ]
        if not everything and len(todo) > 10:
            todo = todo[: self.rng.randint(1, len(todo))]
        step = self.rng.choice((1, 5, 100))
        for start in range(0, len(todo), step):
            columns = []
            atoms: list[Atom] = []
            for ledger, entry in todo[start : start + step]:
                data = self.model.topic.ledgers[ledger]
                have, size = entries[ledger, entry], data.batches.get(entry, 1)
                atoms += [(ledger, entry, i) for i in sorted(have)]
                if len(have) == size:
                    columns.append(LedgerColumns(ledger, as_sent([entry])))
                else:
                    columns.append(
                        LedgerColumns(
                            ledger,
                            partials=((entry, Partial(size, BitMap(set(range(size)) - have))),),
                        )
                    )
            handle.send_acks(atoms, tuple(columns))


def as_sent(entries: list[int]) -> Sent:
    """As a message brings them: a few stay packed."""
    return kept(np.array(entries, "<u4").tobytes())
