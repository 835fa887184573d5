"""One stream with one source: hello, handles, and what each message means. Knows no transport:
messages come in by `receive`, go out by the outbox.

A bad message after opening refuses its handle; a violation of the protocol itself (no hello, an
unknown message) ends the stream. When the stream ends, its handles are detached; the cursors stay
for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cursorkeeper.access import rights
from cursorkeeper.access.callers import Shown
from cursorkeeper.access.identity import ANYBODY, Identity
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.errors import Refusal, RefusedError
from cursorkeeper.core.limits import (
    ACK_LEDGERS_MAX,
    ACK_PARTIALS_MAX,
    LAYOUT_RUN_LEDGERS_MAX,
    UNCONFIRMED_PARTS_MAX,
)
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import extended
from cursorkeeper.core.values import Delta, Segment
from cursorkeeper.runtime.listener import Listener
from cursorkeeper.runtime.runner import OpenResult
from cursorkeeper.stream import codec, state_parts
from cursorkeeper.stream.credits import Credit, CreditPool
from cursorkeeper.stream.early_parts import EarlyParts
from cursorkeeper.stream.guard import Guard, Unwanted, unwanted
from cursorkeeper.stream.outbox import MESSAGES_MAX, MESSAGES_PER_CURSOR, Outbox
from cursorkeeper.stream.outstanding import Outstanding
from cursorkeeper.stream.usage import OverQuota
from cursorkeeper_client._proto import acks_pb2 as pb
from cursorkeeper_client.ack_stream.groups import GROUP_MESSAGES_MAX

if TYPE_CHECKING:
    from cursorkeeper.runtime.keeper import Keeper

PROTOCOL_VERSIONS = (1,)
SOURCE_TOLD = 256
"""Letters of a source's name in the audit log."""


class ProtocolViolation(Exception):
    """The stream ends with a status; `message` says what was wrong and what to do."""


def too_many_grouped(count: int) -> ProtocolViolation:
    return ProtocolViolation(
        f"a group of {count} messages: {GROUP_MESSAGES_MAX} are allowed (group_messages_max of "
        f"Hello)"
    )


