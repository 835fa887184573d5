package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.access.Audited;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.ledgers.v1.ListReply;
import io.grpc.stub.ServerCallStreamObserver;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.LedgersIterator;
import org.apache.bookkeeper.client.api.ListLedgersResult;

/**
 * One List: walks all ledger ids of the cluster, reads the metadata of each with a bounded number
 * of reads at once, and streams those that match and that the caller may know. Blocks its thread. A
 * ledger that is deleted meanwhile is left out; any other failure ends the call, because a list
 * with silent gaps would make somebody delete too much or too little.
 */
final class ListCall implements Runnable {
  private static final int LEDGERS_PER_MESSAGE_MAX = 256;
  private static final int MESSAGE_BYTES_MAX = 512 << 10;
  private static final long STALL_MAX_MS = 30_000;

  private final BookKeeper client;
  private final Predicate<LedgerMetadata> seen;
  private final Map<String, byte[]> filter;
  private final ServerCallStreamObserver<ListReply> caller;
  private final Consumer<String> cut;
  private final Call call;
  private final Audited asked;
  private final int inFlightMax;
  private final Semaphore permits;
  private final Object ready = new Object();
  private ListReply.Builder reply = ListReply.newBuilder();
  private int replyBytes;
  private Throwable failure;

  ListCall(
      BookKeeper client,
      Predicate<LedgerMetadata> seen,
      Map<String, byte[]> filter,
      int inFlightMax,
      Consumer<String> cut,
      ServerCallStreamObserver<ListReply> caller,
      Call call,
      Audited asked) {
    this.client = client;
    this.seen = seen;
    this.filter = filter;
    this.inFlightMax = inFlightMax;
    this.permits = new Semaphore(inFlightMax);
    this.cut = cut;
    this.caller = caller;
    this.call = call;
    this.asked = asked;
  }

  /** The caller may be ready, or gone. */
  void wake() {
    synchronized (ready) {
      ready.notifyAll();
    }
  }

  @Override
  public void run() {
    if (caller.isCancelled()) {
      return;
    }
    try (ListLedgersResult ledgers = client.newListLedgersOp().execute().join()) {
      LedgersIterator ids = ledgers.iterator();
      while (ids.hasNext() && !caller.isCancelled()) {
        acquire(1);
        look(ids.next());
        send(false);
      }
      acquire(inFlightMax);
      send(true);
      awaitReady();
      if (!caller.isCancelled()) {
        caller.onCompleted();
      }
    } catch (Exception thrown) {
      if (!caller.isCancelled()) {
        call.fail(caller, Operation.LIST, asked, thrown);
      }
    }
  }

  private void look(long ledgerId) {
    client
        .getLedgerMetadata(ledgerId)
        .whenComplete(
            (metadata, thrown) -> {
              try {
                found(metadata, thrown);
              } finally {
                permits.release();
              }
            });
  }

  private synchronized void found(LedgerMetadata metadata, Throwable thrown) {
    if (thrown == null) {
      if (Metadatas.matches(metadata.getCustomMetadata(), filter) && seen.test(metadata)) {
        var found = Metadatas.of(metadata);
        reply.addLedgers(found);
        replyBytes += found.getSerializedSize();
      }
    } else if (!(Failed.cause(thrown) instanceof BKException known)
        || known.getCode() != BKException.Code.NoSuchLedgerExistsOnMetadataServerException) {
      failure = thrown;
    }
  }

  private void send(boolean all) throws Exception {
    ListReply full;
    synchronized (this) {
      if (failure != null) {
        throw LedgerFailure.of(Operation.LIST, -1, failure);
      }
      boolean enough =
          reply.getLedgersCount() >= LEDGERS_PER_MESSAGE_MAX || replyBytes >= MESSAGE_BYTES_MAX;
      if (!enough && !(all && reply.getLedgersCount() > 0)) {
        return;
      }
      full = reply.build();
      reply = ListReply.newBuilder();
      replyBytes = 0;
    }
    awaitReady();
    caller.onNext(full);
  }

  private void awaitReady() throws Exception {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(STALL_MAX_MS);
    synchronized (ready) {
      while (!caller.isReady() && !caller.isCancelled()) {
        long leftMs = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
        if (leftMs <= 0) {
          cut.accept("did not read its list for " + STALL_MAX_MS + " ms");
          throw LedgerFailure.later(
              "CALLER_STALLED", "the caller did not read the list for " + STALL_MAX_MS + " ms");
        }
        ready.wait(leftMs);
      }
    }
  }

  private void acquire(int count) throws Exception {
    if (!permits.tryAcquire(count, STALL_MAX_MS, TimeUnit.MILLISECONDS)) {
      throw new TimeoutException("ZooKeeper did not answer for " + STALL_MAX_MS + " ms");
    }
  }
}
