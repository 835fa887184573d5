package io.cursorkeeper.pulsar;

import io.cursorkeeper.client.CursorState;
import io.cursorkeeper.client.Position;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * What somebody holds of a cursor at one instant, as plain sets. Pure; nobody changes it once it is
 * made.
 *
 * @param acked entries above mark-delete, by data ledger
 * @param left of batches that are partly acked: which indexes are not
 */
public record Picture(
    Position markDelete,
    NavigableMap<Long, BitSet> acked,
    Map<Position, BitSet> left,
    Map<String, Long> properties) {

  public static Picture of(CursorState state) {
    NavigableMap<Long, BitSet> acked = new TreeMap<>();
    state
        .acked()
        .forEach(
            (ledger, entries) -> {
              BitSet bits = new BitSet();
              entries.forEachRange((first, last) -> bits.set((int) first, (int) last + 1));
              acked.put(ledger, bits);
            });
    Map<Position, BitSet> left = new HashMap<>();
    state
        .partials()
        .forEach(
            each ->
                left.put(new Position(each.ledger(), each.entry()), BitSet.valueOf(each.ackSet())));
    return new Picture(state.markDelete(), acked, left, state.markDeleteProperties());
  }

  public boolean isAcked(Position entry) {
    BitSet bits = acked.get(entry.ledger());
    return entry.compareTo(markDelete) <= 0 || (bits != null && bits.get((int) entry.entry()));
  }

  /** All acked entries of a data ledger that has so many. */
  BitSet of(long ledger, long entries) {
    BitSet all = new BitSet();
    BitSet known = acked.get(ledger);
    if (known != null) {
      all.or(known);
    }
    if (ledger < markDelete.ledger()) {
      all.set(0, (int) entries);
    } else if (ledger == markDelete.ledger()) {
      all.set(0, (int) markDelete.entry() + 1);
    }
    return all;
  }

  /**
   * So many entries are acked here and not there.
   *
   * @param ledgers the topic's data ledgers, with their entries
   */
  public long beyond(Picture there, NavigableMap<Long, Long> ledgers) {
    long count = 0;
    for (Map.Entry<Long, Long> each :
        ledgers
            .tailMap(Math.min(markDelete.ledger(), there.markDelete.ledger()), true)
            .entrySet()) {
      BitSet here = of(each.getKey(), each.getValue());
      here.andNot(there.of(each.getKey(), each.getValue()));
      count += here.cardinality();
    }
    return count;
  }
}
