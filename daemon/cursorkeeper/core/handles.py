"""Serves sources: which handle holds the cursor, which one waits for its state, and which one asked
for the cursor's end.

A handle is one open of one stream. At most one holds the cursor, and at most one waits; a newer one
replaces both.
"""

from __future__ import annotations

from cursorkeeper.core import events as ev
from cursorkeeper.core.shape import component
from cursorkeeper.core.values import LayoutItem


@component
class Handles:
    attach: int | None = None
    """The handle whose messages count."""
    last_seq: int = 0
    """The newest number of its messages."""
    waiting: int | None = None
    """The handle that waits for the state."""
    layout: tuple[LayoutItem, ...] = ()
    """What the waiting handle told and was not taken yet."""
    source: str = ""
    """Which process the waiting handle is of."""
    wish: ev.Close | ev.Delete | None = None
    """A close or delete that came while the cursor was being opened."""
    leaving: int | None = None
    """The handle that was attached when the close began: a delete of its own may still come."""
    reopen: int | None = None
    """The handle for which the cursor is closed and read again."""
    delete_token: int = 0
    """The highest fencing token of those who asked for the cursor's deletion."""

    # ---- who comes

    def wait(self, event: ev.Attach) -> None:
        """The handle wants the state: nobody else is heard any more."""
        self.attach, self.waiting, self.last_seq = None, event.attach, 0
        self.layout, self.source = event.layout, event.source

    def resume(self, attach: int) -> None:
        """The handle goes on where the one before it broke off."""
        self.attach, self.last_seq = attach, 0

    def serve(self) -> None:
        """The waiting handle gets the state, and is heard from now on."""
        self.attach, self.waiting, self.last_seq = self.waiting, None, 0

    def take_layout(self) -> tuple[LayoutItem, ...]:
        run, self.layout = self.layout, ()
        return run

    def heard(self, seq: int) -> None:
        """A message of the attached handle counts."""
        self.last_seq = seq

    # ---- who goes

    def refuse(self) -> None:
        """The attached handle is not heard any more."""
        self.attach = None

    def send_away(self) -> None:
        """Nobody waits for the state any more."""
        self.waiting = None

    def detach(self, attach: int) -> None:
        """The handle is gone, whatever it was."""
        if self.attach == attach:
            self.attach = None
        if self.reopen == attach:
            self.reopen = None
        if self.waiting == attach:
            self.waiting = None

    # ---- the end

    def is_theirs(self, attach: int | None) -> bool:
        """Whether the cursor is this handle's to end: it holds it, waits for its state, or held it
        when the close began.
        """
        return attach is None or attach in (self.attach, self.waiting, self.reopen, self.leaving)

    def wish_for(self, end: ev.Close | ev.Delete) -> None:
        """A close never replaces a wish that was there before."""
        if self.wish is None or isinstance(end, ev.Delete):
            self.wish = end

    def take_wish(self) -> ev.Close | ev.Delete | None:
        wish, self.wish = self.wish, None
        return wish

    def leave(self) -> None:
        """The cursor closes: nobody is heard any more."""
        self.leaving = self.attach if self.attach is not None else self.waiting
        self.attach = self.waiting = None

    def read_again(self) -> None:
        """The cursor closes, and is opened again for the handle that waits."""
        self.reopen, self.attach, self.waiting = self.waiting, None, None

    def stay_closed(self, attach: int | None) -> None:
        """The handle does not want the cursor again."""
        if attach is not None and attach == self.reopen:
            self.reopen = None

    def end(self) -> None:
        """The cursor is deleted: nobody waits for it any more."""
        self.attach = self.waiting = self.reopen = None

    def raise_delete_token(self, token: int) -> None:
        self.delete_token = token
