package org.apache.bookkeeper.mledger.impl;

import java.util.NavigableMap;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.Position;

/**
 * Serves the broker: one load of a topic that Pulsar keeps itself, and whose durable cursors have a
 * copy at the keeper. All of Pulsar's own behaviour stays; the load has a fencing token for the
 * copies only.
 */
final class ShadowedLedger extends ManagedLedgerImpl {

  private final ShadowedRounds rounds;
  private volatile long token;

  ShadowedLedger(
      KeptLedgerFactory factory,
      BookKeeper bookKeeper,
      MetaStore store,
      ManagedLedgerConfig config,
      String name,
      Supplier<CompletableFuture<Boolean>> ownership,
      ShadowedRounds rounds) {
    super(factory, bookKeeper, store, config, factory.scheduledExecutor, name, ownership);
    this.rounds = rounds;
  }

  @Override
  protected void initializeCursors(ManagedLedgerInitializeLedgerCallback callback) {
    token = KeptLedger.token(this);
    super.initializeCursors(callback);
  }

  @Override
  protected ManagedCursorImpl createCursor(BookKeeper bookKeeper, String cursorName) {
    return new ShadowedManagedCursor(bookKeeper, this, cursorName);
  }

  /** Of this load. Known when the first cursor is made. */
  long token() {
    return token;
  }

  ShadowedRounds rounds() {
    return rounds;
  }

  /** Entries of the topic's data ledgers, that of now included. */
  NavigableMap<Long, Long> written() {
    NavigableMap<Long, Long> entries = KeptLayout.entries(this);
    Position last = lastConfirmedEntry;
    entries.computeIfPresent(
        last.getLedgerId(),
        (ledger, count) -> count > 0 ? count : Math.max(0, last.getEntryId() + 1));
    return entries;
  }
}
