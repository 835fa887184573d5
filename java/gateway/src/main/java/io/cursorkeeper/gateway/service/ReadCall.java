package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.ledgers.v1.ReadReply;
import io.grpc.stub.ServerCallStreamObserver;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * One Read: asks the bookies for small groups of entries, one group ahead, packs them into chunks of at most the bytes
 * asked for, and sends when the caller is ready. It runs on a read thread, one turn at a time.
 *
 * <p>The client library reads by count and not by bytes, so a group is sized by the entries seen so far and capped: a
 * run of large entries after small ones costs at most two groups of them.
 */
final class ReadCall {
  private static final int GROUP_ENTRIES_MAX = 64;
  private static final int GROUPS_AHEAD = 2;

  private final ReadHandle handle;
  private final ServerCallStreamObserver<ReadReply> caller;
  private final Call call;
  private final Metrics metrics;
  private final Executor readThreads;
  private final Runnable onEnd;
  private final long lastEntryId;
  private final int chunkBytes;
  private final Deque<CompletableFuture<LedgerEntries>> groups = new ArrayDeque<>();
  private final boolean closed;
  private final long lastAddConfirmed;
  private ReadReply.Builder chunk;
  private int chunkFilled;
  private long nextToAsk;
  private long entryBytesSeen;
  private boolean sentAny;
  private boolean ended;

  ReadCall(ReadHandle handle, long firstEntryId, long lastEntryId, int chunkBytes,
      ServerCallStreamObserver<ReadReply> caller, Call call, Metrics metrics, Executor readThreads, Runnable onEnd) {
    this.handle = handle;
    this.caller = caller;
    this.call = call;
    this.metrics = metrics;
    this.readThreads = readThreads;
    this.onEnd = onEnd;
    this.chunkBytes = chunkBytes;
    closed = handle.getLedgerMetadata().isClosed();
    lastAddConfirmed = handle.getLastAddConfirmed();
    this.lastEntryId = lastEntryId < 0 ? lastAddConfirmed : Math.min(lastEntryId, lastAddConfirmed);
    nextToAsk = firstEntryId;
    entryBytesSeen = lastAddConfirmed < 0 ? 1 : Math.max(1, handle.getLength() / (lastAddConfirmed + 1));
    chunk = newChunk(firstEntryId);
  }

  /** Takes the next turn on a read thread; called when something may have changed. */
  void wake() {
    readThreads.execute(this::turn);
  }

  /** The caller is gone. */
  synchronized void cancel() {
    end();
  }

  private synchronized void turn() {
    try {
      while (!ended) {
        ask();
        if (groups.isEmpty()) {
          finish();
        } else if (!groups.peek().isDone() || !caller.isReady()) {
          return;
        } else {
          try (LedgerEntries entries = groups.poll().join()) {
            take(entries);
          }
        }
      }
    } catch (RuntimeException failure) {
      if (!ended) {
        end();
        call.fail(caller, Operation.READ, handle.getId(), failure);
      }
    }
  }

  private void ask() {
    while (groups.size() < GROUPS_AHEAD && nextToAsk <= lastEntryId) {
      long count = Math.max(1, Math.min(GROUP_ENTRIES_MAX, chunkBytes / entryBytesSeen));
      long until = Math.min(lastEntryId, nextToAsk + count - 1);
      CompletableFuture<LedgerEntries> group = handle.readAsync(nextToAsk, until);
      nextToAsk = until + 1;
      groups.add(group);
      group.whenComplete((entries, failure) -> wake());
    }
  }

  private void take(LedgerEntries entries) {
    long bytes = 0;
    long count = 0;
    for (LedgerEntry entry : entries) {
      ByteString payload = UnsafeByteOperations.unsafeWrap(entry.getEntryBytes());
      if (chunkFilled > 0 && chunkFilled + payload.size() > chunkBytes) {
        send(entry.getEntryId());
      }
      chunk.addPayloads(payload);
      chunkFilled += payload.size();
      bytes += payload.size();
      count++;
    }
    entryBytesSeen = Math.max(1, bytes / Math.max(1, count));
    metrics.add(Metrics.Counter.READ_ENTRIES, count);
    metrics.add(Metrics.Counter.READ_BYTES, bytes);
  }

  private void finish() {
    // An empty range is answered too: the caller learns the last add confirmed.
    if (chunk.getPayloadsCount() > 0 || !sentAny) {
      send(lastEntryId + 1);
    }
    end();
    caller.onCompleted();
  }

  private void send(long nextEntryId) {
    caller.onNext(chunk.build());
    sentAny = true;
    chunkFilled = 0;
    chunk = newChunk(nextEntryId);
  }

  private ReadReply.Builder newChunk(long firstEntryId) {
    return ReadReply.newBuilder()
        .setFirstEntryId(firstEntryId).setLastAddConfirmed(lastAddConfirmed).setClosed(closed);
  }

  private void end() {
    if (ended) {
      return;
    }
    ended = true;
    groups.forEach(group -> group.thenAccept(LedgerEntries::close));
    groups.clear();
    handle.closeAsync();
    onEnd.run();
  }
}
