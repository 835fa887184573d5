"""What a cursor tells whoever attached to it. The stream's handles hear it, whoever holds a cursor
in this process, and tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from cursorkeeper.core import effects as fx
from cursorkeeper.core.machine import CursorMachine
from cursorkeeper.core.shape import extended
from cursorkeeper.core.values import Delta, Segment


@extended
class Listener:
    """One handle. Calls come from the event loop and must not block. What it does not listen to is
    of no interest to it.
    """

    def on_state(self, machine: CursorMachine, *, created: bool) -> None:
        """The cursor is proved to be held here, and everything accepted is durable: stream the
        state. It does not change until acks of this handle arrive. `created`: as of Opened.
        """

    def on_recovering(
        self, machine: CursorMachine, joined: Sequence[Delta | Segment] | None
    ) -> None:
        """The cursor is proved to be held here, and this was joined to the state that is being
        read: durable acks. They may be shown, not used, before `on_state`. None: they are not all
        of it, so `on_state` shows everything.
        """

    def on_continued(self, machine: CursorMachine) -> None:
        """The handle goes on where its predecessor broke off: nothing of the state is told."""

    def on_confirm(self, confirm: fx.Confirm) -> None:
        """Durable or decided up to a seq."""

    def on_reset_done(self, done: fx.ResetDone) -> None:
        """The reset that it asked for is durable."""

    def on_pause(self, reason: str) -> None:
        """The source should stop delivering."""

    def on_resume(self) -> None:
        """The source may deliver again."""

    def on_refused(self, code: str, message: str, remedy: str, seq: int = 0) -> None:
        """The handle has ended: a bad message, whose number `seq` is, or a cursor that cannot be
        opened.
        """

    def on_deposed(self, epoch: int) -> None:
        """The handle has ended: taken over here or elsewhere."""

    def on_closed(self) -> None:
        """The handle has ended: closed as asked, or by the daemon."""

    def on_deleted(self) -> None:
        """The handle has ended with its cursor."""


NOBODY = Listener()
