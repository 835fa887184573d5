package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.cursorkeeper.gateway.process.OutOfMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.LongPredicate;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * The entries of a small ledger that was just fenced: all of them, or none, and then whoever wants
 * them reads, and learns why. A fence that succeeded never fails for them.
 */
final class FencedEntries {
  static final int ENTRIES_MAX = 64;
  static final long BYTES_MAX = 16 << 10;

  /** A takeover does not wait longer for entries that come late. */
  static final long WAIT_MAX_MS = 250;

  private FencedEntries() {}

  /** {@code reserves}: whether the answer may take so many bytes; they are kept for it then. */
  static CompletableFuture<List<ByteString>> of(
      ReadHandle ledger, long wantedBytesMax, LongPredicate reserves) {
    long last = ledger.getLastAddConfirmed();
    long length = ledger.getLength();
    boolean isSmall =
        last >= 0 && last < ENTRIES_MAX && length <= Math.min(wantedBytesMax, BYTES_MAX);
    if (wantedBytesMax == 0 || !isSmall || !reserves.test(length)) {
      return none();
    }
    CompletableFuture<LedgerEntries> read;
    try {
      read = ledger.readAsync(0, last);
    } catch (RuntimeException failure) {
      OutOfMemory.look(failure);
      return none();
    }
    // What comes late is taken apart all the same, so that its buffers are given back.
    return read.thenApply(entries -> payloads(entries, length))
        .exceptionally(
            failure -> {
              OutOfMemory.look(failure);
              return List.of();
            })
        .completeOnTimeout(List.of(), WAIT_MAX_MS, TimeUnit.MILLISECONDS);
  }

  private static List<ByteString> payloads(LedgerEntries entries, long bytesMax) {
    try (entries) {
      List<ByteString> payloads = new ArrayList<>();
      long bytes = 0;
      for (LedgerEntry entry : entries) {
        ByteString payload = UnsafeByteOperations.unsafeWrap(entry.getEntryBytes());
        payloads.add(payload);
        bytes += payload.size();
      }
      return bytes > bytesMax ? List.of() : payloads;
    }
  }

  private static CompletableFuture<List<ByteString>> none() {
    return CompletableFuture.completedFuture(List.of());
  }
}
