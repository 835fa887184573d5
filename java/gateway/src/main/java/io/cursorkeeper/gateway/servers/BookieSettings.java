package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.systems.SettingsFile;
import io.netty.util.internal.PlatformDependent;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * What one bookie needs to know, as BookKeeper's configuration: kept small, one thread per pool,
 * small journals and logs, no statistics, no HTTP, no auto-recovery. It syncs its journal like any
 * bookie.
 *
 * @param host address to bind and to be known by, unless there is an advertised one
 * @param advertisedAddress name to be known by while it listens everywhere; empty: the host
 * @param bookiesOfProcess so many share the files that the system allows this process
 * @param conf BookKeeper's own settings, over all others
 */
public record BookieSettings(
    Path folder,
    int port,
    String host,
    String advertisedAddress,
    String metadataServiceUri,
    int zooKeeperTimeoutMs,
    int diskUsageThresholdPercent,
    int diskCheckIntervalMs,
    int entryLogMib,
    int journalMib,
    int gcIntervalMs,
    boolean readOnly,
    int bookiesOfProcess,
    Map<String, String> conf) {

  private static final int DISK_USAGE_THRESHOLD_PERCENT = 99;
  private static final int DISK_CHECK_INTERVAL_MS = 10_000;
  private static final int ENTRY_LOG_MIB = 128;
  private static final int JOURNAL_MIB = 64;
  private static final int GC_INTERVAL_MS = 600_000;

  /** Flags of the command. */
  public static final List<Flag> FLAGS =
      List.of(
          Flag.required("data-dir", "folder of the bookie"),
          Flag.required("port", "port of the bookie; part of its identity"),
          Flag.required(
              "metadata-service-uri", "zk+hierarchical://HOST:PORT/ledgers; more hosts after ;"),
          Flag.text("host", "127.0.0.1", "address to bind, and identity"),
          Flag.text(
              "advertised-address", "", "name that is the identity instead; binds all addresses"),
          Flag.number(
              "zookeeper-timeout-ms",
              10_000,
              "session; a killed bookie stays registered that long"),
          Flag.number(
              "disk-usage-threshold-percent",
              DISK_USAGE_THRESHOLD_PERCENT,
              "fuller: read-only until it is not"),
          Flag.number(
              "disk-check-interval-ms", DISK_CHECK_INTERVAL_MS, "between looks at the disk"),
          Flag.number("entry-log-mib", ENTRY_LOG_MIB, "size of one entry log"),
          Flag.number("journal-mib", JOURNAL_MIB, "size of one journal"),
          Flag.number(
              "gc-interval-ms",
              GC_INTERVAL_MS,
              "deleted ledgers give their room back after this, log by log"),
          Flag.text("read-only", "false", "true: take no new ledgers and entries"),
          Flag.text("bookie-conf", "", "file of BookKeeper's own settings, over all of these"));

  private static final int MIB = 1 << 20;

  /** Room in which a full bookie still writes out what it has taken, in either storage. */
  private static final int FLUSH_ROOM_BYTES =
      Math.max(TableStorage.WRITE_CACHE_MIB * MIB, 2 * SortedStorage.SKIP_LIST_BYTES);

  private static final int INDEX_ROOM_BYTES = MIB;
  private static final int WRITE_BUFFER_BYTES = 64 << 10;
  private static final int JOURNAL_STEP_MIB = 4;

  /** The settings of a command line; throws IllegalArgumentException with a message for people. */
  public static BookieSettings of(Flags flags) {
    return new BookieSettings(
        Path.of(flags.text("data-dir")),
        flags.integer("port", 1, 65_535),
        flags.text("host"),
        flags.text("advertised-address"),
        flags.text("metadata-service-uri"),
        flags.integer("zookeeper-timeout-ms", 200, 120_000),
        flags.integer("disk-usage-threshold-percent", 1, 99),
        flags.integer("disk-check-interval-ms", 10, 3_600_000),
        flags.integer("entry-log-mib", 1, 1_024),
        flags.integer("journal-mib", 1, 2_048),
        // Compaction, every hour, must not come more often.
        flags.integer("gc-interval-ms", 100, 3_600_000),
        flags.yes("read-only"),
        1,
        SettingsFile.ofFlag(flags, "bookie-conf"));
  }

  /** A bookie for this machine alone, one of so many in this process. */
  public static BookieSettings local(
      Path folder, int port, String metadataServiceUri, int zooKeeperTimeoutMs, int bookies) {
    return new BookieSettings(
        folder,
        port,
        "127.0.0.1",
        "",
        metadataServiceUri,
        zooKeeperTimeoutMs,
        DISK_USAGE_THRESHOLD_PERCENT,
        DISK_CHECK_INTERVAL_MS,
        ENTRY_LOG_MIB,
        JOURNAL_MIB,
        GC_INTERVAL_MS,
        false,
        bookies,
        Map.of());
  }

  public BookieSettings {
    if (advertisedAddress.isEmpty() && (host.equals("0.0.0.0") || host.equals("::"))) {
      throw new IllegalArgumentException(
          "--host "
              + host
              + " is no identity: give --advertised-address, the name by which others reach this"
              + " bookie");
    }
  }

  /** HOST:PORT as clients and the cookie know it. */
  public String identity() {
    return (advertisedAddress.isEmpty() ? host : advertisedAddress) + ":" + port;
  }

  ServerConfiguration configuration() throws Exception {
    ServerConfiguration config = new ServerConfiguration();
    config.setMetadataServiceUri(metadataServiceUri);
    config.setZkTimeout(zooKeeperTimeoutMs);
    config.setForceReadOnlyBookie(readOnly);
    address(config);
    disk(config);
    small(config);
    // Where the ledgers are may be said there, too.
    conf.forEach(config::setProperty);
    if (SortedStorage.isInOneOf(config.getLedgerDirNames())) {
      long memory = PlatformDependent.estimateMaxDirectMemory() / bookiesOfProcess;
      SortedStorage.configure(config, memory, bookiesOfProcess);
    } else {
      TableStorage.configure(config);
    }
    conf.forEach(config::setProperty);
    return config;
  }

  private void address(ServerConfiguration config) throws Exception {
    config.setBookiePort(port);
    config.setAllowLoopback(true);
    // Said outright: else a bookie that registers again resolves its own name first, and when that
    // fails it is
    // silently never registered again.
    config.setBookieId(identity());
    if (advertisedAddress.isEmpty()) {
      config.setAdvertisedAddress(host);
      NetworkInterface bound = NetworkInterface.getByInetAddress(InetAddress.getByName(host));
      if (bound == null) {
        throw new IllegalStateException("--host " + host + " is no address of this machine");
      }
      config.setListeningInterface(bound.getName());
    } else {
      config.setAdvertisedAddress(advertisedAddress);
    }
  }

  private void disk(ServerConfiguration config) throws Exception {
    config.setJournalDirName(DataFolder.of(DataFolder.named(folder).resolve("journal")).toString());
    config.setLedgerDirNames(new String[] {DataFolder.of(folder.resolve("ledgers")).toString()});
    // Above the first a bookie turns read-only; a development disk is often nearly full.
    config.setDiskUsageThreshold(diskUsageThresholdPercent / 100f);
    config.setDiskUsageWarnThreshold(Math.max(1, diskUsageThresholdPercent - 1) / 100f);
    config.setDiskCheckInterval(diskCheckIntervalMs);
    // Defaults ask for 100 MiB and more, which a small volume never has: its bookie could not even
    // start read-only.
    config.setMinUsableSizeForEntryLogCreation(FLUSH_ROOM_BYTES);
    config.setMinUsableSizeForIndexFileCreation(INDEX_ROOM_BYTES);
    config.setEntryLogSizeLimit((long) entryLogMib * MIB);
    config.setGcWaitTime(gcIntervalMs);
    config.setMaxJournalSizeMB(journalMib);
    config.setMaxBackupJournals(0);
    config.setProperty("journalPreAllocSizeMB", Math.min(JOURNAL_STEP_MIB, journalMib));
  }

  private static void small(ServerConfiguration config) {
    config.setJournalMaxGroupWaitMSec(0);
    config.setJournalFlushWhenQueueEmpty(true);
    config.setWriteBufferBytes(WRITE_BUFFER_BYTES);
    config.setServerNumIOThreads(1);
    config.setNumAddWorkerThreads(1);
    config.setNumReadWorkerThreads(1);
    config.setNumHighPriorityWorkerThreads(1);
    config.setNumLongPollWorkerThreads(0);
    config.setNumJournalCallbackThreads(1);
    config.setProperty("enableStatistics", false);
    config.setHttpServerEnabled(false);
  }
}