class Handle(Listener):
    """One opened cursor of one stream. `takes_over`: its source asked for it whoever has it."""

    def __init__(
        self,
        session: Session,
        handle: int,
        name: CursorName,
        attach: int,
        *,
        opening: bool = True,
        takes_over: bool = False,
    ) -> None:
        self.session, self.handle, self.name, self.attach = session, handle, name, attach
        self.credit = Credit(session.pool)
        self.outstanding = Outstanding()
        self.live = False
        self.confirmed = 0
        self._opening, self._takes_over = opening, takes_over
        self._early: EarlyParts | None = None

    def _send(self, **message: object) -> None:
        self.session.outbox.put(pb.KeeperMessage(**message))  # type: ignore[arg-type]

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        """Sends Opened, the state and the first credit."""
        self.opened(OpenResult.OPENED)
        self._did("create" if created else "open", epoch=machine.epoch, takeover=self._takes_over)
        early, self._early = self._early, None
        messages = early.rest(machine, created=created) if early else None
        if messages is None:
            messages = state_parts.messages(self.handle, machine, created=created)
        self.session.outbox.put_state(self.handle, self._state(messages))
        self._tell_pause(machine)

    def on_recovering(
        self, machine: CursorMachine, joined: Sequence[Delta | Segment] | None
    ) -> None:
        """Sends Opened and parts, as soon as they are many."""
        if self._early is None or self._early.machine is not machine:
            self._early = EarlyParts(self.handle, machine)
        self._early.add(joined)
        if self._early.is_due:
            self.session.outbox.put_state(self.handle, self._guarded(self._early.messages()))

    def on_continued(self, machine: CursorMachine) -> None:
        """Opened without a state, and credit: the source has the state."""
        self.opened(OpenResult.RESUMED)
        self._did("resume", epoch=machine.epoch)
        self.live = True
        self.session.answered(self)
        self._send(
            opened=pb.Opened(
                handle=self.handle, epoch=machine.epoch, generation=machine.generation, resumed=True
            )
        )
        self._send(credit=pb.Credit(handle=self.handle, granted_bytes=self.credit.first()))
        self._tell_pause(machine)

    def _tell_pause(self, machine: CursorMachine) -> None:
        reason = machine.statistics.pause_reason
        if reason:
            self.on_pause(reason)

    def _guarded(self, messages: Iterator[pb.KeeperMessage]) -> Iterator[pb.KeeperMessage]:
        """The handle is live from StateEnd on: until then its source cannot know what it may
        send.
        """
        try:
            for message in messages:
                self.live = message.HasField("state_end")
                yield message
        # a value that no message can hold: this handle's, and not the stream's
        except Exception as e:
            self.session.give_up(self, f"its state cannot be sent: {e!r}")

    def _state(self, messages: Iterator[pb.KeeperMessage]) -> Iterator[pb.KeeperMessage]:
        yield from self._guarded(messages)
        if not self.live:
            return
        self.session.answered(self)
        yield pb.KeeperMessage(
            credit=pb.Credit(handle=self.handle, granted_bytes=self.credit.first())
        )

    def on_confirm(self, confirm: fx.Confirm) -> None:
        """Sends Durable, and gives the credit back."""
        if confirm.seq > self.confirmed:
            self.confirmed = confirm.seq
            self.outstanding.confirm(confirm.seq)
            if self.outstanding.is_clear:
                self.session.answered(self)
            self.session.outbox.put_durable(self.handle, confirm.seq, confirm.truncated_acks)
        granted = self.credit.release(confirm.released_bytes)
        if granted is not None:
            self.session.outbox.put_credit(self.handle, granted)

    def _did(self, action: str, **what: Any) -> None:
        self.session.did(action, cursor=str(self.name), **what)

    def on_reset_done(self, done: fx.ResetDone) -> None:
        self._did("reset", generation=done.generation, mark_delete=str(done.mark_delete))
        self._send(
            reset_done=pb.ResetDone(
                handle=self.handle,
                generation=done.generation,
                mark_delete=codec.position_to(done.mark_delete),
            )
        )

    def opened(self, result: str) -> None:
        """Count how the Open was answered, once."""
        if self._opening:
            self._opening = False
            self.session.keeper.telemetry.opened(result)

    def on_pause(self, reason: str) -> None:
        self._send(pause=pb.Pause(handle=self.handle, reason=reason))

    def on_resume(self) -> None:
        self._send(resume=pb.Resume(handle=self.handle))

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        self._end(code)
        self.session.refuse(self.handle, Refusal(code), self.name.display, message, remedy, seq)

    def on_deposed(self, epoch: int) -> None:
        self._did("lose", epoch=epoch)
        self._end(OpenResult.DEPOSED, deposed=pb.Deposed(handle=self.handle, epoch=epoch))

    def on_closed(self) -> None:
        self._did("close")
        self._end(OpenResult.CLOSED, closed=pb.Closed(handle=self.handle))

    def on_deleted(self) -> None:
        self._did("delete")
        self._end(OpenResult.DELETED, deleted=pb.Deleted(handle=self.handle))

    def _end(self, result: str, **message: object) -> None:
        is_here = self.session.holds(self)  # its number may be another's by now
        self.session.drop(self)
        self.opened(result)
        if message and is_here:
            self._send(**message)


