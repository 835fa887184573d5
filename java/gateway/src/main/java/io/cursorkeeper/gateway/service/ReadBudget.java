package io.cursorkeeper.gateway.service;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Bytes that reads of one kind of caller may have asked bookies for or hold for callers. What is
 * asked for is counted at the most that it can be, before it is asked for; whoever finds no room
 * waits in order of coming. Whoever waits is told on the thread of somebody else, and must not work
 * there.
 */
final class ReadBudget {
  private record Waiting(long bytes, Runnable granted) {}

  private final long bytesMax;
  private final Deque<Waiting> waiting = new ArrayDeque<>();
  private long bytes;
  private int guesses;

  /**
   * {@code guessesMax}: entries of which a read may believe, all reads together, that they are as
   * those before.
   */
  ReadBudget(long bytesMax, int guessesMax) {
    this.bytesMax = bytesMax;
    this.guesses = guessesMax;
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

  /** Up to so many of the guesses that are left, to be given back. */
  synchronized int guess(int wanted) {
    int got = Math.min(wanted, guesses);
    guesses -= got;
    return got;
  }

  synchronized void guessed(int given) {
    guesses += given;
  }

  /** A guess was wrong: what is there already is counted, and everybody waits until it is gone. */
  synchronized void exceed(long more) {
    bytes += more;
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
