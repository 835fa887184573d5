package io.cursorkeeper.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.roaringbitmap.RoaringBitmap;

/**
 * Acks, joined: entries by union, partly acked batches by intersection of what is un-acked,
 * mark-delete by maximum; acked wins over partly acked. Of one thread at a time; knows neither
 * stream nor cursor.
 *
 * <p>Invariants: no entry of {@code ledgers} is at or below {@code markDelete}; no batch's entry is
 * acked; no ledger is empty.
 */
final class AckSet {

  /**
   * What one data ledger takes beside its entries and batches, and one batch beside its words:
   * about.
   */
  private static final int LEDGER_BYTES = 128;

  private static final int BATCH_BYTES = 96;
  private static final int CONTAINER_BYTES = 8_208;
  private static final int ENTRY_BYTES = 2;
  private static final int CONTAINER_ENTRIES = 1 << 16;

  /** One data ledger. */
  static final class Ledger {
    RoaringBitmap acked = new RoaringBitmap();
    final TreeMap<Integer, PartialBatch> batches = new TreeMap<>(Integer::compareUnsigned);
    private long ackedBytes;
    private long batchBytes;

    /** As counted in the bytes of the whole. */
    private long bytes;

    boolean isEmpty() {
      return acked.isEmpty() && batches.isEmpty();
    }

    private void add(long first, long last) {
      if (first == last) {
        if (acked.checkedAdd((int) first)) {
          ackedBytes += ENTRY_BYTES;
        }
      } else {
        acked.add(first, last + 1);
        ackedBytes += ENTRY_BYTES * (last + 1 - first);
      }
      if (!batches.isEmpty()) {
        forget(batches.subMap((int) first, true, (int) last, true));
      }
    }

    private void add(PartialBatch batch) {
      int entry = (int) batch.entry();
      if (acked.contains(entry)) {
        return;
      }
      PartialBatch known = batches.get(entry);
      PartialBatch joined = known == null ? batch : join(known, batch);
      if (joined == null) {
        add(batch.entry(), batch.entry());
        return;
      }
      batches.put(entry, joined);
      batchBytes += sizeOf(joined) - (known == null ? 0 : sizeOf(known));
    }

    private void forget(Map<Integer, PartialBatch> some) {
      for (PartialBatch each : some.values()) {
        batchBytes -= sizeOf(each);
      }
      some.clear();
    }

    private void forgetUpTo(long entry) {
      if (entry >= 0) {
        acked.remove(0L, Math.min(entry, Acks.ENTRY_MAX) + 1);
        forget(batches.headMap((int) Math.min(entry, Acks.ENTRY_MAX), true));
      }
    }

    /** A bound by containers, whatever was said how often. */
    private long estimate() {
      if (acked.isEmpty()) {
        ackedBytes = 0;
      } else {
        long span =
            (Integer.toUnsignedLong(acked.last()) >>> 16)
                - (Integer.toUnsignedLong(acked.first()) >>> 16)
                + 1;
        ackedBytes = Math.min(ackedBytes, span * CONTAINER_BYTES);
      }
      return LEDGER_BYTES + ackedBytes + batchBytes;
    }
  }

  final TreeMap<Long, Ledger> ledgers = new TreeMap<>();
  Position markDelete;

  /** Null: unchanged. */
  Map<String, Long> properties;

  private long bytes;

  /** About. */
  long bytes() {
    return bytes;
  }

  boolean isEmpty() {
    return ledgers.isEmpty() && markDelete == null && properties == null;
  }

  void clear() {
    ledgers.clear();
    markDelete = null;
    setProperties(null);
    bytes = 0;
  }

  void join(Acks acks) {
    if (acks.markDelete != null) {
      raise(acks.markDelete);
    }
    if (acks.properties != null) {
      setProperties(acks.properties);
    }
    for (int at = 0; at < acks.used; at += 3) {
      join(acks.ranges[at], acks.ranges[at + 1], acks.ranges[at + 2]);
    }
    for (PartialBatch each : acks.batches) {
      join(each);
    }
  }

  /** Adds what came later; takes its parts for its own. */
  void join(AckSet later) {
    if (later.markDelete != null) {
      raise(later.markDelete);
    }
    if (later.properties != null) {
      setProperties(later.properties);
    }
    later.ledgers.forEach(
        (id, theirs) -> {
          Ledger ours = ledgers.get(id);
          if (ours == null && (markDelete == null || id > markDelete.ledger())) {
            ledgers.put(id, theirs);
            bytes += theirs.bytes;
            return;
          }
          theirs.batches.values().forEach(this::join);
          if (theirs.acked.isEmpty() || (markDelete != null && id < markDelete.ledger())) {
            return;
          }
          if (ours == null) {
            ours = ledgers.computeIfAbsent(id, none -> new Ledger());
          }
          ours.acked.or(theirs.acked);
          ours.ackedBytes += theirs.ackedBytes;
          RoaringBitmap acked = ours.acked;
          List<Integer> whole = new ArrayList<>();
          for (int entry : ours.batches.keySet()) {
            if (acked.contains(entry)) {
              whole.add(entry);
            }
          }
          for (int entry : whole) {
            ours.batchBytes -= sizeOf(ours.batches.remove(entry));
          }
          if (markDelete != null && id == markDelete.ledger()) {
            ours.forgetUpTo(markDelete.entry());
          }
          count(id, ours);
        });
  }

  private void join(long id, long first, long last) {
    if (markDelete != null) {
      if (id < markDelete.ledger()) {
        return;
      }
      if (id == markDelete.ledger()) {
        first = Math.max(first, markDelete.entry() + 1);
        if (first > last) {
          return;
        }
      }
    }
    Ledger ledger = ledgers.computeIfAbsent(id, none -> new Ledger());
    ledger.add(first, last);
    count(id, ledger);
  }

