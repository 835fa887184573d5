package io.cursorkeeper.reader;

import java.util.Comparator;
import java.util.List;

/** An entry of a data ledger; entry -1 stands before the first one. */
record Position(long ledger, long entry) implements Comparable<Position> {
  @Override
  public int compareTo(Position other) {
    return Comparator.comparingLong(Position::ledger)
        .thenComparingLong(Position::entry)
        .compare(this, other);
  }

  List<Long> told() {
    return List.of(ledger, entry);
  }
}
