package io.cursorkeeper.client;

import java.util.List;
import java.util.Map;
import java.util.SortedMap;

/**
 * What the keeper holds of a cursor at an opening; all of it is durable. Nothing may be dispatched
 * before it is here.
 *
 * @param epoch grows with every owner of the cursor
 * @param generation grows with every reset
 * @param created whether this opening made the cursor. A keeper that does not tell says false
 * @param acked acked entries above mark-delete, by data ledger
 * @param partials batches that are partly acked, ascending
 * @param layout the data ledgers that the keeper knows, ascending; those that are TRIMMED count as
 *     wholly acked
 * @param ackedEntries above mark-delete
 * @param holes entries that are not acked below the highest known one of their ledger
 */
public record CursorState(
    long epoch,
    int generation,
    boolean created,
    Position markDelete,
    Map<String, Long> markDeleteProperties,
    Map<String, String> cursorProperties,
    SortedMap<Long, AckedEntries> acked,
    List<PartialBatch> partials,
    List<DataLedger> layout,
    long ackedEntries,
    long holes) {

  /** Whether the whole entry is acked. */
  public boolean isAcked(long ledger, long entry) {
    if (markDelete.compareTo(new Position(ledger, entry)) >= 0) {
      return true;
    }
    AckedEntries entries = acked.get(ledger);
    return (entries != null && entries.contains(entry))
        || layout.stream()
            .anyMatch(each -> each.ledger() == ledger && each.state() == DataLedger.State.TRIMMED);
  }
}
