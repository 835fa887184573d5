package io.cursorkeeper.gateway.append;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.access.Role;
import io.cursorkeeper.gateway.access.Whose;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.grpc.Status;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One write handle: numbers its entries, binds it to the first stream that appends, answers in
 * order, and stops for good at the first failed add.
 *
 * <p>Invariants: {@code acknowledged <= pushed}; an answer for an entry is given after the answers
 * of all earlier ones; after {@code failure} is set nothing is sent to a bookie.
 */
public final class OpenLedger {
  private static final Logger LOG = LoggerFactory.getLogger(OpenLedger.class);

  /**
   * Who hears of the entries; called in order, on a thread of the BookKeeper client or of the
   * caller.
   */
  public interface Listener {
    void acknowledged(long ledgerId, long lastEntryId);

    void failed(long ledgerId, long firstEntryId, LedgerFailure failure);

    /** The ledger was closed or let go; nothing follows. */
    void ended(OpenLedger ledger);
  }

  /** Who says of whose handles it may use any. */
  @FunctionalInterface
  public interface Appending {
    /** {@code creator}: the role of whoever created the ledger. */
    boolean mayAppend(long ledgerId, Role creator, Whose whose);
  }

  private record Refusal(long afterEntryId, long firstEntryId, LedgerFailure failure) {}

  private final WriteHandle handle;
  private final Role creator;
  private final Whose whose;
  private final Window window;
  private final AppendMeter meter;
  private final int entryBytesMax;
  // Refusals wait for the answers of earlier entries, else they would seem to be about those.
  private final Queue<Refusal> refusals = new ArrayDeque<>();
  private Listener listener;
  private long pushed = -1;
  private long acknowledged = -1;
  private LedgerFailure failure;
  // Since its creation, or since it failed.
  private long sinceNanos = System.nanoTime();
  private boolean released;
  private CompletableFuture<Void> drained;

  OpenLedger(
      WriteHandle handle,
      Role creator,
      Whose whose,
      Window window,
      AppendMeter meter,
      int entryBytesMax) {
    this.handle = handle;
    this.creator = creator;
    this.whose = whose;
    this.window = window;
    this.meter = meter;
    this.entryBytesMax = entryBytesMax;
  }

  public long id() {
    return handle.getId();
  }

  /** Whether somebody may append to it. */
  boolean isFor(Appending somebody) {
    return somebody.mayAppend(id(), creator, whose);
  }

  /** Binds the handle to the first who asks; false for everybody else. */
  synchronized boolean bind(Listener to) {
    if (listener == null && !released) {
      listener = to;
    }
    return listener == to;
  }

  /**
   * Appends payloads that the caller numbers from {@code firstEntryId}; every answer goes to the
   * listener.
   */
  synchronized void append(Listener from, long firstEntryId, Iterable<ByteString> payloads) {
    if (listener != from) {
      from.failed(id(), firstEntryId, OpenLedgers.noHandle(id()));
      return;
    }
    long entryId = firstEntryId;
    for (ByteString payload : payloads) {
      LedgerFailure refusal = refusal(entryId, payload.size());
      if (refusal != null) {
        refuse(entryId, refusal);
        return;
      }
      push(entryId++, payload.toByteArray());
    }
  }

  /**
   * Ends the handle once everything in flight is answered; the ledger is closed at its last
   * acknowledged entry.
   */
  CompletableFuture<Void> close() {
    CompletableFuture<Void> idle;
    synchronized (this) {
      if (failure != null) {
        return CompletableFuture.failedFuture(failure.afterwards(id()));
      }
      idle = drained();
    }
    return idle.thenCompose(
        nothing -> {
          LedgerFailure failed;
          Listener last;
          synchronized (this) {
            failed = failure;
            last = listener;
          }
          if (last != null) {
            last.ended(this);
          }
          return failed == null
              ? handle.closeAsync()
              : CompletableFuture.failedFuture(failed.afterwards(id()));
        });
  }

  /** Done when everything in flight is answered; from now on it takes no more entries. */
  synchronized CompletableFuture<Void> drain() {
    return drained();
  }

