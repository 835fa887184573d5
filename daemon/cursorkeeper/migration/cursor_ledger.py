"""The newest state in one Pulsar cursor ledger, live or closed, read without recovery.

Drives the sans-I/O reader of `format.pulsar.chunks` with a ledger client. Of an open ledger the
entries beyond the last add confirmed are looked at too: the newest state of a live cursor is always
one of them.
"""

from __future__ import annotations

from typing import NamedTuple

from cursorkeeper.bookkeeper.port import LedgerInfo, LedgerState, LedgerStore
from cursorkeeper.core.errors import DamageError
from cursorkeeper.format.pulsar import names
from cursorkeeper.format.pulsar.chunks import COMPRESSION_KEY, Found, ReadRange, newest_state
from cursorkeeper.format.pulsar.errors import PulsarFormatError, too_new
from cursorkeeper.format.pulsar.values import Compression
from cursorkeeper.migration.cluster import PulsarCursorRef
from cursorkeeper.migration.patience import Patience
from cursorkeeper.migration.pulsar_cursor import Freshness

READ_BYTES = 4 << 20


class _Tail(NamedTuple):
    """Where the entries end: the newest one with its bytes, the last add confirmed, and why entries
    beyond that may be missing.
    """

    last_entry: int
    payload: bytes
    last_add_confirmed: int
    stopped_by: str


async def newest_of(
    ledgers: LedgerStore,
    ref: PulsarCursorRef,
    ledger: int,
    patience: Patience,
    limit_bytes: int,
    znode_mtime_ms: int,
) -> tuple[Found, Freshness]:
    """The state, and how fresh it is. Raises NoSuchLedger, GatewayError, MigrationError (AWAY),
    PulsarFormatError and TooNewError with their place.
    """
    info = await patience.repeat(ref, lambda: ledgers.metadata(ledger))
    compression = _compression(info, ref)
    tail = await patience.repeat(ref, lambda: _tail(ledgers, info))
    if tail.last_entry < 0:
        why = f" that can be read ({tail.stopped_by})" if tail.stopped_by else ""
        raise PulsarFormatError(f"it holds no entry{why}", f"ledger {ledger}")
    reader = newest_state(
        tail.last_entry, compression=compression, max_entry_bytes=None, limit_bytes=limit_bytes
    )

    async def entries(wanted: ReadRange) -> list[bytes]:
        if wanted == (tail.last_entry, tail.last_entry):
            return [tail.payload]
        return await patience.repeat(ref, lambda: _entries(ledgers, ledger, wanted))

    try:
        wanted = next(reader)
        while True:
            wanted = reader.send(await entries(wanted))
    except StopIteration as stop:
        found: Found = stop.value
        return found, Freshness(
            ledger,
            found.last_entry,
            info.state,
            info.created_ms,
            znode_mtime_ms,
            max(0, found.last_entry - tail.last_add_confirmed),
            tail.stopped_by,
            found.skipped,
        )
    except DamageError as e:
        raise e.at(f"ledger {ledger}" + (f" {e.place}" if e.place else "")) from e


def _compression(info: LedgerInfo, ref: PulsarCursorRef) -> Compression | None:
    """Of the ledger's entries; also checks that the ledger is this cursor's. Ledgers of old
    versions carry no names.
    """
    custom = info.custom_metadata
    expected = {
        "pulsar/managed-ledger": names.managed_ledger_name(ref.topic),
        "pulsar/cursor": names.encode_name(ref.subscription),
    }
    for key, wanted in expected.items():
        told = custom.get(key, b"").decode(errors="replace")
        if told and told != wanted:
            raise PulsarFormatError(
                f"its {key} is {told!r}, not {wanted!r}: the znode names somebody else's ledger",
                f"ledger {info.ledger}",
            )
    if COMPRESSION_KEY not in custom:
        return None
    name = custom[COMPRESSION_KEY].decode(errors="replace")
    if name not in Compression.__members__:
        raise too_new(f"{COMPRESSION_KEY}={name!r}").at(f"ledger {info.ledger}")
    return Compression[name]


async def _tail(ledgers: LedgerStore, info: LedgerInfo) -> _Tail:
    if info.state is LedgerState.CLOSED:
        if info.last_entry < 0:
            return _Tail(-1, b"", -1, "")
        (payload,) = await _entries(
            ledgers, info.ledger, ReadRange(info.last_entry, info.last_entry)
        )
        return _Tail(info.last_entry, payload, info.last_entry, "")
    confirmed = (await ledgers.end_of(info.ledger)).last_add_confirmed
    newest, payload, stopped_by = -1, b"", ""
    async for chunk in ledgers.read(
        info.ledger, max(0, confirmed), unconfirmed=True, max_bytes=READ_BYTES
    ):
        confirmed, stopped_by = chunk.last_add_confirmed, chunk.stopped_by
        if chunk.payloads:
            newest, payload = chunk.first_entry + len(chunk.payloads) - 1, chunk.payloads[-1]
    return _Tail(newest, payload, confirmed, stopped_by)


async def _entries(ledgers: LedgerStore, ledger: int, wanted: ReadRange) -> list[bytes]:
    got: list[bytes] = []
    async for chunk in ledgers.read(
        ledger, wanted.first, wanted.last, unconfirmed=True, max_bytes=READ_BYTES
    ):
        got += chunk.payloads
    count = wanted.last - wanted.first + 1
    if len(got) != count:
        raise PulsarFormatError(
            f"only {len(got)} of the {count} entries from {wanted.first} on can be read",
            f"ledger {ledger}",
        )
    return got
