package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.Position;
import io.cursorkeeper.pulsar.Picture;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.ReadWriteLock;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.impl.MetaStore.MetaStoreCallback;
import org.apache.bookkeeper.mledger.proto.LongListMap;
import org.apache.bookkeeper.mledger.proto.ManagedCursorInfo;
import org.apache.bookkeeper.mledger.proto.MessageRange;
import org.apache.bookkeeper.mledger.proto.PositionInfo;
import org.apache.pulsar.metadata.api.Stat;

/** Serves the shadowed cursor: what differs between lines of Pulsar, here for 4.2 and later. */
final class LineShadow {

  private LineShadow() {}

  /** What guards a cursor's memory of acks. */
  static ReadWriteLock lock(ManagedCursorImpl cursor) {
    return cursor.lock;
  }

  /**
   * The acked entries that Pulsar's own recovery would find, if the broker died now. Completes with
   * null where that cannot be said now: the cursor ledger is being changed.
   */
  static CompletableFuture<Picture> persisted(ManagedCursorImpl cursor, ManagedLedgerImpl topic) {
    CompletableFuture<Picture> found = new CompletableFuture<>();
    topic
        .getStore()
        .asyncGetCursorInfo(
            topic.getName(),
            cursor.getName(),
            new MetaStoreCallback<ManagedCursorInfo>() {
              @Override
              public void operationComplete(ManagedCursorInfo info, Stat stat) {
                if (info.getCursorsLedgerId() == -1) {
                  NavigableMap<Long, BitSet> acked = acked(info.getIndividualDeletedMessagesList());
                  found.complete(
                      picture(info.getMarkDeleteLedgerId(), info.getMarkDeleteEntryId(), acked));
                } else {
                  read(cursor.cursorLedger, info.getCursorsLedgerId(), found);
                }
              }

              @Override
              public void operationFailed(MetaStoreException e) {
                found.completeExceptionally(e);
              }
            });
    return found;
  }

  private static void read(LedgerHandle ledger, long id, CompletableFuture<Picture> found) {
    if (ledger == null || ledger.getId() != id || ledger.getLastAddConfirmed() < 0) {
      found.complete(null);
      return;
    }
    long last = ledger.getLastAddConfirmed();
    ledger.asyncReadEntries(
        last,
        last,
        (rc, handle, entries, ctx) -> {
          if (rc != BKException.Code.OK) {
            found.completeExceptionally(BKException.create(rc));
            return;
          }
          LedgerEntry entry = entries.nextElement();
          PositionInfo info = new PositionInfo();
          info.parseFrom(entry.getEntry());
          NavigableMap<Long, BitSet> acked = acked(info.getIndividualDeletedMessagesList());
          for (LongListMap each : info.getIndividualDeletedMessageRangesList()) {
            long[] words = new long[each.getValuesCount()];
            for (int i = 0; i < words.length; i++) {
              words[i] = each.getValueAt(i);
            }
            acked.put(each.getKey(), BitSet.valueOf(words));
          }
          found.complete(picture(info.getLedgerId(), info.getEntryId(), acked));
        },
        null);
  }

  private static NavigableMap<Long, BitSet> acked(List<MessageRange> ranges) {
    NavigableMap<Long, BitSet> acked = new TreeMap<>();
    for (MessageRange each : ranges) {
      if (each.getLowerEndpoint().getLedgerId() == each.getUpperEndpoint().getLedgerId()) {
        acked
            .computeIfAbsent(each.getUpperEndpoint().getLedgerId(), none -> new BitSet())
            .set(
                (int) each.getLowerEndpoint().getEntryId() + 1,
                (int) each.getUpperEndpoint().getEntryId() + 1);
      }
    }
    return acked;
  }

  private static Picture picture(long ledger, long entry, NavigableMap<Long, BitSet> acked) {
    return new Picture(
        new Position(Math.max(0, ledger), Math.max(-1, entry)), acked, Map.of(), Map.of());
  }
}
