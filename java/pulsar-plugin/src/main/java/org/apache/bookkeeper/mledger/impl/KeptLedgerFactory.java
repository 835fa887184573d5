package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.CursorKeeperStorage;
import io.cursorkeeper.pulsar.Figures;
import io.cursorkeeper.pulsar.Meters;
import io.cursorkeeper.pulsar.PrometheusPage;
import io.cursorkeeper.pulsar.Settings;
import io.cursorkeeper.pulsar.WaitingAcks;
import io.opentelemetry.api.OpenTelemetry;
import io.prometheus.client.CollectorRegistry;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.AsyncCallbacks.OpenLedgerCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.pulsar.metadata.api.MetadataStore;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * Serves the broker: makes the ledgers of the topics that the settings name; the keeper holds their
 * cursors, or copies. Ends the link.
 */
public final class KeptLedgerFactory extends ManagedLedgerFactoryImpl {

  private final MetadataStore metadata;
  private final Settings settings;
  private final KeeperLink link;
  private final ExecutorService answers;
  private final Counters counters = new Counters();
  private final WaitingAcks waitingAcks;
  private final Meters meters;
  private volatile AutoCloseable page = () -> {};
  private volatile Object broker;

  /** Null: the cursors are kept. */
  private final ShadowedRounds rounds;

  KeptLedgerFactory(
      MetadataStoreExtended metadataStore,
      BookkeeperFactoryForCustomEnsemblePlacementPolicy bookKeeper,
      ManagedLedgerFactoryConfig config,
      StatsLogger stats,
      OpenTelemetry openTelemetry,
      Settings settings,
      KeeperLink link,
      ExecutorService answers)
      throws Exception {
    super(metadataStore, bookKeeper, config, stats, openTelemetry);
    metadata = metadataStore;
    this.settings = settings;
    this.link = link;
    this.answers = answers;
    waitingAcks =
        new WaitingAcks(
            settings.waitingAcksMax(), settings.waitingAcksBrokerMax(), this::lookAgain);
    meters = new Meters(openTelemetry, this::figures);
    rounds =
        settings.mode() == Settings.Mode.SHADOW
            ? new ShadowedRounds(settings, link, counters)
            : null;
  }

  /** Null: the cursors are kept. */
  ShadowedRounds rounds() {
    return rounds;
  }

  MetadataStore metadata() {
    return metadata;
  }

  KeeperLink link() {
    return link;
  }

  Counters counters() {
    return counters;
  }

  WaitingAcks waitingAcks() {
    return waitingAcks;
  }

  Meters meters() {
    return meters;
  }

  /** Shows the figures on a page until the end. */
  void show(CollectorRegistry registry) {
    page = new PrometheusPage(registry, this::figures);
  }

  Figures figures() {
    return KeptFigures.of(
        getManagedLedgers().values(),
        link.status(),
        waitingAcks,
        counters,
        settings.cursorMetricsMax());
  }

  /** Every cursor's dispatch may have to pause or to go on. */
  private void lookAgain() {
    getManagedLedgers()
        .values()
        .forEach(
            each -> {
              if (each instanceof KeptLedger kept) {
                kept.lookAgain();
              }
            });
  }

  /**
   * Who asks for a topic's ledger knows the broker that has the topic: the way to a topic that
   * nobody reads.
   */
  @Override
  public void asyncOpen(
      String name,
      ManagedLedgerConfig config,
      OpenLedgerCallback callback,
      Supplier<CompletableFuture<Boolean>> ownership,
      Object ctx) {
    if (broker == null) {
      broker = Topics.brokerOf(callback);
    }
    super.asyncOpen(name, config, callback, ownership, ctx);
  }

  /** Null: not known, or there is none. */
  Object broker() {
    return broker;
  }

  /**
   * A shadow topic has no durable cursors of its own: Pulsar's. A topic that is bound to the
   * storage class is kept in any namespace.
   */
  @Override
  protected ManagedLedgerImpl createManagedLedger(
      BookKeeper bookKeeper,
      MetaStore store,
      String name,
      ManagedLedgerConfig config,
      Supplier<CompletableFuture<Boolean>> ownership) {
    boolean wanted =
        CursorKeeperStorage.STORAGE_CLASS.equals(config.getStorageClassName())
            || settings.namespaces().contains(name);
    if (config.getShadowSource() != null || !wanted) {
      return super.createManagedLedger(bookKeeper, store, name, config, ownership);
    }
    if (rounds != null) {
      return new ShadowedLedger(this, bookKeeper, store, config, name, ownership, rounds);
    }
    return new KeptLedger(this, bookKeeper, store, config, name, ownership, settings, link);
  }

  @Override
  public CompletableFuture<Void> shutdownAsync() throws ManagedLedgerException {
    return super.shutdownAsync()
        .whenComplete(
            (nothing, failure) -> {
              meters.close();
              try {
                page.close();
              } catch (Exception e) {
                throw new IllegalStateException(e);
              }
              if (rounds != null) {
                rounds.close();
              }
              link.close();
              answers.shutdown();
            });
  }
}
