package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Settings;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.mledger.AsyncCallbacks.CloseCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker: one load of a topic whose durable cursors the keeper holds. Owns the fencing
 * token of the load, and its end.
 *
 * <p>The token is the id of the data ledger that the load made. Pulsar makes it before it asks for
 * the topic's cursors, and writes it into the topic's znode by compare-and-set, so it grows from
 * load to load. A terminated topic makes none: its token is its last ledger.
 */
final class KeptLedger extends ManagedLedgerImpl {

  private static final Logger LOG = LoggerFactory.getLogger(KeptLedger.class);

  /**
   * What a clean stop leaves in a cursor's znode, for the way back. More might not fit the znode,
   * and Pulsar tries without end.
   */
  private static final int ZNODE_RANGES_MAX = 1_000;

  /**
   * A compressed znode with properties cannot be read by any released Pulsar: stay below the 16 KiB
   * from which it compresses.
   */
  private static final int COMPRESSED_ZNODE_RANGES_MAX = 200;

  private static final int COMPRESSED_ZNODE_BATCHES_MAX = 40;

  private static final int UNLOAD_TRIES = 60;

  private final KeptLedgerFactory keeping;
  private final Settings settings;
  private final KeeperLink link;

  /** As the broker wants them, for Pulsar's own cursors: ranges, and batches. */
  private volatile int[] stockLimits;

  private final AtomicBoolean over = new AtomicBoolean();
  private final Set<KeptManagedCursor> open = ConcurrentHashMap.newKeySet();

  /** Deletions at the keeper that have not ended, by cursor: a new one of that name waits. */
  private final Map<String, CompletableFuture<Void>> deletions = new ConcurrentHashMap<>();

  private volatile long token;
  private volatile ReadEntriesCallback reader;

  /**
   * Whether this load went on with Pulsar's own cursors. Set before anything else of that, on the
   * executor.
   */
  private volatile boolean isStock;

  KeptLedger(
      KeptLedgerFactory factory,
      BookKeeper bookKeeper,
      MetaStore store,
      ManagedLedgerConfig config,
      String name,
      Supplier<CompletableFuture<Boolean>> ownership,
      Settings settings,
      KeeperLink link) {
    this(factory, bookKeeper, store, config, name, ownership, settings, link, stockLimits(config));
  }

  private KeptLedger(
      KeptLedgerFactory factory,
      BookKeeper bookKeeper,
      MetaStore store,
      ManagedLedgerConfig config,
      String name,
      Supplier<CompletableFuture<Boolean>> ownership,
      Settings settings,
      KeeperLink link,
      int[] stockLimits) {
    super(
        factory,
        bookKeeper,
        store,
        limited(factory, config),
        factory.scheduledExecutor,
        name,
        ownership);
    this.keeping = factory;
    this.stockLimits = stockLimits;
    this.settings = settings;
    this.link = link;
  }

  private static int[] stockLimits(ManagedLedgerConfig config) {
    return new int[] {
      config.getMaxUnackedRangesToPersist(), config.getMaxBatchDeletedIndexToPersist()
    };
  }

  private static ManagedLedgerConfig limited(
      ManagedLedgerFactoryImpl factory, ManagedLedgerConfig config) {
    boolean compressed =
        !"NONE".equals(String.valueOf(factory.getConfig().getManagedCursorInfoCompressionType()));
    int ranges = compressed ? COMPRESSED_ZNODE_RANGES_MAX : ZNODE_RANGES_MAX;
    int batches = compressed ? COMPRESSED_ZNODE_BATCHES_MAX : ZNODE_RANGES_MAX;
    config.setMaxUnackedRangesToPersist(Math.min(config.getMaxUnackedRangesToPersist(), ranges));
    config.setMaxBatchDeletedIndexToPersist(
        Math.min(config.getMaxBatchDeletedIndexToPersist(), batches));
    return config;
  }

  @Override
  public void setConfig(ManagedLedgerConfig config) {
    stockLimits = stockLimits(config);
    super.setConfig(isStock ? config : limited(getFactory(), config));
  }

  Counters counters() {
    return keeping.counters();
  }

  KeptLedgerFactory keeping() {
    return keeping;
  }

  Settings settings() {
    return settings;
  }

  KeeperLink link() {
    return link;
  }

  /** Of this load. Known when the first cursor is made. */
  long token() {
    return token;
  }

  /** Of a load whose data ledger is made. */
  static long token(ManagedLedgerImpl load) {
    LedgerHandle made = load.currentLedger;
    return made != null ? made.getId() : Math.max(0, load.lastConfirmedEntry.getLedgerId());
  }

  /** The data ledger of this load is made, and in the topic's znode; the cursors come next. */
  @Override
  protected void initializeCursors(ManagedLedgerInitializeLedgerCallback callback) {
    token = token(this);
    super.initializeCursors(new KeptLoad(this, callback));
  }

