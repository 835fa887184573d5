package org.apache.bookkeeper.mledger.impl;

import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;

/**
 * Serves cursors: which entries a topic has. Pulsar takes an ack of any position up to the last
 * entry, and keeps it, also where there is none: beyond the end of a closed ledger, in a ledger of
 * another topic. The keeper takes no such ack, and nobody misses it, since nothing of it can be
 * delivered.
 */
final class KeptEntries {

  /** Takes entries of one ledger, the last one included. */
  interface Ranges {
    void range(long ledger, long first, long last);
  }

  private KeptEntries() {}

  /**
   * The last entry of one of the topic's ledgers; -1: it has none yet, or the topic has no such
   * ledger.
   */
  static long last(ManagedLedgerImpl topic, long ledger) {
    Position end = topic.lastConfirmedEntry;
    var info = topic.ledgers.get(ledger);
    if (info == null || ledger > end.getLedgerId()) {
      return -1;
    }
    return ledger == end.getLedgerId() ? end.getEntryId() : info.getEntries() - 1;
  }

  /** Whether the topic has such an entry. */
  static boolean exists(ManagedLedgerImpl topic, Position entry) {
    return entry.getEntryId() >= 0 && entry.getEntryId() <= last(topic, entry.getLedgerId());
  }

  /** The same mark-delete, said by an entry that the topic has; or in front of its first one. */
  static Position markDelete(ManagedLedgerImpl topic, Position position) {
    Long at = topic.ledgers.floorKey(position.getLedgerId());
    if (at == null) {
      return position;
    }
    long last = last(topic, at);
    return at == position.getLedgerId() && position.getEntryId() <= last
        ? position
        : PositionFactory.create(at, last);
  }

  /** The entries behind {@code after}, up to {@code to}, that the topic has. */
  static void between(ManagedLedgerImpl topic, Position after, Position to, Ranges each) {
    for (long ledger :
        topic.ledgers.subMap(after.getLedgerId(), true, to.getLedgerId(), true).keySet()) {
      long first = ledger == after.getLedgerId() ? after.getEntryId() + 1 : 0;
      long last = last(topic, ledger);
      last = ledger == to.getLedgerId() ? Math.min(last, to.getEntryId()) : last;
      if (last >= first) {
        each.range(ledger, first, last);
      }
    }
  }
}
