"""What ZooKeeper answers: to reads and checks of the footer, to footer writes, and to the watch. Whose write is there decides who we
are (ARCHITECTURE rules 3, 4 and 9). Does not own what follows: the claim is in `opening`, the roll's check in `rolling`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cursorkeeper.core import answers, finishing, flushing, opening, rolling, snapshotting
from cursorkeeper.core import effects as fx
from cursorkeeper.core import events as ev
from cursorkeeper.core.commit import Decision, Lost, Purpose
from cursorkeeper.core.errors import Refusal
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.writer import WriterPhase

if TYPE_CHECKING:
    from cursorkeeper.core.machine import CursorMachine


def on_footer_read(m: CursorMachine, event: ev.FooterRead, now: float) -> None:
    """An answer to the claim's read, to a BadVersion's question, to the roll's check, or to the slow poll."""
    if m.commit.is_waiting_for(event.token):
        decide(m, m.commit.on_read(event.footer, event.version), now)
    elif event.token == m.answers.token and m.answers.reading:
        answers.on_read(m, event, now)
    elif event.token == m.opening.token and m.opening.reading_footer:
        m.opening.reading_footer = False
        opening.claim(m, event)
    elif event.token == m.writer.token and m.writer.phase is WriterPhase.CHECKING:
        if _may_lag(m, event.footer):
            m.writer.token = m.token()
            m.emit(fx.ReadFooter(m.writer.token, sync=True))
        elif _still_ours(m, event.footer):
            rolling.recover_own(m)
    elif event.token == m.check_token:
        m.check_token = 0
        if _may_lag(m, event.footer):
            m.check_token = m.token()
            m.emit(fx.ReadFooter(m.check_token, sync=True))
        else:
            _still_ours(m, event.footer)


def _may_lag(m: CursorMachine, footer: Footer | None) -> bool:
    """No footer where there was one: a server that lags may say so. Only a synced read says that it is lost."""
    asked, m.checked_synced = m.checked_synced, footer is None and not m.checked_synced
    return footer is None and not asked


def _still_ours(m: CursorMachine, footer: Footer | None) -> bool:
    if footer is None:
        m.footer_lost()
        return False
    if footer.epoch > m.epoch or (footer.epoch == m.epoch and footer.writer != m.writer_id):
        m.depose(footer.epoch)
        return False
    return True


def on_footer_read_failed(m: CursorMachine, event: ev.FooterReadFailed, now: float) -> None:
    """ZooKeeper is away: ask again later."""
    if m.commit.is_waiting_for(event.token):
        m.commit.on_read_failed(now)
        m.waiting_for = f"ZooKeeper: {event.reason}"
    elif event.token == m.answers.token and m.answers.reading:
        answers.on_read_failed(m, event.reason, now)
    elif event.token == m.opening.token and m.opening.reading_footer:
        m.opening.retry_at_s = now + opening.delay(m, m.opening.tries)
        m.opening.tries += 1
        m.waiting_for = f"ZooKeeper: {event.reason}"
    elif event.token == m.writer.token and m.writer.phase is WriterPhase.CHECKING:
        rolling.check_failed(m, event.reason, now)
    elif event.token == m.check_token:
        m.check_token = 0  # the next poll asks again


def on_footer_unreadable(m: CursorMachine, event: ev.FooterUnreadable, now: float) -> None:
    """Bytes that are not a footer of this version: touch nothing."""
    ours = m.commit.is_waiting_for(event.token) or event.token in (m.opening.token, m.answers.token, m.writer.token, m.check_token)
    if not ours:
        return
    if event.token == m.opening.token and not m.opening.replaced:
        m.opening.replaced = True
        opening.read_footer(m, sync=True)  # a server that lags may show bytes that were put right meanwhile
    elif event.replaced:
        m.keep_footer()
        m.refuse(
            Refusal.FOOTER_REPLACED,
            f"its footer was not put there by a CursorKeeper: {event.reason}",
            "find out what wrote the znode, and let nothing delete this cursor's ledgers. " + opening.RESTORE,
        )
    elif event.too_new:
        m.refuse(Refusal.FORMAT_TOO_NEW, f"its footer was written by a newer version: {event.reason}", "upgrade this daemon")
    else:
        m.refuse(
            Refusal.DAMAGED,
            f"its footer cannot be read: {event.reason}",
            "look at it with `cursorkeeper inspect`. " + opening.RESTORE,
        )


def on_footer_changed(m: CursorMachine, event: ev.FooterChanged, now: float) -> None:
    """Is there a new owner? An idle one would never learn it otherwise."""
    m.look_again = True


def look(m: CursorMachine) -> None:
    """Reads the footer when it may have changed, which also sets the next watch: our own writes use it up, during the claim
    and later, so a change that comes at a bad time must be remembered."""
    if m.look_again and m.commit.outstanding is None and not m.check_token and m.writer.phase is not WriterPhase.CHECKING:
        m.look_again = False
        m.check_token = m.token()
        m.emit(fx.ReadFooter(m.check_token, sync=False))


