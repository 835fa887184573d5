package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.cursorkeeper.gateway.access.Audited;
import io.cursorkeeper.gateway.failure.CodeTable;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.gateway.process.OutOfMemory;
import io.cursorkeeper.ledgers.v1.ReadReply;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.stub.ServerCallStreamObserver;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * One Read: asks the bookies for small groups of entries, one group ahead, packs them into chunks
 * of at most the bytes asked for, and sends each when the caller has taken the one before. It runs
 * on a read thread, one turn at a time.
 *
 * <p>The client library reads by count and not by bytes, and only a bookie knows how large an entry
 * is. So a group takes room in the budget for the most that it can be, as far as the ledger's
 * length does not say less, and gives back what it was not. Where the entries so far were small, a
 * few are asked for on the guess that the next ones are, too: so few, over all reads, that the
 * process survives if all of them are wrong. Room is held until the caller has taken the bytes;
 * whoever waits for room sends first what it has.
 *
 * <p>Beyond the last add confirmed of an open ledger, if that is asked for, entries are read one at
 * a time until no bookie has the next one. There a failure ends the read with what it got, and the
 * last message says why: nothing that was acknowledged to a reader is missing.
 */
final class ReadCall {
  private static final int GROUP_ENTRIES_MAX = 64;
  private static final int GROUPS_AHEAD = 2;

  /** A group may take this part of the budget, or one entry. */
  private static final int GROUPS_IN_BUDGET = 8;

  private static final int UNCONFIRMED_ENTRIES_MAX = 4_096;

  /** An entry is small if so many of them are smaller than one may be. */
  private static final int SMALL_PARTS = 32;

  private record Group(CompletableFuture<LedgerEntries> entries, long bytesMax, int guesses) {}

  private final ReadHandle handle;
  private final ReadRequest request;
  private final ServerCallStreamObserver<ReadReply> caller;
  private final Shared shared;
  private final ReadRoom budget;
  private final Audited asked;
  private final Peers.Peer peer;
  private final Runnable onEnd;
  private final long lastConfirmedId;
  private final long lastUnconfirmedId;
  private final int chunkBytes;
  private final Deque<Group> groups = new ArrayDeque<>();
  private final Deque<ByteString> entries = new ArrayDeque<>();
  private final Runnable granted;
  private final boolean closed;
  private final long lastAddConfirmed;
  private ReadReply.Builder chunk;
  private int chunkFilled;
  private long nextToAsk;
  private long nextToPack;
  private long lengthLeft;
  private long largestSeen;

  /** Room that is held for what has arrived and was not taken by the caller yet. */
  private long held;

  /** The part of {@code held} that was given to the transport. */
  private long sending;

  private long wanted;
  private boolean isWaiting;
  private boolean isGranted;
  private long blockedSinceNanos;
  private boolean unconfirmedEnded;
  private String stoppedBy = "";
  private boolean sentAny;
  private boolean ended;

  record Shared(Call call, Metrics metrics, Executor threads, int entryBytesMax, long stallMaxMs) {}

  ReadCall(
      ReadHandle handle,
      ReadRequest request,
      int chunkBytes,
      ServerCallStreamObserver<ReadReply> caller,
      Shared shared,
      ReadRoom budget,
      Audited asked,
      Peers.Peer peer,
      Runnable onEnd) {
    this.handle = handle;
    this.request = request;
    this.caller = caller;
    this.shared = shared;
    this.budget = budget;
    this.asked = asked;
    this.peer = peer;
    this.onEnd = onEnd;
    this.chunkBytes = chunkBytes;
    // Never on the thread of another read, which holds its own lock.
    this.granted = () -> shared.threads().execute(this::granted);
    closed = handle.getLedgerMetadata().isClosed();
    lastAddConfirmed = handle.getLastAddConfirmed();
    long first = request.getFirstEntryId();
    long last = request.getLastEntryId() < 0 ? Long.MAX_VALUE : request.getLastEntryId();
    lastConfirmedId = Math.min(last, lastAddConfirmed);
    lastUnconfirmedId =
        closed || !request.getUnconfirmed()
            ? lastConfirmedId
            : Math.min(last, Math.max(first, lastAddConfirmed + 1) + UNCONFIRMED_ENTRIES_MAX - 1);
    unconfirmedEnded = lastUnconfirmedId <= lastConfirmedId;
    nextToAsk = first;
    nextToPack = first;
    lengthLeft = Math.max(1, handle.getLength());
    chunk = newChunk(first);
  }

