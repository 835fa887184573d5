package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.nio.file.Path;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieResources;
import org.apache.bookkeeper.bookie.CheckpointSource;
import org.apache.bookkeeper.bookie.Checkpointer;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LedgerStorageTest {
  private static final int LEDGERS = 20;

  @TempDir Path folder;

  @Test
  void whatIsInMemoryOnlyIsReadAfterItsIndexFileWasClosed() throws Exception {
    SortedLedgerStorage storage = withOneIndexFileOpen(new LedgerStorage());
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

  private <S extends SortedLedgerStorage> S withOneIndexFileOpen(S storage) throws Exception {
    ServerConfiguration config = new ServerConfiguration();
    config.setLedgerDirNames(new String[] {folder.toString()});
    config.setOpenFileLimit(1);
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
