package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.Position;
import io.cursorkeeper.pulsar.Imprint;
import io.cursorkeeper.pulsar.Picture;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.AsyncCallbacks.CloseCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ResetCursorCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.commons.lang3.tuple.Pair;

/**
 * Serves the broker: a durable cursor that Pulsar keeps, and whose changes its copy at the keeper
 * follows. Pulsar's own code recovers, changes, writes and answers; what happened is told to the
 * copy afterwards, which waits for nobody and never fails.
 */
final class ShadowedManagedCursor extends ManagedCursorImpl {

  private final ShadowedLedger topic;
  private final ShadowedCopy copy;

  /** Shared with whoever else only reads. */
  private final Lock memory;

  /** Whether Pulsar's own recovery is running: it may call `initialize`. */
  private volatile boolean recovering;

  /** As Pulsar's recovery found it. */
  private volatile CompletableFuture<Imprint.Znode> znode = new CompletableFuture<>();

  ShadowedManagedCursor(BookKeeper bookKeeper, ShadowedLedger ledger, String name) {
    super(bookKeeper, ledger, name);
    topic = ledger;
    memory = LineShadow.lock(this).readLock();
    copy = new ShadowedCopy(this, ledger);
  }

  ShadowedCopy copy() {
    return copy;
  }

  // ---- the memory

  static Position words(org.apache.bookkeeper.mledger.Position position) {
    return new Position(Math.max(0, position.getLedgerId()), Math.max(-1, position.getEntryId()));
  }

  org.apache.bookkeeper.mledger.Position markDelete() {
    return KeptEntries.markDelete(topic, markDeletePosition);
  }

  /** Runs it while no ack changes the memory. */
  void reading(Runnable work) {
    memory.lock();
    try {
      work.run();
    } finally {
      memory.unlock();
    }
  }

  /** All that the memory holds. Of data ledgers that are there. */
  Picture picture() {
    NavigableMap<Long, BitSet> acked = new TreeMap<>();
    Map<Position, BitSet> left = new HashMap<>();
    Position[] markDelete = new Position[1];
    List<Map<String, Long>> properties = new ArrayList<>();
    reading(
        () -> {
          markDelete[0] = words(markDelete());
          properties.add(getProperties());
          individualDeletedMessages.forEachRawRange(
              (lowerLedger, lower, ledgerId, upper) -> {
                KeptEntries.between(
                    topic,
                    PositionFactory.create(lowerLedger, lower),
                    PositionFactory.create(ledgerId, upper),
                    (ledger, first, last) ->
                        acked
                            .computeIfAbsent(ledger, none -> new BitSet())
                            .set((int) first, (int) last + 1));
                return true;
              });
          if (batchDeletedIndexes != null) {
            batchDeletedIndexes
                .tailMap(markDeletePosition, false)
                .forEach(
                    (position, bits) -> {
                      boolean isAcked =
                          individualDeletedMessages.contains(
                              position.getLedgerId(), position.getEntryId());
                      if (!isAcked && !bits.isEmpty() && KeptEntries.exists(topic, position)) {
                        left.put(words(position), (BitSet) bits.clone());
                      }
                    });
          }
        });
    return new Picture(markDelete[0], acked, left, properties.get(0));
  }

  /** Whether the whole entry is acked. While reading. */
  boolean holds(org.apache.bookkeeper.mledger.Position position) {
    return position.compareTo(markDeletePosition) <= 0
        || individualDeletedMessages.contains(position.getLedgerId(), position.getEntryId());
  }

  /** What is left of a batch, or null. While reading. */
  BitSet leftOf(org.apache.bookkeeper.mledger.Position position) {
    BitSet left = batchDeletedIndexes == null ? null : batchDeletedIndexes.get(position);
    return left == null ? null : (BitSet) left.clone();
  }

  // ---- loading

  /** Of a cursor that was recovered: the znode before anything of this load wrote it. */
  CompletableFuture<Imprint.Znode> znode() {
    return znode;
  }

