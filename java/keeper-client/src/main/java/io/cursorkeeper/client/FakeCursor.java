package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.AckBatch;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.acks.v1.LayoutRun;
import io.cursorkeeper.acks.v1.LedgerAcks;
import io.cursorkeeper.acks.v1.MarkDeleteProperties;
import io.cursorkeeper.acks.v1.OpenCursor;
import io.cursorkeeper.acks.v1.Opened;
import io.cursorkeeper.acks.v1.PartialAck;
import io.cursorkeeper.acks.v1.StateEnd;
import io.cursorkeeper.acks.v1.StatePart;
import io.cursorkeeper.acks.v1.StatePartial;
import io.cursorkeeper.acks.v1.StateSlice;
import io.cursorkeeper.client.KeeperException.Code;
import java.util.ArrayDeque;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import org.roaringbitmap.RoaringBitmap;

/**
 * One cursor of the fake keeper: what is durable, what is accepted, and what a batch is refused
 * for. Guarded by the keeper's monitor.
 */
final class FakeCursor {

  /** Becomes a Refused. */
  static final class Refusal extends RuntimeException {
    private static final long serialVersionUID = 1;
    final Code code;

    Refusal(Code code, String message) {
      super(message);
      this.code = code;
    }
  }

  /** Accepted, not durable. */
  record Pending(Object by, long seq, long bytes, Consumer<State> change) {}

  private record Batch(int size, BitSet missing) {}

  static final class State {
    Position markDelete;
    final TreeMap<Long, RoaringBitmap> acked = new TreeMap<>();
    private final TreeMap<Position, Batch> batches = new TreeMap<>();
    Map<String, Long> properties = Map.of();
    Map<String, String> cursorProperties = Map.of();
    final TreeMap<Long, DataLedger> layout = new TreeMap<>();

    void join(AckBatch batch) {
      for (LedgerAcks acks : batch.getLedgersList()) {
        RoaringBitmap known =
            acked.computeIfAbsent(acks.getLedgerId(), none -> new RoaringBitmap());
        known.or(ackedOf(acks));
        for (PartialAck each : acks.getPartialList()) {
          Position at = new Position(acks.getLedgerId(), Integer.toUnsignedLong(each.getEntry()));
          Batch told = batchOf(each);
          Batch before = batches.get(at);
          if (before != null) {
            told.missing.and(before.missing);
            told = new Batch(Math.max(told.size, before.size), told.missing);
          }
          batches.put(at, told);
          if (told.missing.isEmpty()) {
            known.add(each.getEntry());
          }
        }
      }
      if (batch.hasMarkDelete() && Wire.position(batch.getMarkDelete()).compareTo(markDelete) > 0) {
        markDelete = Wire.position(batch.getMarkDelete());
      }
      if (batch.hasProperties()) {
        properties = batch.getProperties().getValuesMap();
      }
      acked.headMap(markDelete.ledger()).clear();
      layout.headMap(markDelete.ledger()).clear();
      if (markDelete.entry() >= 0 && acked.containsKey(markDelete.ledger())) {
        acked.get(markDelete.ledger()).remove(0L, markDelete.entry() + 1);
      }
      batches.headMap(markDelete, true).clear();
      batches
          .keySet()
          .removeIf(
              at ->
                  acked.containsKey(at.ledger())
                      && acked.get(at.ledger()).contains((int) at.entry()));
    }

    void reset(Position target) {
      markDelete = target;
      acked.clear();
      batches.clear();
      properties = Map.of();
      if (layout.containsKey(target.ledger())) {
        layout.headMap(target.ledger()).clear();
      } else {
        layout.clear(); // there would be a gap
      }
    }
  }

  final String name;
  final State durable = new State();
  final ArrayDeque<Pending> pending = new ArrayDeque<>();
  long epoch;
  int generation = 1;

  FakeCursor(String name, OpenCursor open) {
    this.name = name;
    long first = open.getLayout().getIdsCount() > 0 ? open.getLayout().getIds(0) : 0;
    durable.markDelete = open.hasStart() ? Wire.position(open.getStart()) : new Position(first, -1);
    durable.cursorProperties = open.getCursorPropertiesMap();
  }

  void takeLayout(LayoutRun run) {
    for (DataLedger each : Wire.layout(run)) {
      DataLedger known = durable.layout.get(each.ledger());
      boolean isClosed = each.state() == DataLedger.State.CLOSED;
      if (known != null
          && isClosed
          && known.state() == DataLedger.State.CLOSED
          && known.entries() != each.entries()) {
        String text =
            "ledger "
                + each.ledger()
                + " had "
                + known.entries()
                + " entries, now "
                + each.entries();
        throw new Refusal(Code.LAYOUT_CONTRADICTS, text);
      }
      if (known == null || each.state() != DataLedger.State.OPEN) {
        durable.layout.put(each.ledger(), each);
      }
    }
  }