  /** Whether this load went on without the keeper. */
  boolean isStock() {
    return isStock;
  }

  /**
   * Goes on with Pulsar's own cursors. Before one of them is opened its znode gets two new
   * versions, so that the keeper's state, which may belong to the version that the next write would
   * have made, is stale at the next load whatever Pulsar writes. On the executor, as is what the
   * cursors of the keeper do at the end of their loads: none of them notes a version after this.
   */
  void loadStock(ManagedLedgerInitializeLedgerCallback callback) {
    getExecutor()
        .execute(
            () -> {
              isStock = true;
              open.forEach(KeptManagedCursor::leave);
              List<ManagedCursor> loaded = new ArrayList<>();
              getCursors().forEach(loaded::add);
              loaded.forEach(
                  each -> {
                    deactivateCursor(each);
                    getCursors().removeCursor(each.getName());
                  });
              int[] limits = stockLimits;
              getConfig().setMaxUnackedRangesToPersist(limits[0]);
              getConfig().setMaxBatchDeletedIndexToPersist(limits[1]);
              KeptZnodes.writtenTwice(getStore(), getName())
                  .whenCompleteAsync(
                      (nothing, failed) -> {
                        if (failed == null) {
                          super.initializeCursors(callback);
                        } else {
                          callback.initializeFailed(
                              new ManagedLedgerException(
                                  "the cursors' znodes cannot be written", failed));
                        }
                      },
                      getExecutor());
            });
  }

  @Override
  protected ManagedCursorImpl createCursor(BookKeeper bookKeeper, String cursorName) {
    return isStock
        ? super.createCursor(bookKeeper, cursorName)
        : new KeptManagedCursor(bookKeeper, this, cursorName);
  }

  /** Entries of the topic's data ledgers; 0: it is written now. */
  NavigableMap<Long, Long> dataLedgers() {
    NavigableMap<Long, Long> entries = new TreeMap<>();
    ledgers.forEach((id, info) -> entries.put(id, info.hasEntries() ? info.getEntries() : 0L));
    return entries;
  }

  void opened(KeptManagedCursor cursor) {
    open.add(cursor);
  }

  void ended(KeptManagedCursor cursor) {
    open.remove(cursor);
  }

  boolean isOver() {
    State now = STATE_UPDATER.get(this);
    return over.get() || isStock || now == State.Closed || now.isFenced();
  }

  /** Every cursor's dispatch may have to pause or to go on. */
  void lookAgain() {
    open.forEach(KeptManagedCursor::lookAgain);
  }

  /** The future of the last deletion of this name; completes normally. */
  CompletableFuture<Void> deletion(String cursor) {
    return deletions.getOrDefault(cursor, CompletableFuture.completedFuture(null));
  }

  void deleting(String cursor, CompletableFuture<Void> done) {
    CompletableFuture<Void> quiet = done.exceptionally(failure -> null);
    deletions.put(cursor, quiet);
    quiet.thenRun(() -> deletions.remove(cursor, quiet));
  }

  /** Who reads a cursor's entries: by it the topic is found, if the load ends. */
  void readBy(ReadEntriesCallback callback) {
    reader = callback;
    if (over.get()) {
      Topics.unload(callback);
    }
  }

  /**
   * Another load of the topic has its cursors, or one of them is not kept any more: nothing more is
   * delivered or taken here.
   */
  void loadIsOver(String why) {
    if (!over.compareAndSet(false, true)) {
      return;
    }
    LOG.error("[{}] This load of the topic is over, it is fenced and unloaded: {}", getName(), why);
    getExecutor()
        .execute(
            () -> {
              setFenced();
              open.forEach(KeptManagedCursor::leave);
              unload(UNLOAD_TRIES);
            });
  }

  /**
   * By the broker, which has the topic also if nobody reads it; one that is not loaded wholly yet
   * is looked for again. Or by a reader. Not every ledger is a topic's: transactions have logs.
   */
  private void unload(int tries) {
    Object broker = keeping.broker();
    ReadEntriesCallback known = reader;
    if (broker == null && known != null) {
      Topics.unload(known);
    } else if (broker != null && !Topics.unload(broker, this)) {
      if (tries > 0) {
        keeping.scheduledExecutor.schedule(() -> unload(tries - 1), 1, TimeUnit.SECONDS);
      } else {
        LOG.error(
            "[{}] It stays fenced, because this broker has no topic of it to unload. What to do:"
                + " unload what uses it; for a log of transactions that is the namespace"
                + " pulsar/system",
            getName());
      }
    }
  }

  /** Pulsar closes the cursors that were ready; those on their way are given back, too. */
  @Override
  public synchronized void asyncClose(CloseCallback callback, Object ctx) {
    boolean fenced = STATE_UPDATER.get(this).isFenced();
    super.asyncClose(callback, ctx);
    if (fenced) {
      open.forEach(KeptManagedCursor::leave);
    }
  }
}