  @Override
  void recover(VoidCallback callback) {
    znode =
        KeptZnodes.version(
            topic.getStore(),
            topic.getName(),
            getName()); // Pulsar asks for it next, and nobody waits for this
    recovering = true;
    super.recover(
        new VoidCallback() {
          @Override
          public void operationComplete() {
            recovering = false;
            callback.operationComplete();
            copy.begin();
          }

          @Override
          public void operationFailed(ManagedLedgerException exception) {
            callback.operationFailed(exception);
          }
        });
  }

  @Override
  void initialize(
      org.apache.bookkeeper.mledger.Position position,
      Map<String, Long> properties,
      Map<String, String> cursorProperties,
      VoidCallback callback) {
    if (recovering) {
      super.initialize(position, properties, cursorProperties, callback);
      return;
    }
    super.initialize(
        position,
        properties,
        cursorProperties,
        new VoidCallback() {
          @Override
          public void operationComplete() {
            callback.operationComplete();
            copy.begin();
          }

          @Override
          public void operationFailed(ManagedLedgerException exception) {
            callback.operationFailed(exception);
          }
        });
  }

  @Override
  void initializeCursorPosition(
      Pair<org.apache.bookkeeper.mledger.Position, Long> lastPositionCounter) {
    long era = copy.era();
    super.initializeCursorPosition(lastPositionCounter);
    copy.follow(era, List.of());
  }

  // ---- changes

  @Override
  public void asyncDelete(
      Iterable<org.apache.bookkeeper.mledger.Position> positions,
      DeleteCallback callback,
      Object ctx) {
    List<org.apache.bookkeeper.mledger.Position> given = new ArrayList<>();
    positions.forEach(given::add);
    long era = copy.era();
    super.asyncDelete(given, callback, ctx);
    copy.follow(era, given);
  }

  /**
   * Of a part of a batch Pulsar keeps the further of two acks, and may forget indexes by it: then
   * the copy begins anew.
   */
  @Override
  public void asyncMarkDelete(
      org.apache.bookkeeper.mledger.Position position,
      Map<String, Long> properties,
      MarkDeleteCallback callback,
      Object ctx) {
    long era = copy.era();
    if (AckSetStateUtil.getAckSetArrayOrNull(position) == null) {
      super.asyncMarkDelete(position, properties, callback, ctx);
      copy.follow(era, List.of());
      return;
    }
    org.apache.bookkeeper.mledger.Position batch =
        PositionFactory.create(position.getLedgerId(), position.getEntryId());
    BitSet[] left = new BitSet[2];
    reading(() -> left[0] = leftOf(batch));
    super.asyncMarkDelete(position, properties, callback, ctx);
    reading(() -> left[1] = leftOf(batch));
    if (left[0] != null && left[1] != null) {
      left[1].andNot(left[0]);
      if (!left[1].isEmpty()) {
        copy.beginAnew();
        return;
      }
    }
    copy.follow(era, List.of(batch));
  }

  /** Properties of the mark-delete change here, perhaps later than their mark-delete. */
  @Override
  void internalMarkDelete(MarkDeleteEntry entry) {
    long era = copy.era();
    super.internalMarkDelete(entry);
    copy.follow(era, List.of());
  }

  @Override
  public boolean putProperty(String key, Long value) {
    long era = copy.era();
    boolean isSet = super.putProperty(key, value);
    copy.follow(era, List.of());
    return isSet;
  }

  @Override
  public boolean removeProperty(String key) {
    long era = copy.era();
    boolean isRemoved = super.removeProperty(key);
    copy.follow(era, List.of());
    return isRemoved;
  }

  @Override
  public void asyncResetCursor(
      org.apache.bookkeeper.mledger.Position position,
      boolean force,
      ResetCursorCallback callback) {
    super.asyncResetCursor(
        position,
        force,
        new ResetCursorCallback() {
          @Override
          public void resetComplete(Object ctx) {
            copy.beginAnew();
            callback.resetComplete(ctx);
          }

          @Override
          public void resetFailed(ManagedLedgerException exception, Object ctx) {
            callback.resetFailed(exception, ctx);
          }
        });
  }

  // ---- the end

  @Override
  public void asyncClose(CloseCallback callback, Object ctx) {
    copy.end();
    super.asyncClose(callback, ctx);
  }

  @Override
  void asyncDeleteCursorLedger() {
    copy.delete();
    super.asyncDeleteCursorLedger();
  }
}
