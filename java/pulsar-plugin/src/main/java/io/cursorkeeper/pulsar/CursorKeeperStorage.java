package io.cursorkeeper.pulsar;

import io.netty.channel.EventLoopGroup;
import io.opentelemetry.api.OpenTelemetry;
import io.prometheus.client.CollectorRegistry;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.impl.Keeping;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl.BookkeeperFactoryForCustomEnsemblePlacementPolicy;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.pulsar.broker.BookKeeperClientFactory;
import org.apache.pulsar.broker.ManagedLedgerClientFactory;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.storage.ManagedLedgerStorageClass;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker's operator: what {@code managedLedgerStorageClassName} in broker.conf names.
 * Pulsar's own storage, whose durable cursors a CursorKeeper daemon holds.
 *
 * <p>A wrong setting, or a Pulsar that this plugin was not made for, stops the broker's start with
 * one clear line, before anything was touched; or the broker starts with Pulsar's own cursors, if
 * the operator says so.
 */
public class CursorKeeperStorage extends ManagedLedgerClientFactory {

  private static final Logger LOG = LoggerFactory.getLogger(CursorKeeperStorage.class);

  /**
   * Names this storage in a namespace's persistence policy. A broker that does not keep cursors has
   * no storage of that name, so it refuses to load the namespace's topics instead of opening
   * Pulsar's own cursors beside kept ones.
   */
  public static final String STORAGE_CLASS = "cursorkeeper";

  private Settings settings;

  @Override
  public void initialize(
      ServiceConfiguration conf,
      MetadataStoreExtended metadataStore,
      BookKeeperClientFactory bookKeeper,
      EventLoopGroup eventLoops,
      OpenTelemetry openTelemetry)
      throws Exception {
    Set<String> interceptors = conf.getBrokerInterceptors();
    if (interceptors.contains(ReceiptPolicy.INTERCEPTOR)) {
      ReceiptPolicy.checkInterceptor();
    }
    settings = checked(conf.getProperties());
    if (isKeeping()) {
      ReceiptPolicy.warnIfNobodyWaits(settings, interceptors);
    }
    if (isKeeping() && !conf.isDispatcherPauseOnAckStatePersistentEnabled()) {
      LOG.warn(
          "dispatcherPauseOnAckStatePersistentEnabled is not set in broker.conf: while the daemon"
              + " is away dispatch does not pause, and acks beyond {}={} of a cursor are answered"
              + " by a failure",
          Settings.WAITING_ACKS_MAX,
          settings.waitingAcksMax());
    }
    super.initialize(conf, metadataStore, bookKeeper, eventLoops, openTelemetry);
  }

  private boolean isKeeping() {
    return settings != null && settings.mode() == Settings.Mode.KEEP;
  }

  /** Whether cursors are kept, and say in {@link CommandScope} what a receipt waits for. */
  public boolean receiptsAreDurable() {
    return isKeeping() && settings.receipts() == Settings.Receipts.DURABLE;
  }

  @Override
  protected ManagedLedgerFactoryImpl createManagedLedgerFactory(
      MetadataStoreExtended metadataStore,
      OpenTelemetry openTelemetry,
      BookkeeperFactoryForCustomEnsemblePlacementPolicy bookKeeper,
      ManagedLedgerFactoryConfig config,
      StatsLogger stats)
      throws Exception {
    if (settings == null) {
      return super.createManagedLedgerFactory(
          metadataStore, openTelemetry, bookKeeper, config, stats);
    }
    ManagedLedgerFactoryImpl factory =
        Keeping.factory(metadataStore, bookKeeper, config, stats, openTelemetry, settings);
    Keeping.show(factory, CollectorRegistry.defaultRegistry);
    return factory;
  }

  @Override
  public Optional<ManagedLedgerStorageClass> getManagedLedgerStorageClass(String name) {
    return STORAGE_CLASS.equals(name) && isKeeping()
        ? Optional.of(getDefaultStorageClass())
        : super.getManagedLedgerStorageClass(name);
  }

  private static void warnIfKeepingWouldBeRefused() {
    try {
      Keeping.check();
    } catch (UnsupportedPulsarException e) {
      LOG.warn("The plugin could not keep cursors here: {}", e.getMessage());
    }
  }

  /** Null: Pulsar's own cursors. */
  private static Settings checked(Properties properties) {
    try {
      Settings read = Settings.read(properties);
      if (read.mode() == Settings.Mode.OFF) {
        LOG.info("{}=off: Pulsar keeps its cursors itself", Settings.MODE);
        warnIfKeepingWouldBeRefused();
        return null;
      }
      Keeping.check();
      if (read.mode() == Settings.Mode.SHADOW) {
        LOG.info(
            "Pulsar keeps its cursors itself; those of namespaces {} are copied to the CursorKeeper"
                + " daemon at {}, and compared",
            read.namespaces(),
            read.address());
      } else {
        LOG.info(
            "Cursors of namespaces {} are kept by the CursorKeeper daemon at {}, receipts={}",
            read.namespaces(),
            read.address(),
            read.receipts());
      }
      return read;
    } catch (SettingsException | UnsupportedPulsarException e) {
      if (Settings.onUnsupported(properties) == Settings.OnUnsupported.REFUSE) {
        throw e;
      }
      LOG.error(
          "Pulsar keeps its cursors itself, because {}=stock and the plugin cannot: {}",
          Settings.ON_UNSUPPORTED,
          e.getMessage());
      return null;
    }
  }
}