  private void join(PartialBatch batch) {
    long id = batch.ledger();
    if (markDelete != null && markDelete.compareTo(new Position(id, batch.entry())) >= 0) {
      return;
    }
    Ledger ledger = ledgers.computeIfAbsent(id, none -> new Ledger());
    ledger.add(batch);
    count(id, ledger);
  }

  private void raise(Position position) {
    if (markDelete != null && markDelete.compareTo(position) >= 0) {
      return;
    }
    markDelete = position;
    Map<Long, Ledger> below = ledgers.headMap(position.ledger());
    for (Ledger each : below.values()) {
      bytes -= each.bytes;
    }
    below.clear();
    Ledger same = ledgers.get(position.ledger());
    if (same != null) {
      same.forgetUpTo(position.entry());
      count(position.ledger(), same);
    }
  }

  private void count(long id, Ledger ledger) {
    long now = ledger.isEmpty() ? 0 : ledger.estimate();
    bytes += now - ledger.bytes;
    ledger.bytes = now;
    if (ledger.isEmpty()) {
      ledgers.remove(id);
    }
  }

  private void setProperties(Map<String, Long> values) {
    bytes += sizeOf(values) - sizeOf(properties);
    properties = values;
  }

  /** What one message may hold. One that is {@code alone} may hold properties of any size. */
  record Room(int bytes, int ledgers, int batches, long parts, boolean alone) {}

  /**
   * Takes a piece that fits, from the lowest ledger up; mark-delete and properties with the last
   * one. Empty if nothing fits. What a piece is counted with is at least what {@link Wire#acks}
   * makes of it.
   */
  AckSet take(Room room) {
    AckSet piece = new AckSet();
    long left = room.bytes;
    long parts = room.parts;
    int batches = room.batches;
    while (!ledgers.isEmpty()) {
      Map.Entry<Long, Ledger> first = ledgers.firstEntry();
      if (piece.ledgers.size() >= room.ledgers || parts < 1 || left < Wire.LEDGER_BYTES_MAX) {
        break;
      }
      Ledger from = first.getValue();
      Ledger to = new Ledger();
      long used = Wire.LEDGER_BYTES_MAX + moveEntries(from, to, left - Wire.LEDGER_BYTES_MAX);
      long counted = 1;
      while (from.acked.isEmpty() && !from.batches.isEmpty()) {
        PartialBatch next = from.batches.firstEntry().getValue();
        int size = Wire.bytesMax(next);
        int count = Wire.parts(next);
        if (used + size > left || counted + count > parts || count > batches) {
          break;
        }
        from.batches.pollFirstEntry();
        to.batches.put((int) next.entry(), next);
        to.batchBytes += sizeOf(next);
        used += size;
        counted += count;
        batches -= count;
      }
      if (to.isEmpty()) {
        break;
      }
      from.batchBytes -= to.batchBytes;
      piece.ledgers.put(first.getKey(), to);
      piece.count(first.getKey(), to);
      count(first.getKey(), from);
      left -= used;
      parts -= counted;
      if (!from.isEmpty()) {
        break;
      }
    }
    if (ledgers.isEmpty() && (markDelete != null || properties != null)) {
      boolean isAlone = room.alone && piece.ledgers.isEmpty();
      if (isAlone || Wire.bytesMax(properties) + Wire.POSITION_BYTES_MAX <= left) {
        piece.markDelete = markDelete;
        piece.setProperties(properties);
        markDelete = null;
        setProperties(null);
      }
    }
    return piece;
  }

  /** Returns the bytes that what was moved takes in a message, at most. */
  private static long moveEntries(Ledger from, Ledger to, long bytesMax) {
    if (from.acked.isEmpty()) {
      return 0;
    }
    from.acked.runOptimize();
    long whole = Wire.bytesMax(from.acked);
    if (whole <= bytesMax) {
      to.acked = from.acked;
      to.ackedBytes = from.ackedBytes;
      from.acked = new RoaringBitmap();
      return whole;
    }
    long used = 0;
    while (!from.acked.isEmpty()) {
      long start = Integer.toUnsignedLong(from.acked.first()) & -CONTAINER_ENTRIES;
      RoaringBitmap container = from.acked.selectRange(start, start + CONTAINER_ENTRIES);
      long size = Wire.bytesMax(container);
      if (used + size > bytesMax) {
        break;
      }
      to.acked.or(container);
      to.ackedBytes += size;
      from.acked.remove(start, start + CONTAINER_ENTRIES);
      used += size;
    }
    return used;
  }

  /** Data ledgers and partly acked batches, as the keeper counts them. */
  int parts() {
    int parts = ledgers.size();
    for (Ledger each : ledgers.values()) {
      for (PartialBatch batch : each.batches.values()) {
        parts += Wire.parts(batch);
      }
    }
    return parts;
  }

  private static long sizeOf(PartialBatch batch) {
    return BATCH_BYTES + 8L * batch.ackSet().length;
  }

  private static long sizeOf(Map<String, Long> properties) {
    return properties == null ? 0 : 128L * properties.size();
  }

  /** What is un-acked in both; null: nothing. */
  private static PartialBatch join(PartialBatch one, PartialBatch other) {
    int words = Math.min(one.ackSet().length, other.ackSet().length);
    long[] both = new long[words];
    int used = 0;
    for (int at = 0; at < words; at++) {
      both[at] = one.ackSet()[at] & other.ackSet()[at];
      if (both[at] != 0) {
        used = at + 1;
      }
    }
    if (used == 0) {
      return null;
    }
    int size = Math.max(one.batchSize(), other.batchSize());
    return new PartialBatch(
        one.ledger(), one.entry(), size, used == words ? both : Arrays.copyOf(both, used));
  }
}
