package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.pulsar.Imprint;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.BadVersionException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetadataNotFoundException;
import org.apache.bookkeeper.mledger.impl.MetaStore.MetaStoreCallback;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.api.Stat;

/** Serves the broker: the versions of the znodes of a topic's cursors. */
final class KeptZnodes {

  private static final String ROOT = "/managed-ledgers/";

  private KeptZnodes() {}

  /** Of one cursor, now. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static CompletableFuture<Imprint.Znode> version(MetaStore store, String ledger, String cursor) {
    CompletableFuture<Imprint.Znode> version = new CompletableFuture<>();
    store.asyncGetCursorInfo(
        ledger,
        cursor,
        new MetaStoreCallback() {
          @Override
          public void operationComplete(Object info, Stat stat) {
            version.complete(Line.znode(info, stat));
          }

          @Override
          public void operationFailed(MetaStoreException e) {
            version.completeExceptionally(e);
          }
        });
    return version;
  }

  /**
   * Whether the cursor has none, whatever a server of ZooKeeper that is behind knows. Fails with
   * BadVersionException, as its creation would, if it has one.
   */
  static CompletableFuture<Void> absent(
      MetadataStore metadata, MetaStore store, String ledger, String cursor) {
    return metadata
        .sync(ROOT + ledger)
        .thenCompose(nothing -> version(store, ledger, cursor))
        .handle(
            (found, failed) -> {
              Throwable why = failed instanceof CompletionException ? failed.getCause() : failed;
              if (why instanceof MetadataNotFoundException) {
                return null;
              }
              throw new CompletionException(
                  why != null
                      ? why
                      : new BadVersionException(
                          "The subscription "
                              + cursor
                              + " exists, and its cursor is not loaded. What to do: unload the"
                              + " topic, its next load tries again"));
            });
  }

  /** Removes that of a cursor, if it is this one still. */
  static CompletableFuture<Void> removed(
      MetadataStore metadata, MetaStore store, String ledger, String cursor, Imprint.Znode made) {
    return version(store, ledger, cursor)
        .thenCompose(
            now ->
                now.equals(made)
                    ? metadata.delete(ROOT + ledger + "/" + cursor, Optional.of(made.version()))
                    : CompletableFuture.completedFuture(null));
  }

  /**
   * All of a topic get two new versions, with the content that they have. Fails if one of them is
   * changed meanwhile.
   */
  static CompletableFuture<Void> writtenTwice(MetaStore store, String ledger) {
    CompletableFuture<List<String>> names = new CompletableFuture<>();
    store.getCursors(
        ledger,
        new MetaStoreCallback<>() {
          @Override
          public void operationComplete(List<String> found, Stat stat) {
            names.complete(found);
          }

          @Override
          public void operationFailed(MetaStoreException e) {
            names.completeExceptionally(e);
          }
        });
    return names.thenCompose(
        found ->
            CompletableFuture.allOf(
                found.stream()
                    .map(
                        each ->
                            Line.rewritten(store, ledger, each)
                                .thenCompose(nothing -> Line.rewritten(store, ledger, each)))
                    .toArray(CompletableFuture[]::new)));
  }
}
