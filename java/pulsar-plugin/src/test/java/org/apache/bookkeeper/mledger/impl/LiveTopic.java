package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.LinkSettings;
import io.cursorkeeper.pulsar.Settings;
import io.opentelemetry.api.OpenTelemetry;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.AsyncCallbacks;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * A topic's managed ledger on a real ZooKeeper and bookies, with Pulsar's classes and the plugin's:
 * what a broker would hold of it.
 */
final class LiveTopic {

  static final long WAIT_S = 60;

  private final String zooKeeper;
  private final String name;
  private final Consumer<ManagedLedgerConfig> with;
  private final Consumer<ManagedLedgerFactoryConfig> withAll;
  private final MetadataStoreExtended store;
  private final BookKeeper bookKeeper;
  private final ManagedLedgerFactoryImpl factory;
  private final ManagedLedgerConfig config;
  ManagedLedgerImpl ledger;

  /** Loads the topic. {@code keeper} empty: Pulsar's own cursors. */
  LiveTopic(String zooKeeper, String keeper, String name, Map<String, String> settings)
      throws Exception {
    this(zooKeeper, keeper, name, settings, config -> {});
  }

  LiveTopic(
      String zooKeeper,
      String keeper,
      String name,
      Map<String, String> settings,
      Consumer<ManagedLedgerConfig> with)
      throws Exception {
    this(zooKeeper, keeper, name, settings, with, all -> {});
  }

  LiveTopic(
      String zooKeeper,
      String keeper,
      String name,
      Map<String, String> settings,
      Consumer<ManagedLedgerConfig> with,
      Consumer<ManagedLedgerFactoryConfig> withAll)
      throws Exception {
    this.zooKeeper = zooKeeper;
    this.name = name;
    this.with = with;
    this.withAll = withAll;
    store =
        MetadataStoreExtended.create(
            "zk:" + zooKeeper, MetadataStoreConfig.builder().fsyncEnable(false).build());
    ClientConfiguration client = new ClientConfiguration();
    client.setMetadataServiceUri("zk+hierarchical://" + zooKeeper + "/ledgers");
    client.setDiskWeightBasedPlacementEnabled(false);
    bookKeeper = new CursorLedgers(client);
    ManagedLedgerFactoryConfig of = new ManagedLedgerFactoryConfig();
    of.setNumManagedLedgerSchedulerThreads(2);
    of.setMaxCacheSize(0);
    withAll.accept(of);
    Properties properties = new Properties();
    properties.setProperty(
        Settings.CLOSE_TIMEOUT_MS, "50000"); // a busy machine closes with the keeper's word, too
    properties.putAll(settings);
    properties.setProperty(Settings.ADDRESS, keeper);
    factory =
        keeper.isEmpty()
            ? new ManagedLedgerFactoryImpl(store, bookKeeper, of)
            : Keeping.factory(
                store,
                policy -> CompletableFuture.completedFuture(bookKeeper),
                of,
                NullStatsLogger.INSTANCE,
                OpenTelemetry.noop(),
                Settings.read(properties));
    config = config(with);
    load();
  }

  private static ManagedLedgerConfig config(Consumer<ManagedLedgerConfig> with) {
    ManagedLedgerConfig config = new ManagedLedgerConfig();
    config.setEnsembleSize(1);
    config.setWriteQuorumSize(1);
    config.setAckQuorumSize(1);
    config.setMaxEntriesPerLedger(7);
    config.setMinimumRolloverTime(0, TimeUnit.SECONDS);
    config.setRetentionTime(-1, TimeUnit.SECONDS);
    config.setRetentionSizeInMB(-1);
    config.setDeletionAtBatchIndexLevelEnabled(true);
    with.accept(config);
    return config;
  }

  void load() throws Exception {
    ledger = (ManagedLedgerImpl) factory.open(name, config);
  }

  /** Loads another topic, with the same settings, by the same factory. */
  ManagedLedgerImpl another(String other) throws Exception {
    return (ManagedLedgerImpl) factory.open(other, config);
  }

  /** Loads another topic with settings of its own, by the same factory. */
  ManagedLedgerImpl another(String other, Consumer<ManagedLedgerConfig> with) throws Exception {
    return (ManagedLedgerImpl) factory.open(other, config(with));
  }

  BookKeeper bookKeeper() {
    return bookKeeper;
  }

  MetadataStoreExtended store() {
    return store;
  }

