package io.cursorkeeper.gateway.servers;

import com.sun.management.UnixOperatingSystemMXBean;
import io.netty.buffer.ByteBuf;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.BookieProtocol;

/**
 * BookKeeper's sorted storage, for folders of bookies before 0.2.0: an index file for each ledger,
 * and for each of them that was appended to a sync of the disk at every flush.
 *
 * <p>It is mended for a bookie with more ledgers than it keeps index files open. Each read of an
 * entry tells the last add confirmed, too, which is forgotten when a ledger's index file is closed.
 * BookKeeper then looks for the last entry in the index alone, and as long as that entry is in
 * memory only, the bookie answers that the entry read does not exist.
 */
public final class SortedStorage extends SortedLedgerStorage {
  /** Of its table in memory, of which it has two. */
  static final int SKIP_LIST_BYTES = 8 << 20;

  /**
   * Each ledger that is appended to wants a page of its index in memory. Where there are fewer
   * pages than ledgers, a flush looks through all ledgers for one whose page it may write out, once
   * for each of them: most of the time of a bookie with ten thousand. So an eighth of what the
   * process may take goes to pages, up to one for each index file that stays open.
   */
  private static final int INDEX_PAGES_MIN = 512;

  private static final int INDEX_PAGE_BYTES = 8 << 10;
  private static final int INDEX_SHARE = 8;

  /**
   * Each ledger has an index file, and one that is appended to while its file is closed costs its
   * bookie an open and a close at every append. So as many stay open as leave a quarter of what the
   * system allows the process, up to BookKeeper's own 20,000. A bookie that finds no file left to
   * open turns read-only for good.
   */
  private static final int OPEN_INDEX_FILES_MIN = 16;

  private static final int OPEN_INDEX_FILES_MAX = 20_000;

  /** This many where the system does not say how many files it allows. */
  private static final int OPEN_INDEX_FILES_UNKNOWN = 1_000;

  /**
   * BookKeeper keeps this many for each that it is allowed: as many for writes, and twice as many
   * for reads, which may be of other ledgers.
   */
  static final int FILES_FOR_ONE_ALLOWED = 3;

  /** Below {@code current}: two folders by the ledger's id, then its file. */
  private static final int INDEX_FILE_DEPTH = 3;

  /** An entry begins with its ledger's id, its own and the last add confirmed when it was sent. */
  private static final int LAST_ADD_CONFIRMED_AT = 2 * Long.BYTES;

  /** Whether ledgers in one of these folders have index files. */
  static boolean isInOneOf(String... folders) throws IOException {
    for (String folder : folders) {
      if (isIn(Path.of(folder, "current"))) {
        return true;
      }
    }
    return false;
  }

  private static boolean isIn(Path current) throws IOException {
    if (!Files.isDirectory(current)) {
      return false;
    }
    try (Stream<Path> files =
        Files.find(
            current,
            INDEX_FILE_DEPTH,
            (path, attributes) -> path.getFileName().toString().endsWith(".idx"))) {
      return files.findAny().isPresent();
    }
  }

  /** With so many bytes of memory for this bookie, and so many bookies in this process. */
  static void configure(ServerConfiguration config, long memoryBytes, int bookiesOfProcess) {
    config.setLedgerStorageClass(SortedStorage.class.getName());
    config.setSkipListSizeLimit(SKIP_LIST_BYTES);
    config.setOpenFileLimit(openIndexFiles(bookiesOfProcess));
    config.setPageSize(INDEX_PAGE_BYTES);
    long pages = memoryBytes / INDEX_SHARE / INDEX_PAGE_BYTES;
    config.setPageLimit((int) Math.max(INDEX_PAGES_MIN, Math.min(OPEN_INDEX_FILES_MAX, pages)));
  }

  private static int openIndexFiles(int bookiesOfProcess) {
    if (!(ManagementFactory.getOperatingSystemMXBean()
        instanceof UnixOperatingSystemMXBean system)) {
      return OPEN_INDEX_FILES_UNKNOWN;
    }
    long allowed = system.getMaxFileDescriptorCount();
    if (allowed <= 0) {
      return OPEN_INDEX_FILES_UNKNOWN;
    }
    long mine = allowed / 4 * 3 / bookiesOfProcess;
    return (int)
        Math.max(
            OPEN_INDEX_FILES_MIN, Math.min(OPEN_INDEX_FILES_MAX, mine / FILES_FOR_ONE_ALLOWED));
  }

  @Override
  public long getLastAddConfirmed(long ledgerId) throws IOException {
    try {
      return super.getLastAddConfirmed(ledgerId);
    } catch (Bookie.NoEntryException notInTheIndex) {
      return inMemory(ledgerId, notInTheIndex);
    }
  }

  private long inMemory(long ledgerId, Bookie.NoEntryException notInTheIndex) throws IOException {
    ByteBuf last;
    try {
      last = getEntry(ledgerId, BookieProtocol.LAST_ADD_CONFIRMED);
    } catch (BookieException refused) {
      throw new IOException(refused);
    }
    if (last == null) {
      throw notInTheIndex;
    }
    try {
      return last.getLong(last.readerIndex() + LAST_ADD_CONFIRMED_AT);
    } finally {
      last.release();
    }
  }
}
