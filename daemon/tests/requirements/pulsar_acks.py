"""CommandAck as Pulsar's client sends it, handed to the ack stream as a broker's plugin would hand
it on.

Owns the bit rule on the sending side (PULSAR's `ack_set`: words of a BitSet over the batch, 1 = NOT
acknowledged, trailing zero words trimmed, empty = the whole entry) and its translation. Goes
through real messages and the daemon's own codec.
"""

from __future__ import annotations

from collections.abc import Iterable

from cursorkeeper.core.batch import AckBatch
from cursorkeeper.stream import codec
from cursorkeeper_client._proto import acks_pb2 as pb

Entry = tuple[int, int]
WORD_BITS = 64


def ack_set(batch_size: int, acked: Iterable[int]) -> list[int]:
    """The words a client sends: bits 0 to batch_size - 1 set, the acknowledged ones cleared."""
    bits = (1 << batch_size) - 1
    for index in acked:
        bits &= ~(1 << index)
    words = []
    while bits:
        words.append(bits & ((1 << WORD_BITS) - 1))
        bits >>= WORD_BITS
    return words


def individual(
    seq: int, at: Entry, words: list[int], batch_size: int, generation: int = 1
) -> AckBatch:
    """AckType.Individual with one message id; `batch_size` 0: the command did not say."""
    ledger = pb.LedgerAcks(ledger_id=at[0])
    _put(ledger, at[1], words, batch_size)
    return _read(pb.AckBatch(seq=seq, generation=generation, ledgers=[ledger]))


def cumulative(
    seq: int, at: Entry, words: list[int], batch_size: int, generation: int = 1
) -> AckBatch:
    """AckType.Cumulative: up to this entry, or (inside a batch) up to the entry before it and a
    part of this one.
    """
    message = pb.AckBatch(seq=seq, generation=generation)
    message.mark_delete.ledger, message.mark_delete.entry = at[0], at[1] - 1 if words else at[1]
    if words:
        ledger = message.ledgers.add(ledger_id=at[0])
        _put(ledger, at[1], words, batch_size)
    return _read(message)


def _read(message: pb.AckBatch) -> AckBatch:
    data = message.SerializeToString()
    return codec.batch_of(codec.sent_acks(data), data)


def _put(ledger: pb.LedgerAcks, entry: int, words: list[int], batch_size: int) -> None:
    if words:
        ledger.partial.add(entry=entry, batch_size=batch_size, ack_set=words)
    else:
        ledger.entries.append(entry)
