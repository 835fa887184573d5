package io.cursorkeeper.client;

/**
 * An entry of a data ledger. Entry -1 = before the first one: legal for mark-delete, start and the
 * target of a reset only.
 */
public record Position(long ledger, long entry) implements Comparable<Position> {

  @Override
  public int compareTo(Position other) {
    int byLedger = Long.compare(ledger, other.ledger);
    return byLedger != 0 ? byLedger : Long.compare(entry, other.entry);
  }

  @Override
  public String toString() {
    return ledger + ":" + entry;
  }
}
