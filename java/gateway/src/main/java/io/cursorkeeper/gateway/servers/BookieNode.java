package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.common.component.LifecycleComponentStack;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;

/**
 * One real bookie on 127.0.0.1, kept small: one thread per pool, small journals and logs, no statistics, no HTTP, no
 * auto-recovery. It syncs its journal like any bookie.
 */
public final class BookieNode {
  /** Flags of the command. */
  public static final List<Flag> FLAGS = List.of(
      Flag.required("data-dir", "folder of the bookie"),
      Flag.required("port", "port of the bookie; part of its identity"),
      Flag.required("metadata-service-uri", "zk+hierarchical://HOST:PORT/ledgers"),
      Flag.number("zookeeper-timeout-ms", 10_000, "session; a killed bookie stays registered that long"));

  private static final int SKIP_LIST_BYTES = 8 << 20;
  private static final int ENTRY_LOG_BYTES = 128 << 20;
  private static final int JOURNAL_MIB = 64;
  private static final int WRITE_BUFFER_BYTES = 64 << 10;
  private static final int INDEX_PAGES = 512;

  private final LifecycleComponentStack stack;
  private final int port;

  private BookieNode(LifecycleComponentStack stack, int port) {
    this.stack = stack;
    this.port = port;
  }

  /** What one bookie needs to know. */
  public record Settings(Path folder, int port, String metadataServiceUri, int zooKeeperTimeoutMs) {
    public static Settings of(Flags flags) {
      return new Settings(Path.of(flags.text("data-dir")), flags.integer("port", 1, 65_535),
          flags.text("metadata-service-uri"), flags.integer("zookeeper-timeout-ms", 200, 120_000));
    }
  }

  /** Starts and returns once the bookie is registered and serves. */
  public static BookieNode start(Settings settings) throws Exception {
    LifecycleComponentStack stack = EmbeddedServer
        .builder(new BookieConfiguration(configuration(settings))).build().getLifecycleComponentStack();
    stack.start();
    return new BookieNode(stack, settings.port());
  }

  public String address() {
    return "127.0.0.1:" + port;
  }

  public void stop() {
    stack.close();
  }

  private static ServerConfiguration configuration(Settings settings) throws Exception {
    Path journal = Files.createDirectories(settings.folder().resolve("journal"));
    Path ledgers = Files.createDirectories(settings.folder().resolve("ledgers"));
    ServerConfiguration config = new ServerConfiguration();
    config.setMetadataServiceUri(settings.metadataServiceUri());
    config.setZkTimeout(settings.zooKeeperTimeoutMs());
    config.setBookiePort(settings.port());
    config.setAdvertisedAddress("127.0.0.1");
    config.setListeningInterface(NetworkInterface.getByInetAddress(InetAddress.getByName("127.0.0.1")).getName());
    config.setAllowLoopback(true);
    config.setJournalDirName(journal.toString());
    config.setLedgerDirNames(new String[] {ledgers.toString()});
    // Above these a bookie turns read-only; a development disk is often nearly full.
    config.setDiskUsageThreshold(0.99f);
    config.setDiskUsageWarnThreshold(0.98f);
    config.setLedgerStorageClass(SortedLedgerStorage.class.getName());
    config.setSkipListSizeLimit(SKIP_LIST_BYTES);
    config.setEntryLogSizeLimit(ENTRY_LOG_BYTES);
    config.setMaxJournalSizeMB(JOURNAL_MIB);
    config.setMaxBackupJournals(0);
    config.setProperty("journalPreAllocSizeMB", 4);
    config.setJournalMaxGroupWaitMSec(0);
    config.setJournalFlushWhenQueueEmpty(true);
    config.setWriteBufferBytes(WRITE_BUFFER_BYTES);
    config.setPageLimit(INDEX_PAGES);
    config.setServerNumIOThreads(1);
    config.setNumAddWorkerThreads(1);
    config.setNumReadWorkerThreads(1);
    config.setNumHighPriorityWorkerThreads(1);
    config.setNumLongPollWorkerThreads(0);
    config.setNumJournalCallbackThreads(1);
    config.setProperty("enableStatistics", false);
    config.setHttpServerEnabled(false);
    return config;
  }
}
