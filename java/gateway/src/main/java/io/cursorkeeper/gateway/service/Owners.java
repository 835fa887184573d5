package io.cursorkeeper.gateway.service;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.BookKeeper;

/**
 * Whose each ledger is, remembered for the ledgers asked for last. Custom metadata never changes and ids are never given
 * out again, so what is remembered stays true, also of a ledger that is gone.
 */
final class Owners {
  private static final int REMEMBERED_MAX = 100_000;

  private final BookKeeper client;
  private final Map<Long, Whose> remembered = new LinkedHashMap<>(16, 0.75f, true) {
    private static final long serialVersionUID = 1;

    @Override
    protected boolean removeEldestEntry(Map.Entry<Long, Whose> eldest) {
      return size() > REMEMBERED_MAX;
    }
  };

  Owners(BookKeeper client) {
    this.client = client;
  }

  /** Asks ZooKeeper unless it is known; fails as the client does, with "no such ledger" for one that never was. */
  CompletableFuture<Whose> of(long ledgerId) {
    Whose known;
    synchronized (remembered) {
      known = remembered.get(ledgerId);
    }
    return known != null ? CompletableFuture.completedFuture(known)
        : client.getLedgerMetadata(ledgerId).thenApply(metadata -> learn(ledgerId, metadata.getCustomMetadata()));
  }

  /** Remembers whose ledger it is, from metadata that was just read or written. */
  Whose learn(long ledgerId, Map<String, byte[]> custom) {
    Whose whose = Whose.of(custom);
    synchronized (remembered) {
      remembered.put(ledgerId, whose);
    }
    return whose;
  }
}
