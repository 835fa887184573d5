package io.cursorkeeper.interop;

import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/**
 * The metadata store, the BookKeeper client, and one managed-ledger factory for each way of
 * compressing metadata: compression is a setting of the factory. Frame and padding are the
 * broker's.
 */
final class Connection {
  private static final int MESSAGE_BYTES_MAX = 5 * 1024 * 1024;
  private static final int FRAME_PADDING_BYTES = 10 * 1024;

  final MetadataStoreExtended store;
  final CursorLedgers bookKeeper;
  private final Request client;
  private final Map<String, ManagedLedgerFactoryImpl> factories = new HashMap<>();

  Connection(String zooKeeper, String ledgersPath, Request client) throws Exception {
    this.client = client;
    store =
        MetadataStoreExtended.create(
            "zk:" + zooKeeper, MetadataStoreConfig.builder().fsyncEnable(false).build());
    ClientConfiguration settings = new ClientConfiguration();
    settings.setMetadataServiceUri(
        "zk+hierarchical://" + zooKeeper.replace(',', ';') + ledgersPath);
    settings.setNettyMaxFrameSizeBytes(
        (int) client.number("frameBytes", MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES));
    settings.setAddEntryTimeout((int) client.number("addTimeoutSeconds", 30));
    settings.setReadEntryTimeout((int) client.number("readTimeoutSeconds", 30));
    settings.setDiskWeightBasedPlacementEnabled(false);
    bookKeeper = new CursorLedgers(settings);
  }

  /** The classes' own word, not ours. */
  static String pulsarVersion() {
    String path =
        ManagedCursorImpl.class.getProtectionDomain().getCodeSource().getLocation().getPath();
    return path.replaceAll(".*/managed-ledger-(.*)\\.jar", "$1");
  }

  /**
   * Settings: cursorCompression, cursorCompressionThreshold, ledgerCompression,
   * ledgerCompressionThreshold.
   */
  ManagedLedgerFactoryImpl factory(Request config) throws Exception {
    String cursors = config.text("cursorCompression", "NONE");
    String ledgers = config.text("ledgerCompression", "NONE");
    long cursorsFrom = config.number("cursorCompressionThreshold", 16_384);
    long ledgersFrom = config.number("ledgerCompressionThreshold", 16_384);
    String key = cursors + " " + cursorsFrom + " " + ledgers + " " + ledgersFrom;
    ManagedLedgerFactoryImpl found = factories.get(key);
    if (found == null) {
      ManagedLedgerFactoryConfig settings = new ManagedLedgerFactoryConfig();
      settings.setManagedCursorInfoCompressionType(cursors);
      settings.setManagedCursorInfoCompressionThresholdInBytes(cursorsFrom);
      settings.setManagedLedgerInfoCompressionType(ledgers);
      settings.setManagedLedgerInfoCompressionThresholdInBytes(ledgersFrom);
      settings.setNumManagedLedgerSchedulerThreads(2);
      settings.setMaxCacheSize(0);
      settings.setCursorPositionFlushSeconds((int) client.number("cursorPositionFlushSeconds", 60));
      found = new ManagedLedgerFactoryImpl(store, bookKeeper, settings);
      factories.put(key, found);
    }
    return found;
  }
}
