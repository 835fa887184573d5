package io.cursorkeeper.pulsar;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Serves the broker while the daemon is away: how many acks wait for their answer, of one cursor
 * and of the broker, and where that ends. At a limit the cursor, or every cursor, asks for a pause
 * of dispatch, until half of it is free again. What comes beyond it gets no room. The unit is a
 * call of the broker: a client may put 1,000 messages into one.
 */
public final class WaitingAcks {

  private final int cursorMax;
  private final int brokerMax;
  private final Runnable roomChanged;
  private final AtomicInteger all = new AtomicInteger();
  private volatile boolean isFull;

  /**
   * @param roomChanged called when the broker's limit is reached, and when half is free again; must
   *     not wait
   */
  public WaitingAcks(int cursorMax, int brokerMax, Runnable roomChanged) {
    this.cursorMax = cursorMax;
    this.brokerMax = brokerMax;
    this.roomChanged = roomChanged;
  }

  public Share share(Runnable shareChanged) {
    return new Share(shareChanged);
  }

  public int count() {
    return all.get();
  }

  /** How much of the broker's limit they take, from 0 to 1. */
  public double ratio() {
    return (double) all.get() / brokerMax;
  }

  private boolean take() {
    int now = all.incrementAndGet();
    if (now > brokerMax) {
      all.decrementAndGet();
      return false;
    }
    if (now == brokerMax) {
      look();
    }
    return true;
  }

  private void free(int answered) {
    int now = all.addAndGet(-answered);
    if (isFull && now <= brokerMax / 2) {
      look();
    }
  }

  /**
   * What others count meanwhile is seen by them or here: who counts looks at {@code isFull}
   * afterwards, and here it is the other way.
   */
  private void look() {
    boolean changed = false;
    synchronized (this) {
      for (boolean now = isFullNow(); now != isFull; now = isFullNow()) {
        isFull = now;
        changed = true;
      }
    }
    if (changed) {
      roomChanged.run();
    }
  }

  private boolean isFullNow() {
    return isFull ? all.get() > brokerMax / 2 : all.get() >= brokerMax;
  }

  /**
   * A cursor's. Changed by one thread at a time, read by any. Acks that the keeper answers together
   * are a group; groups end in order.
   */
  public final class Share {

    private final Runnable shareChanged;
    private final ArrayDeque<Long> beganNs = new ArrayDeque<>();
    private volatile int count;
    private volatile boolean isFull;

    /** Of the oldest group; 0: none. */
    private volatile long oldestNs;

    private Share(Runnable shareChanged) {
      this.shareChanged = shareChanged;
    }

    public void groupBegins() {
      beganNs.add(System.nanoTime());
      oldestNs = beganNs.peek();
    }

    /** Room for one more answer; false: there is none. */
    public boolean take() {
      if (count >= cursorMax || !WaitingAcks.this.take()) {
        return false;
      }
      int taken = count + 1;
      count = taken;
      if (taken == cursorMax && !isFull) {
        isFull = true;
        shareChanged.run();
      }
      return true;
    }

    /** The oldest group is answered. */
    public void groupEnds(int answers) {
      beganNs.remove();
      oldestNs = beganNs.isEmpty() ? 0 : beganNs.peek();
      int left = count - answers;
      count = left;
      free(answers);
      if (isFull && left <= cursorMax / 2) {
        isFull = false;
        shareChanged.run();
      }
    }

    public int count() {
      return count;
    }

    /** Whether an ack may wait for company: where limits are low, this alone would reach them. */
    public boolean isHalfFree() {
      return count < cursorMax / 2 && all.get() < brokerMax / 2;
    }

    /** For how long the oldest waits; 0: none does. */
    public double oldestSeconds() {
      long began = oldestNs;
      return began == 0 ? 0 : (System.nanoTime() - began) / (double) TimeUnit.SECONDS.toNanos(1);
    }

    /** Whether dispatch should pause: this cursor's limit, or the broker's. */
    public boolean isFull() {
      return isFull || WaitingAcks.this.isFull;
    }
  }
}
