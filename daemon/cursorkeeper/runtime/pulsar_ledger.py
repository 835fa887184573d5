"""Reading one cursor ledger that holds whole states in Pulsar's form: whose it is, and the newest
complete state.

Owns what is asked of the ledger's custom metadata before an entry is believed. Does not own the
reads and their retries (`chain`), nor which entries make a state (`format.pulsar.chunks`).
Invariant: damage is an error, never an older state; only a state that was never complete, so never
confirmed, is stepped over, and it is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from cursorkeeper.core.errors import DamageError, TooNewError
from cursorkeeper.core.footer import FORMAT_PULSAR, Footer, PulsarBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.shape import frozen
from cursorkeeper.core.values import Delta, Stamp
from cursorkeeper.format.footer import pulsar_state
from cursorkeeper.format.pulsar import chunks
from cursorkeeper.format.pulsar.chunks import Found, Reading
from cursorkeeper.format.pulsar.states import delta_of
from cursorkeeper.format.pulsar.values import Compression
from cursorkeeper.format.whole_state import ENTRY_BYTES_KEY, STATE_BYTES_MAX

Entries = Callable[[int, int], Awaitable[list[bytes]]]
"""first, last (inclusive) -> their bytes. Raises DamageError for one that BookKeeper itself does
not trust.
"""


@frozen
class Written:
    """What the custom metadata says of a ledger's entries."""

    epoch: int
    generation: int
    max_entry_bytes: int
    compression: Compression | None

    def newest_state(self, last_entry: int) -> Reading:
        """Asks for entries up to `last_entry`, see `format.pulsar.chunks`."""
        return chunks.newest_state(
            last_entry,
            compression=self.compression,
            max_entry_bytes=self.max_entry_bytes,
            limit_bytes=STATE_BYTES_MAX,
        )


def written_by(metadata: Mapping[str, bytes], name: CursorName) -> Written:
    """Raises DamageError (another cursor, another format, no numbers), TooNewError (a codec this
    version does not know).
    """
    if metadata.get("cursor") != name.canonical.encode():
        raise DamageError(
            f"belongs to {metadata.get('cursor', b'nobody').decode(errors='replace')}, not to "
            f"{name.canonical}"
        )
    form = metadata.get("format", b"").decode(errors="replace")
    if form != FORMAT_PULSAR:
        raise DamageError(f"is of format {form!r}, the footer says {FORMAT_PULSAR!r}")
    try:
        epoch, generation, size = (
            int(metadata[key]) for key in ("epoch", "generation", ENTRY_BYTES_KEY)
        )
    except (KeyError, ValueError):
        raise DamageError(
            f"its custom metadata lacks epoch, generation or {ENTRY_BYTES_KEY}"
        ) from None
    codec = metadata.get(chunks.COMPRESSION_KEY)
    if codec is not None and codec.decode(errors="replace") not in Compression.__members__:
        raise TooNewError(
            f"is compressed with {codec.decode(errors='replace')}: upgrade this program"
        )
    return Written(epoch, generation, size, None if codec is None else Compression[codec.decode()])


async def read_newest(last_entry: int, written: Written, entries: Entries) -> Found:
    """The newest complete state of a ledger that ends with `last_entry`. Raises DamageError,
    TooNewError.
    """
    asking = written.newest_state(last_entry)
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(await entries(wanted.first, wanted.last))
    except StopIteration as done:
        found: Found = done.value
    if found.info.crossing:
        raise DamageError("holds ranges across data ledgers, which this software never writes")
    return found


def check_owner(written: Written, footer: Footer) -> None:
    """Raises DamageError: a ledger of a later owner, or of another generation, is none that this
    footer can name.
    """
    if written.epoch > footer.epoch:
        raise DamageError(f"is of epoch {written.epoch}, the footer of {footer.epoch}")
    if written.generation != footer.generation:
        raise DamageError(
            f"is of generation {written.generation}, the footer of {footer.generation}"
        )


def delta_of_base(base: PulsarBase) -> Delta:
    """A state in the footer as something that joins."""
    return delta_of(pulsar_state(base), Stamp(base.epoch, 0))
