package io.cursorkeeper.gateway.append;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * One Append stream: hands entries over to their ledgers, asks for the next message when the window
 * has room, and sends gathered replies. When it ends, the handles bound to it are released.
 *
 * <p>Three kinds of threads come here: the network's (onNext and the ends), the BookKeeper client's
 * (acknowledged, failed), and the one reply thread, which alone writes to the stream.
 */
public final class AppendStream implements StreamObserver<AppendMessage>, OpenLedger.Listener {
  private final Shared shared;
  private final OpenLedger.Appending mayAppend;
  private final Consumer<String> cut;
  private final Runnable taken;
  private final ServerCallStreamObserver<AppendReply> replies;
  private final ReplyQueue queue = new ReplyQueue();
  private final Set<OpenLedger> bound = new HashSet<>();
  private final long openedNanos = System.nanoTime();

  /** Waits for room in the window; null: none does. */
  private AppendMessage waiting;

  private boolean isLast;
  private boolean flushing;
  private boolean parked;
  private boolean answered;
  private boolean ended;
  // 0: the client takes its answers.
  private long unreadSinceNanos;

  /** What all streams have in common. */
  public record Shared(
      OpenLedgers ledgers,
      Window window,
      ScheduledExecutorService replyThread,
      long lingerMs,
      Consumer<LedgerFailure> failures,
      Set<AppendStream> open,
      int streamsMax,
      long stallMaxMs) {

    /** Cuts off clients that take no answers: called every second or so. */
    public void look() {
      open.forEach(AppendStream::look);
    }

    /**
     * Whether a new stream has a place. One that appends to no ledger gives up its own, the oldest
     * first: a stream that was opened a moment ago may have its first message on the way.
     */
    private boolean hasPlace(AppendStream of) {
      while (open.size() > streamsMax) {
        AppendStream oldest =
            open.stream()
                .filter(other -> other != of && other.isIdle())
                .min((one, other) -> Long.compare(one.openedNanos - other.openedNanos, 0))
                .orElse(null);
        if (oldest == null) {
          return false;
        }
        if (open.remove(oldest)) {
          oldest.refuse(
              LedgerFailure.later(
                  "TOO_MANY_STREAMS",
                  "it appended to no ledger while another stream waited for its place"));
          return true;
        }
      }
      return true;
    }
  }

  /**
   * {@code mayAppend} says of whose handles it may use any. {@code cut} ends the call at once,
   * whatever lies ready for it; it is told why. {@code taken} is run when a message is in the
   * window.
   */
  public AppendStream(
      Shared shared,
      OpenLedger.Appending mayAppend,
      Consumer<String> cut,
      Runnable taken,
      ServerCallStreamObserver<AppendReply> replies) {
    this.shared = shared;
    this.mayAppend = mayAppend;
    this.cut = cut;
    this.taken = taken;
    this.replies = replies;
    shared.open().add(this);
    replies.disableAutoRequest();
    replies.setOnReadyHandler(() -> flushAfter(0));
    replies.setOnCancelHandler(this::end);
    if (!shared.hasPlace(this)) {
      refuse(
          LedgerFailure.later(
              "TOO_MANY_STREAMS",
              "this gateway serves " + shared.streamsMax() + " append streams"));
      return;
    }
    replies.request(1);
  }

  @Override
  public void onNext(AppendMessage message) {
    if (message.refusal() != null) {
      refuse(message.refusal());
      return;
    }
    synchronized (this) {
      waiting = ended ? null : message;
    }
    shared.window().whenRoom(message.bytes(), message.entries(), this::take);
  }

  // Here there is room. The next message is asked for when this one is in the window, so one for
  // each stream waits at most.
  private void take() {
    AppendMessage message;
    synchronized (this) {
      message = waiting;
    }
    if (message == null) {
      return;
    }
    message.request().getAppendsList().forEach(this::append);
    taken.run();
    boolean wasLast;
    synchronized (this) {
      waiting = null;
      wasLast = isLast;
      // The client does not read its failures: no more requests until it does.
      parked = queue.crowded();
      if (parked && !wasLast) {
        return;
      }
    }
    if (wasLast) {
      drain();
    } else {
      replies.request(1);
    }
  }

  @Override
  public void onError(Throwable cancelled) {
    end();
  }

