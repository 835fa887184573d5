package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.DataLedger;
import io.cursorkeeper.client.KeptCursor;
import io.cursorkeeper.pulsar.Layouts;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * Which of a topic's data ledgers the keeper was told of, for one cursor, or told of. It may have
 * forgotten those below mark-delete; the link has not. Whoever has it guards it.
 */
final class KeptLayout {

  private final ManagedLedgerImpl topic;
  private final NavigableMap<Long, DataLedger> told = new TreeMap<>();

  KeptLayout(ManagedLedgerImpl topic) {
    this.topic = topic;
  }

  /** Entries of a topic's data ledgers by id; 0: it is written now. */
  static NavigableMap<Long, Long> entries(ManagedLedgerImpl topic) {
    NavigableMap<Long, Long> entries = new TreeMap<>();
    topic.ledgers.forEach(
        (id, info) -> entries.put(id, info.hasEntries() ? info.getEntries() : 0L));
    return entries;
  }

  /** The keeper knows these. */
  void begin(List<DataLedger> known) {
    told.clear();
    known.forEach(each -> told.put(each.ledger(), each));
  }

  /** Before acks of a data ledger that the keeper does not know. */
  void tellNew(KeptCursor keeper, long highest, long markDelete) {
    if (told.isEmpty()) {
      tellAll(keeper, markDelete);
    } else if (highest > told.lastKey()) {
      tell(keeper, List.of(told.lastEntry().getValue()), told.lastKey());
    }
  }

  /**
   * @param from ledgers below it are of no interest
   */
  void tellAll(KeptCursor keeper, long from) {
    tell(keeper, List.copyOf(told.values()), from);
  }

  private void tell(KeptCursor keeper, List<DataLedger> known, long from) {
    NavigableMap<Long, Long> entries = entries(topic);
    long open = entries.isEmpty() || entries.lastEntry().getValue() > 0 ? -1 : entries.lastKey();
    List<DataLedger> run = Layouts.run(known, entries, open, from);
    if (!run.isEmpty() && !run.equals(known)) {
      run.forEach(each -> told.put(each.ledger(), each));
      keeper.layout(run);
    }
  }
}