  /**
   * A graceful unload. Pulsar's own cursor may make a second cursor ledger at its first ack, if
   * that is written before the cursor knows that it has the first one: then this one's znode, which
   * holds all, comes in between, and the close fails. Another load, in which nothing is acked, is
   * unloaded in its place.
   */
  void unload() throws Exception {
    try {
      ledger.close();
    } catch (ManagedLedgerException.BadVersionException e) {
      if (ledger instanceof KeptLedger) {
        throw e;
      }
      LiveTopic again = new LiveTopic(zooKeeper, "", name, Map.of(), with, withAll);
      again.ledger.close();
      again.shutdown();
    }
  }

  /** The process is gone: nothing more is sent, nothing is answered. */
  void crash() throws Exception {
    if (factory instanceof KeptLedgerFactory ours) {
      ours.link().close();
    }
    try {
      bookKeeper.close();
    } catch (NullPointerException e) {
      // the BookKeeper of Pulsar 4.0 stumbles over a write that ends meanwhile: its connections are
      // closed, and that is all that counts
    }
    store.close();
  }

  /** After a graceful unload. */
  void shutdown() throws Exception {
    factory.shutdown();
    bookKeeper.close();
    store.close();
  }

  /** Of a topic that the plugin loaded. */
  KeptLedgerFactory ours() {
    return (KeptLedgerFactory) factory;
  }

  ManagedCursorImpl cursor(String subscription) throws Exception {
    return (ManagedCursorImpl) ledger.openCursor(subscription, InitialPosition.Earliest);
  }

  Position publish() throws Exception {
    return ledger.addEntry("a message".getBytes(StandardCharsets.UTF_8));
  }

  /** Every entry that the topic has, in order. */
  List<Position> entries() {
    return entries(ledger);
  }

  static List<Position> entries(ManagedLedgerImpl ledger) {
    List<Position> entries = new ArrayList<>();
    Position last = ledger.getLastConfirmedEntry();
    for (long id : ledger.getLedgersInfo().keySet()) {
      long count =
          id == last.getLedgerId()
              ? last.getEntryId() + 1
              : ledger.getLedgersInfo().get(id).getEntries();
      for (long entry = 0; entry < (id > last.getLedgerId() ? 0 : count); entry++) {
        entries.add(PositionFactory.create(id, entry));
      }
    }
    return entries;
  }

  /** For a link that somebody has beside a topic's. */
  static LinkSettings patient(String keeper) {
    return LinkSettings.of(keeper, Runnable::run)
        .withTimeouts(Duration.ofSeconds(WAIT_S), Duration.ofSeconds(WAIT_S));
  }

  /**
   * Not before Pulsar's own cursor has the ledger that it makes: what is answered next would not
   * survive a crash.
   */
  private static CompletableFuture<Void> answered(
      ManagedCursor cursor, CompletableFuture<Void> done) {
    return done.thenCompose(nothing -> CursorLedgers.atRest((ManagedCursorImpl) cursor));
  }

  static CompletableFuture<Void> ack(ManagedCursor cursor, List<Position> positions) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    cursor.asyncDelete(
        positions,
        new AsyncCallbacks.DeleteCallback() {
          @Override
          public void deleteComplete(Object ctx) {
            done.complete(null);
          }

          @Override
          public void deleteFailed(ManagedLedgerException exception, Object ctx) {
            done.completeExceptionally(exception);
          }
        },
        null);
    return answered(cursor, done);
  }

  static CompletableFuture<Void> markDelete(
      ManagedCursor cursor, Position position, Map<String, Long> properties) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    cursor.asyncMarkDelete(
        position,
        properties,
        new AsyncCallbacks.MarkDeleteCallback() {
          @Override
          public void markDeleteComplete(Object ctx) {
            done.complete(null);
          }

          @Override
          public void markDeleteFailed(ManagedLedgerException exception, Object ctx) {
            done.completeExceptionally(exception);
          }
        },
        null);
    return answered(cursor, done);
  }

  static CompletableFuture<Void> reset(ManagedCursor cursor, Position next) {
    CompletableFuture<Void> done = new CompletableFuture<>();
    cursor.asyncResetCursor(
        next,
        false,
        new AsyncCallbacks.ResetCursorCallback() {
          @Override
          public void resetComplete(Object ctx) {
            done.complete(null);
          }

          @Override
          public void resetFailed(ManagedLedgerException exception, Object ctx) {
            done.completeExceptionally(exception);
          }
        });
    return answered(cursor, done);
  }

  static Position part(Position entry, BitSet left) {
    return AckSetStateUtil.createPositionWithAckSet(
        entry.getLedgerId(), entry.getEntryId(), left.toLongArray());
  }
}