@extended
class Session:
    def __init__(
        self,
        keeper: Keeper,
        guard: Guard,
        shown: Shown,
        *,
        name: str,
        incarnation: str,
        worker: int = 0,
        worker_addresses: Sequence[str] = (),
    ) -> None:
        """`worker_addresses`: of all workers of this daemon, as sources dial them, and `worker` is
        which of them this is; none: the daemon is one process.
        """
        self.keeper, self._guard, self._shown = keeper, guard, shown
        self._identity: Identity | None = None
        self.unwanted: Unwanted | None = None
        """Why it was ended here, if its peer has no right to it any more."""
        self.on_end: Any = lambda: None
        """Called when it ends here, which its peer may not notice."""
        self._worker, self._worker_addresses = worker, worker_addresses
        self._name, self._incarnation = name, incarnation
        self.outbox = Outbox(
            max(MESSAGES_MAX, MESSAGES_PER_CURSOR * keeper.keeper_limits.cursors_max),
            self.end,
            lambda: bool(self._asking),
        )
        self.source = ""
        self._ended = False
        self.greeted = False
        """Its Hello came, and was right."""
        self._handles: dict[int, Handle] = {}
        self._asking: set[Handle] = set()
        """They wait for their state, or for a confirmation."""

    @property
    def pool(self) -> CreditPool:
        """What its handles draw their credit from."""
        return self._guard.usage.pool(self._identity or ANYBODY)

    def did(self, action: str, result: str = "done", **what: Any) -> None:
        """For the audit log. `result`: asked, of what goes on when the source has left."""
        self._guard.audit.did(
            action,
            self._identity or ANYBODY,
            self._shown,
            result,
            source=self.source[:SOURCE_TOLD],
            **what,
        )

    def answered(self, handle: Handle) -> None:
        """It waits for nothing that takes its time."""
        self._asking.discard(handle)

    def hello(self) -> pb.KeeperMessage:
        return pb.KeeperMessage(
            hello=pb.Hello(
                name=self._name,
                incarnation=self._incarnation,
                protocol_versions=PROTOCOL_VERSIONS,
                ack_ledgers_max=ACK_LEDGERS_MAX,
                ack_partials_max=ACK_PARTIALS_MAX,
                group_messages_max=GROUP_MESSAGES_MAX,
                unconfirmed_parts_max=UNCONFIRMED_PARTS_MAX,
                layout_ledgers_max=LAYOUT_RUN_LEDGERS_MAX,
                worker=self._worker,
                worker_addresses=self._worker_addresses,
            )
        )

    def end(self) -> None:
        """The stream is gone, or will be when its peer reads again."""
        if not self._ended:
            self._ended = True
            self.on_end()
        for handle in list(self._handles.values()):
            self.drop(handle)
            handle.opened(OpenResult.GONE)
            self.keeper.detach(handle.name, handle.attach)
        self.outbox.close()

    def leave(self) -> None:
        """Its stream is over, for its peer, too."""
        if self in self._guard.staying and self._identity is not None:
            self._guard.staying.discard(self)
            self._guard.usage.give_back(self._identity, "streams")

    def give_up(self, handle: Handle, why: str) -> None:
        """The handle ends although its source did nothing wrong; the cursor stays as it is."""
        self.keeper.telemetry.log(
            "handle refused", cursor=str(handle.name), code=str(Refusal.DAMAGED), problem=why
        )
        handle.on_refused(
            Refusal.DAMAGED, why, "look at it with `cursorkeeper inspect`; report this with the log"
        )
        self.keeper.detach(handle.name, handle.attach)

    def holds(self, handle: Handle) -> bool:
        return self._handles.get(handle.handle) is handle

    def drop(self, handle: Handle) -> None:
        """The handle has ended; its number may be used again."""
        if self.holds(handle):
            del self._handles[handle.handle]
            self.answered(handle)
            self.outbox.drop(handle.handle)
            handle.credit.close()

    def refuse(
        self, handle: int, code: Refusal, cursor: str, message: str, remedy: str, seq: int = 0
    ) -> None:
        """Tell the source, and count it."""
        self.keeper.telemetry.refused(code)
        self._guard.audit.refused(
            "cursor", self._identity, self._shown, message, cursor=cursor, code=str(code)
        )
        refused = pb.Refused(
            handle=handle, code=str(code), cursor=cursor, message=message, remedy=remedy, seq=seq
        )
        self.outbox.put(pb.KeeperMessage(refused=refused))

    # ---- messages

    def ungrouped(self, message: Any) -> Sequence[Any]:
        """The messages that came in one, to be received one by one. Raises ProtocolViolation."""
        if not message.HasField("group"):
            return (message,)
        count = len(message.group.messages)
        if not self.greeted:
            raise ProtocolViolation("the first message must be Hello")
        if count > GROUP_MESSAGES_MAX:
            raise too_many_grouped(count)
        grouped: Sequence[Any] = message.group.messages
        return grouped

    def receive(self, message: Any) -> None:
        """One message of the source, as `received` has it. Raises ProtocolViolation, Unwanted,
        DecodeError.
        """
        if self._ended:
            return
        kind = message.WhichOneof("message")
        if kind == "hello":
            self._hello(message.hello)
            return
        if not self.greeted:
            raise ProtocolViolation("the first message must be Hello")
        match kind:
            case "ack_batch":
                self._ack_batch(message.ack_batch)
            case "open_cursor":
                self._begin(message.open_cursor)
            case "delete_cursor" if message.delete_cursor.topic:
                self._begin(message.delete_cursor)
            case "group":
                raise ProtocolViolation("a group within a group: put its messages into one")
            case None:
                raise ProtocolViolation(
                    "an empty message, or one of a newer protocol: use a version that Hello named"
                )
            case _:
                self._control(kind, getattr(message, kind))

    def _hello(self, hello: pb.Hello) -> None:
        if self.greeted:
            raise ProtocolViolation("a second Hello")
        if not set(hello.protocol_versions) & set(PROTOCOL_VERSIONS):
            raise ProtocolViolation(
                f"protocol versions {sorted(hello.protocol_versions)} of {hello.name!r}: "
                f"this keeper speaks {list(PROTOCOL_VERSIONS)}; upgrade one of the two"
            )
        self.source = f"{hello.name}/{hello.incarnation}"
        self._shown = self._shown.but(hello.credentials)
        self._enter()
        self.greeted = True
        self.outbox.group_messages_max = min(hello.group_messages_max, GROUP_MESSAGES_MAX)
        self.outbox.put(self.hello())

    def _enter(self) -> None:
        """Raises Unwanted."""
        guard, source = self._guard, self.source[:SOURCE_TOLD]
        identity = guard.let_in(self._shown, rights.PUBLISH, source=source)
        try:
            guard.usage.take(identity, "streams")
        except OverQuota as e:
            guard.audit.refused("Publish", identity, self._shown, str(e), source=source)
            raise unwanted(e) from None
        self._identity = identity
        guard.staying.add(self)

    def look_again(self) -> None:
        """Ends when its peer is nobody any more: who has a new token dials again, and is asked
        then. A cursor ends that is not its peer's any more.
        """
        if self._ended or self._identity is None:
            return
        guard, was = self._guard, self._identity
        try:
            now = guard.let_in(self._shown, rights.PUBLISH, source=self.source[:SOURCE_TOLD])
        except Unwanted as e:
            self.unwanted = Unwanted("UNAVAILABLE", f"dial again: {e}")
            self.end()
            return
        if now.name != was.name:
            self.unwanted = Unwanted(
                "UNAVAILABLE", f"dial again: what proved to be {was.name} is {now.name} now"
            )
            self.end()
            return
        self._identity = now
        guard.usage.limit(now)
        for handle in list(self._handles.values()):
            try:
                rights.check_topic(now, handle.name.topic)
            except rights.Denied as e:
                message, _, remedy = str(e).rpartition(": ")
                handle.on_refused(Refusal.NOT_ALLOWED, message, remedy)
                self.keeper.detach(handle.name, handle.attach)

    def _check_allowed(self, name: CursorName, *, opens: bool) -> None:
        """Whether this cursor may be opened, or deleted, here. Raises RefusedError."""
        identity = self._identity or ANYBODY
        try:
            rights.check_topic(identity, name.topic)
            if opens:
                self._guard.usage.hold(identity, name, self.keeper.cursors.__contains__)
        except (rights.Denied, OverQuota) as e:
            message, _, remedy = str(e).rpartition(": ")
            code = Refusal.NOT_ALLOWED if isinstance(e, rights.Denied) else Refusal.TOO_MANY_CURSORS
            raise codec.refused(message, remedy, code) from None

    def _begin(self, message: pb.OpenCursor | pb.DeleteCursor) -> None:
        """Opens a cursor, or deletes one that is not open, for a new handle."""
        number, opens = message.handle, isinstance(message, pb.OpenCursor)
        handle: Handle | None = None
        try:
            if number in self._handles:
                raise codec.refused(
                    f"handle {number} is in use on this stream",
                    "choose another handle",
                    Refusal.ALREADY_OPEN,
                )
            name = CursorName.checked(message.topic, message.subscription)
            request = self._request(message) if isinstance(message, pb.OpenCursor) else None
            token = codec.fencing_token_of(message)
            self._check_allowed(name, opens=opens)
            attach = self.keeper.attach_id() if opens else 0
            handle = self._handles[number] = Handle(
                self,
                number,
                name,
                attach,
                opening=opens,
                takes_over=request is not None and request.takeover,
            )
            if request is None:
                self.did("delete_cursor", "asked", cursor=str(name))
                self.keeper.delete_unopened(name, handle, fencing_token=token)
            else:
                self._asking.add(handle)
                self.keeper.open(name, replace(request, fencing_token=token), attach, handle)
        except RefusedError as e:
            if handle is not None:
                self.drop(handle)
            if opens:
                self.keeper.telemetry.opened(e.code)
            display = f"{message.topic}|{message.subscription}"
            self.refuse(number, e.code, e.cursor or display, e.message, e.remedy)

    def _request(self, message: pb.OpenCursor) -> ev.Open:
        resume = message.resume
        return ev.Open(
            create=message.create,
            takeover=message.takeover,
            start=codec.position_of(message.start) if message.HasField("start") else None,
            layout=codec.layout_of(message.layout),
            cursor_properties=dict(message.cursor_properties) or None,
            resume=ev.Resume(resume.epoch, resume.generation)
            if message.HasField("resume")
            else None,
            source=self.source,
        )

    def _known(self, number: int) -> Handle | None:
        handle = self._handles.get(number)
        if handle is None:
            self.refuse(
                number,
                Refusal.UNKNOWN_HANDLE,
                "",
                f"handle {number} is not open on this stream",
                "open the cursor first",
            )
        return handle

    def _fail(self, handle: Handle, error: RefusedError, seq: int) -> None:
        """Refuses the handle for its message of this number; what it sent before stays."""
        handle.on_refused(error.code, error.message, error.remedy, seq)
        self.keeper.detach(handle.name, handle.attach)

    def _ack_batch(self, data: bytes) -> None:
        sent = codec.sent_acks(data)
        handle = self._known(sent.handle)
        if handle is None:
            return
        try:
            batch = codec.batch_of(sent, data)
            if not handle.live:
                raise codec.refused(
                    "acks before StateEnd", "wait for StateEnd and the first Credit"
                )
            if not handle.credit.spend(batch.size_bytes):
                raise codec.refused(
                    f"a batch of {batch.size_bytes} bytes, "
                    f"{handle.credit.granted - handle.credit.spent} were granted",
                    "wait for Credit before sending",
                    Refusal.CREDIT_EXCEEDED,
                )
            handle.outstanding.add(batch.seq, control=False, parts=batch.parts)
            self._asking.add(handle)
        except RefusedError as e:
            self._fail(handle, e, sent.seq)
            return
        self._dispatch(handle, ev.Acks(handle.attach, batch))

    def _dispatch(self, handle: Handle, event: ev.Event) -> None:
        runner = self.keeper.cursors.get(handle.name)
        if runner is not None:
            runner.dispatch(event)

    def _control(self, kind: str, message: Any) -> None:
        handle = self._known(message.handle)
        if handle is None:
            return
        try:
            if kind in ("close_cursor", "delete_cursor"):
                wish = ev.Close if kind == "close_cursor" else ev.Delete
                self.did(kind, "asked", cursor=str(handle.name))
                self.keeper.end(handle.name, wish(handle.attach))
                return
            if not handle.live:
                raise codec.refused(f"{kind} before StateEnd", "wait for StateEnd")
            event = _event(handle.attach, message)
            if kind == "reset_cursor":
                self.did(
                    kind, "asked", cursor=str(handle.name), target=str(getattr(event, "target", ""))
                )
            handle.outstanding.add(message.seq, control=True)
            self._asking.add(handle)
        except RefusedError as e:
            self._fail(handle, e, getattr(message, "seq", 0))
            return
        self._dispatch(handle, event)


def _event(
    attach: int, message: pb.Layout | pb.SetCursorProperties | pb.ResetCursor
) -> ev.SetLayout | ev.SetProperties | ev.Reset:
    """What a control message asks for. Raises RefusedError."""
    seq = message.seq
    if isinstance(message, pb.Layout):
        generation = codec.generation_of(message)
        return ev.SetLayout(attach, seq, generation, codec.layout_of(message.run))
    if isinstance(message, pb.SetCursorProperties):
        values = dict(message.properties.values)
        return ev.SetProperties(attach, seq, codec.generation_of(message), values)
    if not message.HasField("target"):
        raise codec.refused("a reset without a target", "send the new mark-delete position")
    target = codec.position_of(message.target)
    return ev.Reset(attach, seq, codec.generation_of(message), target)
