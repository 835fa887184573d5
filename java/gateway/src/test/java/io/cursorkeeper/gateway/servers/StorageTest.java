package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.UnixOperatingSystemMXBean;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieResources;
import org.apache.bookkeeper.bookie.CheckpointSource;
import org.apache.bookkeeper.bookie.Checkpointer;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class StorageTest {
  private static final int LEDGERS = 20;
  private static final int ALLOWED = 3;

  @TempDir Path folder;

  @Test
  void whatIsInMemoryOnlyIsReadAfterItsIndexFileWasClosed() throws Exception {
    SortedLedgerStorage storage = withOneIndexFileOpen(new SortedStorage());
    for (long ledger = 0; ledger < LEDGERS; ledger++) {
      assertEquals(1, storage.getLastAddConfirmed(ledger));
      ByteBuf entry = storage.getEntry(ledger, 2);
      assertEquals(ledger, entry.readLong());
      assertEquals(2, entry.readLong());
    }
    assertThrows(Bookie.NoEntryException.class, () -> storage.getEntry(0, 3));
    storage.shutdown();
  }

  /** When this fails, BookKeeper has mended it, and ours is not needed any more. */
  @Test
  void bookKeepersOwnDoesNotFindTheLastEntry() throws Exception {
    SortedLedgerStorage storage = withOneIndexFileOpen(new SortedLedgerStorage());
    assertThrows(Bookie.NoEntryException.class, () -> storage.getLastAddConfirmed(0));
    storage.shutdown();
  }

  /** What the number of index files of a bookie is divided by. */
  @Test
  void threeIndexFilesAreOpenForEachThatIsAllowed() throws Exception {
    SortedLedgerStorage storage = withIndexFilesOpen(new SortedStorage(), ALLOWED);
    storage.flush();
    for (long ledger = 0; ledger < LEDGERS / 2; ledger++) {
      storage.getEntry(ledger, 2).release();
    }
    assertTrue(openIndexFiles() > ALLOWED, "reads keep files of their own");
    assertTrue(openIndexFiles() <= SortedStorage.FILES_FOR_ONE_ALLOWED * ALLOWED);
    storage.shutdown();
  }

  @Test
  void threeBookiesOfAProcessLeaveItFiles() throws Exception {
    UnixOperatingSystemMXBean system =
        assertInstanceOf(
            UnixOperatingSystemMXBean.class, ManagementFactory.getOperatingSystemMXBean());
    withAnIndexFile();
    int allowed = configuration(Map.of()).getOpenFileLimit();
    long open = 3L * SortedStorage.FILES_FOR_ONE_ALLOWED * allowed;
    assertTrue(open <= system.getMaxFileDescriptorCount() / 4 * 3);
  }

  /** Else a bookie of an older release would not find what it has confirmed. */
  @Test
  void aFolderWithIndexFilesStaysWithThem() throws Exception {
    assertEquals(DbLedgerStorage.class.getName(), configuration(Map.of()).getLedgerStorageClass());
    withAnIndexFile();
    assertEquals(SortedStorage.class.getName(), configuration(Map.of()).getLedgerStorageClass());
  }

  @Test
  void aPersonsChoiceIsTaken() throws Exception {
    String other = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage";
    ServerConfiguration chosen = configuration(Map.of("ledgerStorageClass", other));
    assertEquals(other, chosen.getLedgerStorageClass());
  }

  @Test
  void soItIsWhereAPersonSaysThatItsLedgersAre() throws Exception {
    withAnIndexFile();
    Path elsewhere = Files.move(folder.resolve("ledgers"), folder.resolve("elsewhere"));
    ServerConfiguration config = configuration(Map.of("ledgerDirectories", elsewhere.toString()));
    assertEquals(SortedStorage.class.getName(), config.getLedgerStorageClass());
  }

  /** As where the folder of temporary files allows no code. */
  @Test
  void theLibraryIsLoadedFromBesideTheDataAndLeavesNoFile() throws Exception {
    String before = System.setProperty("java.io.tmpdir", folder.resolve("missing").toString());
    try {
      TableStorage.load(folder);
    } finally {
      System.setProperty("java.io.tmpdir", before);
    }
    try (Stream<Path> inside = Files.list(folder)) {
      assertEquals(0, inside.count());
    }
  }

  @Test
  void withoutAPlaceForTheLibraryItSaysWhatToDo() {
    Path missing = folder.resolve("missing");
    String before = System.setProperty("java.io.tmpdir", missing.toString());
    try {
      IllegalStateException refused =
          assertThrows(IllegalStateException.class, () -> TableStorage.load(Path.of("/proc/none")));
      assertTrue(refused.getMessage().contains("-Djava.io.tmpdir"), refused.getMessage());
    } finally {
      System.setProperty("java.io.tmpdir", before);
    }
  }

  private void withAnIndexFile() throws IOException {
    Path file = folder.resolve("ledgers/current/0/a0/a0.idx");
    Files.createDirectories(file.getParent());
    Files.createFile(file);
  }

  private ServerConfiguration configuration(Map<String, String> chosen) throws Exception {
    return new BookieSettings(
            folder,
            1,
            "127.0.0.1",
            "",
            "zk+hierarchical://127.0.0.1:1/ledgers",
            10_000,
            99,
            10_000,
            128,
            64,
            600_000,
            false,
            3,
            chosen)
        .configuration();
  }

  private long openIndexFiles() throws IOException {
    long open = 0;
    try (DirectoryStream<Path> files = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
      for (Path file : files) {
        open += indexFile(file) ? 1 : 0;
      }
    }
    return open;
  }

  private boolean indexFile(Path open) {
    try {
      Path file = Files.readSymbolicLink(open);
      return file.startsWith(folder) && file.toString().endsWith(".idx");
    } catch (IOException closedMeanwhile) {
      return false;
    }
  }

  private <S extends SortedLedgerStorage> S withOneIndexFileOpen(S storage) throws Exception {
    return withIndexFilesOpen(storage, 1);
  }

  private <S extends SortedLedgerStorage> S withIndexFilesOpen(S storage, int allowed)
      throws Exception {
    ServerConfiguration config = new ServerConfiguration();
    config.setLedgerDirNames(new String[] {folder.toString()});
    config.setOpenFileLimit(allowed);
    config.setAllowLoopback(true);
    config.setDiskUsageThreshold(0.99f);
    config.setDiskUsageWarnThreshold(0.98f);
    LedgerDirsManager folders =
        BookieResources.createLedgerDirsManager(
            config, BookieResources.createDiskChecker(config), NullStatsLogger.INSTANCE);
    storage.initialize(
        config, null, folders, folders, NullStatsLogger.INSTANCE, ByteBufAllocator.DEFAULT);
    storage.setCheckpointSource(CheckpointSource.DEFAULT);
    storage.setCheckpointer(Checkpointer.NULL);
    for (long ledger = 0; ledger < LEDGERS; ledger++) {
      storage.setMasterKey(ledger, new byte[1]);
      for (long entry = 0; entry < 3; entry++) {
        long lastAddConfirmed = entry - 1;
        storage.addEntry(
            Unpooled.buffer().writeLong(ledger).writeLong(entry).writeLong(lastAddConfirmed));
      }
    }
    return storage;
  }
}
