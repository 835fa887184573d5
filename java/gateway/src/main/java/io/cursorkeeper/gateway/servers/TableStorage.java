package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Failed;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.rocksdb.NativeLibraryLoader;

/**
 * BookKeeper's storage with one index for all ledgers, a table of RocksDB, which Pulsar's bookies
 * have, too. Ten thousand cursors that each have a ledger are one sync of the disk at a flush.
 */
final class TableStorage {
  private static final String NAME = DbLedgerStorage.class.getName();
  private static final int MIB = 1 << 20;

  /** Half of it is filled while the other is written out; a half has room for the largest entry. */
  static final int WRITE_CACHE_MIB = 16;

  private static final int READ_AHEAD_MIB = 8;
  private static final int BLOCK_CACHE_BYTES = 8 * MIB;

  /** Of each of the two tables; RocksDB takes it as it is filled. */
  private static final int TABLE_BUFFER_MIB = 8;

  private TableStorage() {}

  static void configure(ServerConfiguration config) {
    config.setLedgerStorageClass(NAME);
    config.setProperty("dbStorage_writeCacheMaxSizeMb", WRITE_CACHE_MIB);
    config.setProperty("dbStorage_readAheadCacheMaxSizeMb", READ_AHEAD_MIB);
    config.setProperty("dbStorage_rocksDB_blockCacheSize", BLOCK_CACHE_BYTES);
    config.setProperty("dbStorage_rocksDB_writeBufferSizeMB", TABLE_BUFFER_MIB);
  }

  static boolean isSet(ServerConfiguration config) {
    return NAME.equals(config.getLedgerStorageClass());
  }

  /**
   * Loads RocksDB's code, which is a file of its own. The folder of temporary files may not allow
   * code, as in a container whose own file system is read-only; then it is put beside the data.
   */
  static synchronized void load(Path folder) throws IOException {
    Path temporary = Path.of(System.getProperty("java.io.tmpdir"));
    try {
      loadFrom(temporary);
    } catch (IOException | RuntimeException | UnsatisfiedLinkError refused) {
      try {
        loadFrom(DataFolder.named(folder));
      } catch (IOException | RuntimeException | UnsatisfiedLinkError again) {
        again.addSuppressed(refused);
        throw new IllegalStateException(
            "a bookie's index needs RocksDB, whose code can be loaded neither from "
                + temporary
                + " ("
                + Failed.inOneLine(refused)
                + ") nor from "
                + folder
                + " ("
                + Failed.inOneLine(again)
                + "): name a folder with room and without noexec by -Djava.io.tmpdir",
            again);
      }
    }
  }

  // What is loaded stays so without its file; a process that is killed would leave it there.
  private static void loadFrom(Path parent) throws IOException {
    Path own = Files.createTempDirectory(parent, "rocksdb");
    try {
      NativeLibraryLoader.getInstance().loadLibrary(own.toString());
    } finally {
      try (Stream<Path> inside = Files.list(own)) {
        for (Path file : inside.toList()) {
          Files.delete(file);
        }
      }
      Files.delete(own);
    }
  }
}
