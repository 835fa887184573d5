package io.cursorkeeper.gateway.append;

import java.util.ArrayDeque;
import java.util.Queue;

/**
 * Bytes and entries in flight between all streams and the bookies, from the moment they are handed
 * over until the BookKeeper client holds them no more. Overload stops here: a stream hands its
 * message over only when both are under their bound, so at most one message comes on top.
 *
 * <p>Invariants: a stream is in the queue of waiting ones at most once, and is resumed in order of
 * waiting. What a resumed stream is about to hand over is counted as promised until it has done so,
 * or the room would be promised to each thread.
 */
public final class Window {
  private final long bytesMax;
  private final long entriesMax;
  private final Queue<Waiting> waiting = new ArrayDeque<>();
  private long bytes;
  private long entries;
  private long promisedBytes;
  private long promisedEntries;

  private record Waiting(long bytes, long entries, Runnable more) {}

  public Window(long bytesMax, long entriesMax) {
    this.bytesMax = bytesMax;
    this.entriesMax = entriesMax;
  }

  /** Counts an entry that is about to be written. */
  public synchronized void take(int entryBytes) {
    bytes += entryBytes;
    entries++;
  }

  /** Uncounts an entry that nobody holds any more, and resumes those who wait if there is room. */
  public void release(int entryBytes) {
    synchronized (this) {
      bytes -= entryBytes;
      entries--;
      if (bytes < 0 || entries < 0) {
        throw new IllegalStateException("released more than was taken");
      }
    }
    resume();
  }

  /**
   * Runs {@code more}, which takes so many bytes and entries before it returns, as soon as there is
   * room: now, or later.
   */
  public void whenRoom(long moreBytes, long moreEntries, Runnable more) {
    synchronized (this) {
      waiting.add(new Waiting(moreBytes, moreEntries, more));
    }
    resume();
  }

  public synchronized long bytes() {
    return bytes;
  }

  public synchronized long entries() {
    return entries;
  }

  /** Streams that wait for room. */
  public synchronized int waiting() {
    return waiting.size();
  }

  private void resume() {
    Waiting next;
    while ((next = nextUnderBound()) != null) {
      try {
        next.more().run();
      } finally {
        keep(next);
      }
    }
  }

  private synchronized Waiting nextUnderBound() {
    if (bytes + promisedBytes >= bytesMax || entries + promisedEntries >= entriesMax) {
      return null;
    }
    Waiting next = waiting.poll();
    if (next != null) {
      promisedBytes += next.bytes();
      promisedEntries += next.entries();
    }
    return next;
  }

  private synchronized void keep(Waiting promised) {
    promisedBytes -= promised.bytes();
    promisedEntries -= promised.entries();
  }
}
