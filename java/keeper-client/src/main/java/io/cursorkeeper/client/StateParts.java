package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.Opened;
import io.cursorkeeper.acks.v1.StateEnd;
import io.cursorkeeper.acks.v1.StatePart;
import io.cursorkeeper.acks.v1.StatePartial;
import io.cursorkeeper.acks.v1.StateSlice;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.roaringbitmap.RoaringBitmap;

/**
 * The state that comes between Opened and StateEnd, joined: parts only add, and acked wins over
 * partly acked. Of one thread.
 */
final class StateParts {

  private final Opened opened;
  private final TreeMap<Long, RoaringBitmap> acked = new TreeMap<>();
  private final TreeMap<Position, PartialBatch> batches = new TreeMap<>();

  StateParts(Opened opened) {
    this.opened = opened;
  }

  /** IllegalArgumentException if it cannot be read. */
  void add(StatePart part) {
    for (StateSlice slice : part.getSlicesList()) {
      RoaringBitmap told = Wire.bitmap(slice.getRoaring());
      if (slice.getHoles()) {
        told.flip(
            Integer.toUnsignedLong(slice.getFirst()), Integer.toUnsignedLong(slice.getLast()) + 1);
      }
      RoaringBitmap known = acked.get(slice.getLedgerId());
      if (known == null) {
        acked.put(slice.getLedgerId(), told);
      } else {
        known.or(told);
      }
    }
    for (StatePartial each : part.getPartialsList()) {
      long entry = Integer.toUnsignedLong(each.getEntry());
      long[] words = each.getAckSetList().stream().mapToLong(Long::longValue).toArray();
      batches.put(
          new Position(each.getLedgerId(), entry),
          new PartialBatch(each.getLedgerId(), entry, each.getBatchSize(), words));
    }
  }

  CursorState end(StateEnd end) {
    Position markDelete = Wire.position(end.getMarkDelete());
    acked.headMap(markDelete.ledger()).clear();
    if (markDelete.entry() >= 0 && acked.containsKey(markDelete.ledger())) {
      acked.get(markDelete.ledger()).remove(0L, markDelete.entry() + 1);
    }
    acked.values().removeIf(RoaringBitmap::isEmpty);
    TreeMap<Long, AckedEntries> entries = new TreeMap<>();
    acked.forEach(
        (ledger, bitmap) -> {
          bitmap.runOptimize();
          entries.put(ledger, new AckedEntries(bitmap));
        });
    batches.headMap(markDelete, true).clear();
    batches
        .values()
        .removeIf(
            each ->
                acked.containsKey(each.ledger())
                    && acked.get(each.ledger()).contains((int) each.entry()));
    return new CursorState(
        opened.getEpoch(),
        opened.getGeneration(),
        opened.getCreated(),
        markDelete,
        Map.copyOf(end.getMarkDeleteProperties().getValuesMap()),
        Map.copyOf(end.getCursorProperties().getValuesMap()),
        Collections.unmodifiableSortedMap(entries),
        List.copyOf(batches.values()),
        Wire.layout(end.getLayout()),
        end.getAckedEntries(),
        end.getHoles());
  }
}
