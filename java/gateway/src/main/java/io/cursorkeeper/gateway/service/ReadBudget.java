package io.cursorkeeper.gateway.service;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Bytes that reads of one kind of caller may have asked bookies for or hold for callers. What is asked for is counted at the
 * most that it can be, before it is asked for; whoever finds no room waits in order of coming. Whoever waits is told on
 * the thread of somebody else, and must not work there.
 */
final class ReadBudget {
  private record Waiting(long bytes, Runnable granted) {}

  private final long bytesMax;
  private final Deque<Waiting> waiting = new ArrayDeque<>();
  private long bytes;

  ReadBudget(long bytesMax) {
    this.bytesMax = bytesMax;
  }

  long bytesMax() {
    return bytesMax;
  }

  synchronized long bytes() {
    return bytes;
  }

  /** Reads that wait for room. */
  synchronized int waiting() {
    return waiting.size();
  }

  /** Takes room if there is some and nobody waits for it. */
  synchronized boolean take(long wanted) {
    if (!waiting.isEmpty() || !fits(wanted)) {
      return false;
    }
    bytes += wanted;
    return true;
  }

  /** Room will be taken for {@code granted}, which is then run, after all who wait already. */
  void await(long wanted, Runnable granted) {
    synchronized (this) {
      waiting.add(new Waiting(wanted, granted));
    }
    serve();
  }

  /** No longer wanted; false if it was granted meanwhile. */
  synchronized boolean forget(Runnable granted) {
    return waiting.removeIf(one -> one.granted() == granted);
  }

  void giveBack(long given) {
    synchronized (this) {
      bytes -= given;
      if (bytes < 0) {
        throw new IllegalStateException("gave back more than was taken");
      }
    }
    serve();
  }

  private void serve() {
    Waiting next;
    while ((next = next()) != null) {
      next.granted().run();
    }
  }

  private synchronized Waiting next() {
    if (waiting.isEmpty() || !fits(waiting.peek().bytes())) {
      return null;
    }
    bytes += waiting.peek().bytes();
    return waiting.poll();
  }

  // One that is larger than the whole budget has it for itself.
  private boolean fits(long wanted) {
    return bytes + wanted <= bytesMax || bytes == 0;
  }
}