  /** Takes the next turn on a read thread; called when something may have changed. */
  void wake() {
    shared.threads().execute(this::turn);
  }

  /** The caller is gone. */
  synchronized void cancel() {
    end();
  }

  /** Cuts the caller off if it has not taken anything for too long; called every second or so. */
  void look(long nowNanos) {
    long since;
    synchronized (this) {
      since = ended ? 0 : blockedSinceNanos;
    }
    if (since != 0 && nowNanos - since > TimeUnit.MILLISECONDS.toNanos(shared.stallMaxMs())) {
      peer.cut(
          "did not take a chunk of its read of ledger "
              + handle.getId()
              + " for "
              + shared.stallMaxMs()
              + " ms");
    }
  }

  private synchronized void turn() {
    try {
      while (!ended && step()) {
        // The next one.
      }
    } catch (Throwable failure) {
      OutOfMemory.look(failure);
      if (!ended) {
        end();
        shared.call().fail(caller, Operation.READ, asked, failure);
      }
    }
  }

  // Whether there is more to do now; else something wakes it.
  private boolean step() {
    boolean free = caller.isReady();
    if (free) {
      giveBack(sending);
      sending = 0;
      blockedSinceNanos = 0;
    }
    ask();
    ByteString next = entries.peek();
    if (next != null && (chunkFilled == 0 || chunkFilled + next.size() <= chunkBytes)) {
      chunk.addPayloads(entries.poll());
      chunkFilled += next.size();
      nextToPack++;
      return true;
    }
    boolean last =
        groups.isEmpty()
            && next == null
            && !isWaiting
            && nextToAsk > lastConfirmedId
            && unconfirmedEnded;
    // Who waits for room must not sit on some: what is packed goes out first.
    boolean toSend =
        next != null
            || (chunkFilled > 0 && (last || isWaiting))
            || (last && (!sentAny || !stoppedBy.isEmpty()));
    if ((toSend || last) && !free) {
      blockedSinceNanos =
          blockedSinceNanos == 0 ? Math.max(1, System.nanoTime()) : blockedSinceNanos;
      return false;
    }
    if (toSend) {
      // An empty range is answered too: the caller learns the last add confirmed.
      if (last) {
        chunk.setStoppedBy(stoppedBy);
        stoppedBy = "";
      }
      send();
      return true;
    }
    if (last) {
      // The caller has taken everything: nothing of this call is left in the transport.
      end();
      caller.onCompleted();
      return false;
    }
    if (groups.isEmpty() || !groups.peek().entries().isDone()) {
      return false;
    }
    take(groups.poll());
    return true;
  }

  private void ask() {
    while (!isWaiting && groups.size() < GROUPS_AHEAD && nextToAsk <= lastConfirmedId) {
      long share = Math.max(shared.entryBytesMax(), budget.bytesMax() / GROUPS_IN_BUDGET);
      long left = lastConfirmedId - nextToAsk + 1;
      long fit =
          lengthLeft <= share ? GROUP_ENTRIES_MAX : Math.max(1, share / shared.entryBytesMax());
      long count = Math.min(Math.min(fit, GROUP_ENTRIES_MAX), left);
      long bytes = Math.min(lengthLeft, count * shared.entryBytesMax());
      long usual = 2 * Math.max(largestSeen, lengthLeft / left);
      int guesses = 0;
      if (lengthLeft > share && usual <= shared.entryBytesMax() / SMALL_PARTS) {
        guesses = budget.guess((int) Math.min(GROUP_ENTRIES_MAX, left));
      }
      if (guesses > count) {
        count = guesses;
        bytes = count * Math.max(1, usual);
      }
      if (room(bytes)) {
        add(
            handle.readAsync(nextToAsk, nextToAsk + count - 1),
            nextToAsk + count - 1,
            bytes,
            guesses);
      } else {
        budget.guessed(guesses);
      }
    }
    if (!isWaiting && groups.isEmpty() && nextToAsk > lastConfirmedId && !unconfirmedEnded) {
      if (nextToAsk > lastUnconfirmedId) {
        unconfirmedEnded = true;
        stoppedBy = lastUnconfirmedId == request.getLastEntryId() ? "" : "UNCONFIRMED_ENTRIES_MAX";
      } else if (room(shared.entryBytesMax())) {
        add(
            handle.readUnconfirmedAsync(nextToAsk, nextToAsk),
            nextToAsk,
            shared.entryBytesMax(),
            0);
      }
    }
  }