# ---- answers of footer writes


def on_footer_written(m: CursorMachine, event: ev.FooterWritten, now: float) -> None:
    if m.commit.is_waiting_for(event.token):
        decide(m, m.commit.on_written(event.version), now)


def on_footer_bad_version(m: CursorMachine, event: ev.FooterBadVersion, now: float) -> None:
    """Somebody's write was applied: whose?"""
    if m.commit.is_waiting_for(event.token):
        m.emit(m.commit.on_bad_version(m.token()))


def on_footer_write_unknown(m: CursorMachine, event: ev.FooterWriteUnknown, now: float) -> None:
    """The answer was lost: repeat."""
    if m.commit.is_waiting_for(event.token):
        m.commit.on_unknown(now)
        m.waiting_for = f"ZooKeeper: {event.reason}"


def on_footer_gone(m: CursorMachine, event: ev.FooterGone, now: float) -> None:
    """A footer once seen is never created again."""
    if m.commit.is_waiting_for(event.token):
        m.commit.outstanding = None
        m.footer_lost()


def on_footer_too_large(m: CursorMachine, event: ev.FooterTooLarge, now: float) -> None:
    """It was not sent. A limit that the start-up checks should have caught; nothing is guessed, nothing is lost on disk."""
    if not m.commit.is_waiting_for(event.token):
        return
    m.commit.outstanding = None
    m.refuse(
        Refusal.TOO_LARGE,
        f"its footer does not fit a znode: {event.reason}",
        "raise jute.maxbuffer, or lower the chain and property limits",
    )


# ---- answers of checks


def on_footer_checked(m: CursorMachine, event: ev.FooterChecked, now: float) -> None:
    """The footer is the one that was asked about."""
    if event.token == m.opening.token and m.opening.checking:
        opening.on_checked(m)
    elif event.token == m.writer.token and m.writer.phase is WriterPhase.CHECKING:
        rolling.lost_under_its_owner(m)
    else:
        answers.on_checked(m, event, now)


def on_footer_check_failed(m: CursorMachine, event: ev.FooterCheckFailed, now: float) -> None:
    if event.token == m.opening.token and m.opening.checking:
        opening.on_check_failed(m, now)
    elif event.token == m.writer.token and m.writer.phase is WriterPhase.CHECKING:
        rolling.check_failed(m, "the footer has moved on", now)
    else:
        answers.on_check_failed(m, event, now)


def on_footer_check_unknown(m: CursorMachine, event: ev.FooterCheckUnknown, now: float) -> None:
    """Nobody said so: again later."""
    if event.token == m.opening.token and m.opening.checking:
        opening.on_check_failed(m, now, event.reason)
    elif event.token == m.writer.token and m.writer.phase is WriterPhase.CHECKING:
        rolling.check_failed(m, event.reason, now)
    else:
        answers.on_check_unknown(m, event, now)


def decide(m: CursorMachine, decision: Decision, now: float) -> None:
    """A footer write is decided."""
    if isinstance(decision, Lost):
        answers.write_decided(m, committed=False)
        _lost(m, decision)
        return
    answers.write_decided(m, committed=True)
    m.waiting_for = ""
    match decision.purpose:
        case Purpose.CLAIM:
            opening.claimed(m, decision)
        case Purpose.NAME_LEDGER:
            rolling.named(m, decision, now)
        case Purpose.SWITCH:
            snapshotting.switched(m, decision, now)
        case Purpose.TOKEN:
            pass  # it proved, and who waits has its token now
        case Purpose.NOTE:
            flushing.confirm(m)
        case _:
            finishing.committed(m, decision, now)


def _lost(m: CursorMachine, lost: Lost) -> None:
    if lost.purpose is Purpose.CLAIM:
        m.opening.seen = m.opening.seen or lost.now is not None
        # start again from the read, which says who won
        m.opening.tries, m.opening.claim_sent = 0, False
        opening.read_footer(m, sync=True)
        opening.end_if_unwanted(m)
    elif lost.now is None:
        m.footer_lost()
    else:
        m.depose(lost.now.epoch)


HANDLERS: dict[type, Any] = {
    ev.FooterRead: on_footer_read,
    ev.FooterReadFailed: on_footer_read_failed,
    ev.FooterUnreadable: on_footer_unreadable,
    ev.FooterChanged: on_footer_changed,
    ev.FooterWritten: on_footer_written,
    ev.FooterBadVersion: on_footer_bad_version,
    ev.FooterWriteUnknown: on_footer_write_unknown,
    ev.FooterGone: on_footer_gone,
    ev.FooterTooLarge: on_footer_too_large,
    ev.FooterChecked: on_footer_checked,
    ev.FooterCheckFailed: on_footer_check_failed,
    ev.FooterCheckUnknown: on_footer_check_unknown,
}