  /** The client has no more entries: what is in flight is still answered, then the stream ends. */
  @Override
  public void onCompleted() {
    synchronized (this) {
      isLast = true;
      if (waiting != null) {
        return;
      }
    }
    drain();
  }

  private void drain() {
    List<OpenLedger> mine;
    synchronized (this) {
      mine = List.copyOf(bound);
    }
    // Not under the lock: a ledger answers while holding its own, and comes here with it.
    CompletableFuture<?>[] draining =
        mine.stream().map(OpenLedger::drain).toArray(CompletableFuture[]::new);
    CompletableFuture.allOf(draining)
        .whenComplete(
            (nothing, never) -> {
              synchronized (this) {
                answered = true;
              }
              flushAfter(0);
            });
  }

  @Override
  public void acknowledged(long ledgerId, long lastEntryId) {
    queue.acknowledged(ledgerId, lastEntryId);
    flushAfter(shared.lingerMs());
  }

  @Override
  public void failed(long ledgerId, long firstEntryId, LedgerFailure failure) {
    shared.failures().accept(failure);
    queue.failed(ledgerId, firstEntryId, failure.failure());
    flushAfter(shared.lingerMs());
  }

  @Override
  public synchronized void ended(OpenLedger ledger) {
    bound.remove(ledger);
  }

  private void append(LedgerAppend append) {
    OpenLedger ledger = shared.ledgers().get(append.getLedgerId());
    if (ledger == null || !ledger.isFor(mayAppend) || !bind(ledger)) {
      failed(
          append.getLedgerId(),
          append.getFirstEntryId(),
          OpenLedgers.noHandle(append.getLedgerId()));
      return;
    }
    ledger.append(this, append.getFirstEntryId(), append.getPayloadsList());
  }

  private boolean bind(OpenLedger ledger) {
    if (!ledger.bind(this)) {
      return false;
    }
    synchronized (this) {
      if (!ended) {
        bound.add(ledger);
        return true;
      }
    }
    shared.ledgers().release(ledger.id());
    return false;
  }

  private void flushAfter(long delayMs) {
    synchronized (this) {
      if (ended || (flushing && delayMs > 0)) {
        return;
      }
      flushing = true;
    }
    if (delayMs == 0) {
      shared.replyThread().execute(this::flush);
    } else {
      shared.replyThread().schedule(this::flush, delayMs, TimeUnit.MILLISECONDS);
    }
  }

  private synchronized boolean isIdle() {
    return bound.isEmpty() && waiting == null;
  }

  private void look() {
    long since;
    synchronized (this) {
      since = unreadSinceNanos;
    }
    if (since != 0
        && System.nanoTime() - since > TimeUnit.MILLISECONDS.toNanos(shared.stallMaxMs())) {
      cut.accept("took no answers of its append stream for " + shared.stallMaxMs() + " ms");
    }
  }

  // The stream is over, and said why. On the reply thread, which alone writes to it.
  private void refuse(LedgerFailure refusal) {
    shared.failures().accept(refusal);
    shared
        .replyThread()
        .execute(
            () -> {
              if (end()) {
                replies.onError(refusal.toStatus());
              }
            });
  }

  // On the reply thread only. A client that does not read leaves the rest in the queue; onReady
  // comes back here.
  private void flush() {
    synchronized (this) {
      flushing = false;
      if (ended) {
        return;
      }
    }
    boolean sent = false;
    while (!queue.isEmpty() && replies.isReady()) {
      replies.onNext(queue.take());
      sent = true;
    }
    boolean resume;
    boolean complete;
    boolean empty = queue.isEmpty();
    synchronized (this) {
      unreadSinceNanos =
          empty
              ? 0
              : sent || unreadSinceNanos == 0 ? Math.max(1, System.nanoTime()) : unreadSinceNanos;
      resume = parked && !queue.crowded();
      parked = parked && !resume;
      complete = answered && queue.isEmpty();
    }
    if (resume) {
      replies.request(1);
    }
    if (complete && end()) {
      replies.onCompleted();
    }
  }

  /** Lets go of everything; false if somebody did before. */
  private boolean end() {
    List<OpenLedger> mine;
    synchronized (this) {
      if (ended) {
        return false;
      }
      ended = true;
      waiting = null;
      mine = List.copyOf(bound);
      bound.clear();
    }
    mine.forEach(ledger -> shared.ledgers().release(ledger.id()));
    shared.open().remove(this);
    return true;
  }
}