  /**
   * Lets go of the handle: its stream is gone, so nobody hears of its entries any more. Closing it
   * in the background only frees what the client holds; the ledger ends at an acknowledged entry,
   * and a recovery finds all of them.
   */
  void release() {
    CompletableFuture<Void> idle;
    Listener last;
    synchronized (this) {
      if (released) {
        return;
      }
      released = true;
      last = listener;
      listener = null;
      refusals.clear();
      idle = drained();
    }
    if (last != null) {
      last.ended(this);
    }
    idle.whenComplete(
        (nothing, never) ->
            handle
                .closeAsync()
                .whenComplete(
                    (closed, failed) -> {
                      if (failed != null) {
                        LOG.debug("abandoned ledger {} was not closed", id(), failed);
                      }
                    }));
  }

  /** Whether it is of no use for this long: no stream appended to it, or it failed. */
  synchronized boolean uselessFor(long millis) {
    return (listener == null || failure != null)
        && TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sinceNanos) > millis;
  }

  private LedgerFailure refusal(long entryId, int size) {
    if (failure != null) {
      return failure.afterwards(id());
    }
    if (drained != null) {
      return LedgerFailure.roll(
          "CLOSING", "ledger " + id() + " is being closed and takes no more entries");
    }
    if (entryId != pushed + 1) {
      return LedgerFailure.refused(
          Status.Code.FAILED_PRECONDITION,
          "UNEXPECTED_ENTRY_ID",
          "ledger "
              + id()
              + " continues with entry "
              + (pushed + 1)
              + ", not "
              + entryId
              + ": a repeated or a lost request");
    }
    if (size > entryBytesMax) {
      return LedgerFailure.refused(
          Status.Code.INVALID_ARGUMENT,
          "ENTRY_TOO_LARGE",
          "entry "
              + entryId
              + " of ledger "
              + id()
              + " has "
              + size
              + " bytes, the limit is "
              + entryBytesMax
              + "; write smaller entries");
    }
    return null;
  }

  private void push(long entryId, byte[] entry) {
    pushed = entryId;
    long startNanos = System.nanoTime();
    handle
        .appendAsync(new Payload(entry, window))
        .whenComplete(
            (id, thrown) -> {
              meter.answered(entry.length, System.nanoTime() - startNanos, thrown);
              answered(entryId, id, thrown);
            });
  }

  private void answered(long entryId, Long id, Throwable thrown) {
    CompletableFuture<Void> idle = null;
    synchronized (this) {
      if (thrown == null && id != entryId) {
        thrown = new BKException(BKException.Code.UnexpectedConditionException);
      }
      if (thrown != null) {
        fail(entryId, thrown);
      } else if (failure == null) {
        acknowledged = entryId;
        if (listener != null) {
          listener.acknowledged(handle.getId(), entryId);
          refusals();
        }
      }
      if (drained != null && (acknowledged == pushed || failure != null)) {
        idle = drained;
      }
    }
    // Outside of the lock: what waits for it calls the client.
    if (idle != null) {
      idle.complete(null);
    }
  }

  private void fail(long entryId, Throwable thrown) {
    if (failure != null) {
      return;
    }
    failure = LedgerFailure.of(Operation.APPEND, handle.getId(), thrown);
    sinceNanos = System.nanoTime();
    if (listener != null) {
      listener.failed(handle.getId(), entryId, failure);
    }
    Refusal refusal;
    while ((refusal = refusals.poll()) != null && listener != null) {
      listener.failed(handle.getId(), refusal.firstEntryId(), failure.afterwards(handle.getId()));
    }
  }

  private void refuse(long firstEntryId, LedgerFailure refusal) {
    if (failure != null || acknowledged == pushed) {
      listener.failed(id(), firstEntryId, refusal);
    } else {
      refusals.add(new Refusal(pushed, firstEntryId, refusal));
    }
  }

  private void refusals() {
    while (!refusals.isEmpty() && refusals.peek().afterEntryId() <= acknowledged) {
      Refusal refusal = refusals.poll();
      listener.failed(id(), refusal.firstEntryId(), refusal.failure());
    }
  }

  private CompletableFuture<Void> drained() {
    if (drained == null) {
      drained = new CompletableFuture<>();
    }
    if (acknowledged == pushed || failure != null) {
      drained.complete(null);
    }
    return drained;
  }
}
