package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.pulsar.Imprint;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.impl.MetaStore.MetaStoreCallback;
import org.apache.bookkeeper.mledger.proto.ManagedCursorInfo;
import org.apache.pulsar.metadata.api.Stat;

/**
 * What differs between lines of Pulsar, here for 4.2 and later: the rest is in {@link LineCursor}.
 */
final class Line {

  /** Members of this line that are used though they are not accessible. */
  static final List<String> BY_HANDLE = List.of();

  private Line() {}

  /**
   * @param content of a cursor's znode
   */
  @SuppressWarnings("deprecation") // of what tells a writer nothing newer is there
  static Imprint.Znode znode(Object content, Stat stat) {
    ManagedCursorInfo info = (ManagedCursorInfo) content;
    return new Imprint.Znode(
        stat.getCreationTimestamp(),
        stat.getVersion(),
        info.getCursorsLedgerId(),
        info.getLastActive());
  }

  /** Writes what the znode of a cursor holds once more: it has a new version. */
  static CompletableFuture<Void> rewritten(MetaStore store, String ledger, String cursor) {
    CompletableFuture<Void> written = new CompletableFuture<>();
    store.asyncGetCursorInfo(
        ledger,
        cursor,
        new MetaStoreCallback<>() {
          @Override
          public void operationComplete(ManagedCursorInfo info, Stat stat) {
            store.asyncUpdateCursorInfo(
                ledger,
                cursor,
                info,
                stat,
                new MetaStoreCallback<>() {
                  @Override
                  public void operationComplete(Void nothing, Stat now) {
                    written.complete(null);
                  }

                  @Override
                  public void operationFailed(MetaStoreException e) {
                    written.completeExceptionally(e);
                  }
                });
          }

          @Override
          public void operationFailed(MetaStoreException e) {
            written.completeExceptionally(e);
          }
        });
    return written;
  }
}
