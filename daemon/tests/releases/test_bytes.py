"""Every footer and every entry that a release wrote is read by today's format, and says what had
been confirmed.
"""

from __future__ import annotations

import pytest

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import FooterState, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.values import OpenRecord
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.record import Kind
from daemon.tests.releases.described import assert_as_confirmed, described
from daemon.tests.releases.recorded import Recorded, RecordedLedger, each
from daemon.tests.releases.replayed import newest, replayed

FLIP_EVERY_BYTES = 37


def records(recorded: Recorded) -> list[RecordedLedger]:
    return [own for own in recorded.ledgers if own.custom_metadata["format"] == b"native"]


@each()
def test_the_footer_says_whose_it_is(recorded: Recorded) -> None:
    footer = footer_bytes.decode(recorded.footer, recorded.name)
    assert recorded.path == recorded.name.path(recorded.root)
    assert footer.state is (FooterState.CLOSED if recorded.end == "closed" else FooterState.OPEN)
    assert (footer.epoch, footer.generation) == (recorded.epoch, recorded.expected["generation"])
    assert footer.named_ledgers() <= {own.ledger for own in recorded.ledgers}
    assert not footer.extra, "a member that this release does not know"
    with pytest.raises(DamageError):
        footer_bytes.decode(recorded.footer, CursorName("persistent://another/one/topic", "sub"))


@each(deleted=True)
def test_a_tombstone_names_nothing(recorded: Recorded) -> None:
    footer = footer_bytes.decode(recorded.footer, recorded.name)
    assert footer.state is FooterState.DELETED
    assert (footer.epoch, footer.generation) == (recorded.epoch, recorded.expected["generation"])
    assert footer.named_ledgers() == frozenset()


@each()
def test_every_entry_is_read(recorded: Recorded) -> None:
    for own in records(recorded):
        for at, entry in enumerate(own.entries):
            one = record.decode(entry, recorded.name.record_hash)
            assert isinstance(one.body, OpenRecord) is (at == 0)
            assert one.epoch == int(own.custom_metadata["epoch"]) <= recorded.epoch
    for own in recorded.ledgers:
        assert own.custom_metadata["deployment"] == recorded.deployment.encode()
        assert own.custom_metadata["cursor"] == recorded.name.canonical.encode()
        if own.custom_metadata["format"] == b"pulsar":
            newest(own)


@each()
def test_the_replay_is_what_was_confirmed(recorded: Recorded) -> None:
    footer = footer_bytes.decode(recorded.footer, recorded.name)
    assert_as_confirmed(described(replayed(recorded), footer.generation), recorded)


# ---- that these tests can fail


@each()
def test_any_wrong_byte_of_a_footer_is_noticed(recorded: Recorded) -> None:
    for at in range(0, len(recorded.footer), FLIP_EVERY_BYTES):
        spoilt = bytearray(recorded.footer)
        spoilt[at] ^= 0x01
        with pytest.raises(DamageError):
            footer_bytes.decode(bytes(spoilt), recorded.name)


@each()
def test_a_wrong_byte_of_any_record_is_noticed(recorded: Recorded) -> None:
    for own in records(recorded):
        for number, entry in enumerate(own.entries):
            spoilt = bytearray(entry)
            at = number * FLIP_EVERY_BYTES % len(entry)
            spoilt[at if not 5 <= at < 8 else 0] ^= 0x01
            with pytest.raises(DamageError):
                record.decode(bytes(spoilt), recorded.name.record_hash)


@each()
def test_a_missing_entry_is_noticed(recorded: Recorded) -> None:
    """The last confirmed delta of the chain's last ledger is not there: what was confirmed does not
    come out.
    """
    footer = footer_bytes.decode(recorded.footer, recorded.name)
    own = (
        {own.ledger: own for own in recorded.ledgers}.get(footer.chain[-1].ledger)
        if footer.chain
        else None
    )
    if own is None or own.custom_metadata["format"] == b"pulsar" or recorded.sent is not None:
        assert not footer.chain or recorded.is_pulsar or recorded.sent is not None
        return
    deltas = [at for at, entry in enumerate(own.entries) if record.peek(entry).kind is Kind.DELTA]
    if not deltas or (
        isinstance(footer.base, SnapshotBase)
        and footer.base.ledger == own.ledger
        and deltas[-1] < footer.base.last_entry
    ):
        return
    cut = recorded.with_entries(
        own.ledger, own.entries[: deltas[-1]] + own.entries[deltas[-1] + 1 :]
    )
    try:
        found = described(replayed(cut), footer.generation)
    except (AssertionError, DamageError):
        return
    assert found != recorded.expected
