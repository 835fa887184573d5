package io.cursorkeeper.gateway.servers;

import io.netty.buffer.ByteBuf;
import java.io.IOException;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieException;
import org.apache.bookkeeper.bookie.SortedLedgerStorage;
import org.apache.bookkeeper.proto.BookieProtocol;

/**
 * BookKeeper's sorted storage, for a bookie with more ledgers than it keeps index files open. Each
 * read of an entry tells the last add confirmed, too, which is forgotten when a ledger's index file
 * is closed. BookKeeper then looks for the last entry in the index alone, and as long as that entry
 * is in memory only, the bookie answers that the entry read does not exist.
 */
public final class LedgerStorage extends SortedLedgerStorage {
  /** An entry begins with its ledger's id, its own and the last add confirmed when it was sent. */
  private static final int LAST_ADD_CONFIRMED_AT = 2 * Long.BYTES;

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