  /** Throws what the batch is refused for; changes nothing. */
  void check(AckBatch batch) {
    if (batch.hasMarkDelete() && batch.getMarkDelete().getEntry() < -1) {
      throw new Refusal(
          Code.POSITION_OUT_OF_RANGE, "mark-delete entry " + batch.getMarkDelete().getEntry());
    }
    for (LedgerAcks acks : batch.getLedgersList()) {
      RoaringBitmap acked = ackedOf(acks);
      DataLedger item = durable.layout.get(acks.getLedgerId());
      if (item != null
          && item.state() == DataLedger.State.CLOSED
          && !acked.isEmpty()
          && Integer.toUnsignedLong(acked.last()) >= item.entries()) {
        throw new Refusal(
            Code.POSITION_OUT_OF_RANGE,
            "entry " + Integer.toUnsignedLong(acked.last()) + " of ledger " + item);
      }
      for (PartialAck each : acks.getPartialList()) {
        Batch told = batchOf(each);
        Batch known =
            durable.batches.get(
                new Position(acks.getLedgerId(), Integer.toUnsignedLong(each.getEntry())));
        if (known != null && told.size > 0 && known.size > 0 && told.size != known.size) {
          throw new Refusal(
              Code.BATCH_CONTRADICTS, "a batch of " + known.size + ", now " + told.size);
        }
      }
    }
  }

  /** Throws what a reset is refused for. */
  void checkTarget(Position target) {
    DataLedger item = durable.layout.get(target.ledger());
    boolean isBeyond =
        item == null && !durable.layout.isEmpty() && target.ledger() > durable.layout.lastKey();
    if (isBeyond
        || (item != null
            && item.state() == DataLedger.State.CLOSED
            && target.entry() >= item.entries())) {
      throw new Refusal(Code.POSITION_OUT_OF_RANGE, "reset target " + target + " does not exist");
    }
  }

  /** What is durable: Opened, one part, StateEnd. */
  List<KeeperMessage> recovered(int handle, boolean created) {
    StatePart.Builder part = StatePart.newBuilder().setHandle(handle);
    durable.acked.forEach(
        (ledger, acked) -> {
          if (!acked.isEmpty()) {
            RoaringBitmap holes = acked.clone();
            holes.flip(0L, Integer.toUnsignedLong(acked.last()) + 1);
            part.addSlices(
                StateSlice.newBuilder()
                    .setLedgerId(ledger)
                    .setFirst(0)
                    .setLast(acked.last())
                    .setHoles(true)
                    .setRoaring(Wire.roaring(holes)));
          }
        });
    durable.batches.forEach(
        (at, batch) -> {
          StatePartial.Builder partial =
              StatePartial.newBuilder()
                  .setLedgerId(at.ledger())
                  .setEntry((int) at.entry())
                  .setBatchSize(batch.size);
          for (long word : batch.missing.toLongArray()) {
            partial.addAckSet(word);
          }
          part.addPartials(partial);
        });
    return List.of(
        KeeperMessage.newBuilder()
            .setOpened(
                Opened.newBuilder()
                    .setHandle(handle)
                    .setEpoch(epoch)
                    .setGeneration(generation)
                    .setCreated(created)
                    .setMarkDelete(Wire.position(durable.markDelete)))
            .build(),
        KeeperMessage.newBuilder().setStatePart(part).build(),
        KeeperMessage.newBuilder()
            .setStateEnd(
                StateEnd.newBuilder()
                    .setHandle(handle)
                    .setMarkDelete(Wire.position(durable.markDelete))
                    .setMarkDeleteProperties(
                        MarkDeleteProperties.newBuilder().putAllValues(durable.properties))
                    .setCursorProperties(Wire.properties(durable.cursorProperties))
                    .setLayout(Wire.layout(durable.layout.values()))
                    .setAckedEntries(
                        durable.acked.values().stream()
                            .mapToLong(RoaringBitmap::getLongCardinality)
                            .sum())
                    .setPartialBatches(durable.batches.size()))
            .build());
  }

  private static RoaringBitmap ackedOf(LedgerAcks acks) {
    RoaringBitmap acked = Wire.bitmap(acks.getRoaring());
    acks.getEntriesList().forEach(acked::add);
    for (int at = 0; at + 1 < acks.getRangesCount(); at += 2) {
      acked.add(
          Integer.toUnsignedLong(acks.getRanges(at)),
          Integer.toUnsignedLong(acks.getRanges(at + 1)) + 1);
    }
    return acked;
  }

  private static Batch batchOf(PartialAck told) {
    long[] words = told.getAckSetList().stream().mapToLong(Long::longValue).toArray();
    BitSet missing = BitSet.valueOf(words);
    if (missing.isEmpty()) {
      throw new Refusal(Code.BAD_MESSAGE, "entry " + told.getEntry() + ": nothing is missing");
    }
    if (told.getBatchSize() > 0 && missing.length() > told.getBatchSize()) {
      throw new Refusal(
          Code.BATCH_CONTRADICTS,
          "index " + (missing.length() - 1) + " of a batch of " + told.getBatchSize());
    }
    return new Batch(told.getBatchSize(), missing);
  }
}
