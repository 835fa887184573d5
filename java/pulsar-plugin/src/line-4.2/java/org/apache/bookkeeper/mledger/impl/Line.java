package org.apache.bookkeeper.mledger.impl;

import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.apache.bookkeeper.mledger.ManagedLedgerException.MetaStoreException;
import org.apache.bookkeeper.mledger.impl.MetaStore.MetaStoreCallback;
import org.apache.bookkeeper.mledger.proto.ManagedCursorInfo;
import org.apache.pulsar.metadata.api.Stat;

/** What differs between lines of Pulsar, here for 4.2 and later. */
final class Line {

    private Line() {}

    /** Entries of a topic's data ledgers by id; 0: it is written now. */
    static NavigableMap<Long, Long> entries(ManagedLedgerImpl ledger) {
        NavigableMap<Long, Long> entries = new TreeMap<>();
        ledger.ledgers.forEach((id, info) -> entries.put(id, info.hasEntries() ? info.getEntries() : 0L));
        return entries;
    }

    static Executor executor(ManagedLedgerImpl ledger) {
        return ledger.getExecutor();
    }

    /** Writes what the znode of a cursor holds once more: it has a new version. */
    static CompletableFuture<Void> rewritten(MetaStore store, String ledger, String cursor) {
        CompletableFuture<Void> written = new CompletableFuture<>();
        store.asyncGetCursorInfo(ledger, cursor, new MetaStoreCallback<>() {
            @Override
            public void operationComplete(ManagedCursorInfo info, Stat stat) {
                store.asyncUpdateCursorInfo(ledger, cursor, info, stat, new MetaStoreCallback<>() {
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
