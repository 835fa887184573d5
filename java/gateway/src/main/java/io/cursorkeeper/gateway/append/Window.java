package io.cursorkeeper.gateway.append;

import java.util.ArrayDeque;
import java.util.Queue;

/**
 * Bytes and entries in flight between all streams and the bookies, from the moment they are handed over until the BookKeeper
 * client holds them no more. Overload stops here: a stream hands its message over only when both are under their bound, so at
 * most one message per thread comes on top.
 *
 * <p>Invariant: a stream is in the queue of waiting ones at most once, and is resumed in order of waiting.
 */
public final class Window {
  private final long bytesMax;
  private final long entriesMax;
  private final Queue<Runnable> waiting = new ArrayDeque<>();
  private long bytes;
  private long entries;

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
    Runnable next;
    while ((next = nextUnderBound()) != null) {
      next.run();
    }
  }

  /** Runs {@code more} as soon as there is room: now, or when entries are let go of. */
  public void whenRoom(Runnable more) {
    synchronized (this) {
      if (!hasRoom() || !waiting.isEmpty()) {
        waiting.add(more);
        return;
      }
    }
    more.run();
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

  private synchronized Runnable nextUnderBound() {
    return hasRoom() ? waiting.poll() : null;
  }

  private boolean hasRoom() {
    return bytes < bytesMax && entries < entriesMax;
  }
}