  // Whether there is room; if nothing else is under way it is waited for.
  private boolean room(long bytes) {
    if (isGranted) {
      isGranted = false;
      if (wanted >= bytes) {
        budget.giveBack(wanted - bytes);
        return true;
      }
      budget.giveBack(wanted);
    }
    if (budget.take(bytes)) {
      return true;
    }
    isWaiting = true;
    wanted = bytes;
    budget.await(bytes, granted);
    return false;
  }

  private void granted() {
    synchronized (this) {
      isWaiting = false;
      isGranted = !ended;
      if (!ended) {
        wake();
        return;
      }
    }
    budget.giveBack(wanted);
  }

  private void add(CompletableFuture<LedgerEntries> group, long until, long bytesMax, int guesses) {
    nextToAsk = until + 1;
    groups.add(new Group(group, bytesMax, guesses));
    group.whenComplete(
        (entries, failure) -> {
          // Outside of the lock: what is known of them now is no guess any more.
          budget.guessed(guesses);
          wake();
        });
  }

  private void take(Group group) {
    long bytes = 0;
    long count = 0;
    long largest = 0;
    try (LedgerEntries got = group.entries().join()) {
      for (LedgerEntry entry : got) {
        ByteString payload = UnsafeByteOperations.unsafeWrap(entry.getEntryBytes());
        entries.add(payload);
        bytes += payload.size();
        largest = Math.max(largest, payload.size());
        count++;
      }
    } catch (CompletionException failure) {
      budget.giveBack(group.bytesMax());
      if (!endsUnconfirmed(failure)) {
        throw failure;
      }
      return;
    }
    held += bytes;
    if (bytes > group.bytesMax()) {
      budget.exceed(bytes - group.bytesMax());
    } else {
      budget.giveBack(group.bytesMax() - bytes);
    }
    // What was large once counts for a while.
    largestSeen = Math.max(largest, largestSeen - largestSeen / 8);
    lengthLeft = Math.max(1, lengthLeft - bytes);
    shared.metrics().add(Metrics.Counter.READ_ENTRIES, count);
    shared.metrics().add(Metrics.Counter.READ_BYTES, bytes);
  }

  /**
   * Whether the failure is of an entry beyond the last add confirmed: then it ends the read, and
   * not the call.
   */
  private boolean endsUnconfirmed(CompletionException failure) {
    if (nextToAsk - 1 <= lastConfirmedId) {
      return false;
    }
    unconfirmedEnded = true;
    int code = LedgerFailure.of(Operation.READ, handle.getId(), failure).bookkeeperCode();
    // A bookie that has no entry of the ledger at all says "no such ledger".
    boolean noneThere =
        code == BKException.Code.NoSuchEntryException
            || code == BKException.Code.NoSuchLedgerExistsException;
    stoppedBy = noneThere ? "" : CodeTable.row(code).reason();
    return true;
  }

  private void send() {
    caller.onNext(chunk.build());
    sending = Math.min(held, sending + chunkFilled);
    sentAny = true;
    chunkFilled = 0;
    chunk = newChunk(nextToPack);
  }

  private void giveBack(long bytes) {
    if (bytes > 0) {
      held -= bytes;
      budget.giveBack(bytes);
    }
  }

  private ReadReply.Builder newChunk(long firstEntryId) {
    return ReadReply.newBuilder()
        .setFirstEntryId(firstEntryId)
        .setLastAddConfirmed(lastAddConfirmed)
        .setClosed(closed);
  }

  private void end() {
    if (ended) {
      return;
    }
    ended = true;
    groups.forEach(
        group ->
            group
                .entries()
                .whenComplete(
                    (entries, failure) -> {
                      if (entries != null) {
                        entries.close();
                      }
                      budget.giveBack(group.bytesMax());
                    }));
    groups.clear();
    entries.clear();
    giveBack(held);
    if (isGranted) {
      isGranted = false;
      budget.giveBack(wanted);
    } else if (isWaiting) {
      budget.forget(granted);
    }
    handle.closeAsync();
    onEnd.run();
  }
}
