package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.cursorkeeper.gateway.failure.CodeTable;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.ledgers.v1.ReadReply;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.stub.ServerCallStreamObserver;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * One Read: asks the bookies for small groups of entries, one group ahead, packs them into chunks of at most the bytes
 * asked for, and sends when the caller is ready. It runs on a read thread, one turn at a time.
 *
 * <p>The client library reads by count and not by bytes, so a group is sized by the entries seen so far and capped: a
 * run of large entries after small ones costs at most two groups of them.
 *
 * <p>Beyond the last add confirmed of an open ledger, if that is asked for, entries are read one at a time until no
 * bookie has the next one. There a failure ends the read with what it got, and the last message says why: nothing that
 * was acknowledged to a reader is missing.
 */
final class ReadCall {
  private static final int GROUP_ENTRIES_MAX = 64;
  private static final int GROUPS_AHEAD = 2;
  private static final int UNCONFIRMED_ENTRIES_MAX = 4_096;

  private final ReadHandle handle;
  private final ReadRequest request;
  private final ServerCallStreamObserver<ReadReply> caller;
  private final Call call;
  private final Metrics metrics;
  private final Executor readThreads;
  private final Runnable onEnd;
  private final long lastConfirmedId;
  private final long lastUnconfirmedId;
  private final int chunkBytes;
  private final Deque<CompletableFuture<LedgerEntries>> groups = new ArrayDeque<>();
  private final boolean closed;
  private final long lastAddConfirmed;
  private ReadReply.Builder chunk;
  private int chunkFilled;
  private long nextToAsk;
  private long entryBytesSeen;
  private boolean unconfirmedEnded;
  private String stoppedBy = "";
  private boolean sentAny;
  private boolean ended;

  ReadCall(ReadHandle handle, ReadRequest request, int chunkBytes,
      ServerCallStreamObserver<ReadReply> caller, Call call, Metrics metrics, Executor readThreads, Runnable onEnd) {
    this.handle = handle;
    this.request = request;
    this.caller = caller;
    this.call = call;
    this.metrics = metrics;
    this.readThreads = readThreads;
    this.onEnd = onEnd;
    this.chunkBytes = chunkBytes;
    closed = handle.getLedgerMetadata().isClosed();
    lastAddConfirmed = handle.getLastAddConfirmed();
    long first = request.getFirstEntryId();
    long last = request.getLastEntryId() < 0 ? Long.MAX_VALUE : request.getLastEntryId();
    lastConfirmedId = Math.min(last, lastAddConfirmed);
    lastUnconfirmedId = closed || !request.getUnconfirmed() ? lastConfirmedId
        : Math.min(last, Math.max(first, lastAddConfirmed + 1) + UNCONFIRMED_ENTRIES_MAX - 1);
    unconfirmedEnded = lastUnconfirmedId <= lastConfirmedId;
    nextToAsk = first;
    entryBytesSeen = lastAddConfirmed < 0 ? 1 : Math.max(1, handle.getLength() / (lastAddConfirmed + 1));
    chunk = newChunk(first);
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
          } catch (CompletionException failure) {
            if (!endsUnconfirmed(failure)) {
              throw failure;
            }
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
    while (groups.size() < GROUPS_AHEAD && nextToAsk <= lastConfirmedId) {
      long count = Math.max(1, Math.min(GROUP_ENTRIES_MAX, chunkBytes / entryBytesSeen));
      long until = Math.min(lastConfirmedId, nextToAsk + count - 1);
      add(handle.readAsync(nextToAsk, until), until);
    }
    if (groups.isEmpty() && !unconfirmedEnded) {
      if (nextToAsk > lastUnconfirmedId) {
        unconfirmedEnded = true;
        stoppedBy = lastUnconfirmedId == request.getLastEntryId() ? "" : "UNCONFIRMED_ENTRIES_MAX";
      } else {
        add(handle.readUnconfirmedAsync(nextToAsk, nextToAsk), nextToAsk);
      }
    }
  }

  private void add(CompletableFuture<LedgerEntries> group, long until) {
    nextToAsk = until + 1;
    groups.add(group);
    group.whenComplete((entries, failure) -> wake());
  }

  /** Whether the failure is of an entry beyond the last add confirmed: then it ends the read, and not the call. */
  private boolean endsUnconfirmed(CompletionException failure) {
    if (nextToAsk - 1 <= lastConfirmedId) {
      return false;
    }
    unconfirmedEnded = true;
    int code = LedgerFailure.of(Operation.READ, handle.getId(), failure).bookkeeperCode();
    // A bookie that has no entry of the ledger at all says "no such ledger".
    boolean noneThere = code == BKException.Code.NoSuchEntryException
        || code == BKException.Code.NoSuchLedgerExistsException;
    stoppedBy = noneThere ? "" : CodeTable.row(code).reason();
    return true;
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
    if (chunk.getPayloadsCount() > 0 || !sentAny || !stoppedBy.isEmpty()) {
      chunk.setStoppedBy(stoppedBy);
      send(nextToAsk);
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
