package io.cursorkeeper.pulsar;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/** Serves the broker's operator: how long something took, in buckets. For any number of threads. */
public final class Latencies {

  /** Upper bounds in seconds, ascending; above the last there is one more bucket. */
  static final double[] BOUNDS_S = {0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30};

  private final LongAdder[] buckets = new LongAdder[BOUNDS_S.length + 1];
  private final LongAdder sumNs = new LongAdder();

  public Latencies() {
    for (int i = 0; i < buckets.length; i++) {
      buckets[i] = new LongAdder();
    }
  }

  public void record(long ns) {
    double seconds = ns / (double) TimeUnit.SECONDS.toNanos(1);
    int at = 0;
    while (at < BOUNDS_S.length && seconds > BOUNDS_S[at]) {
      at++;
    }
    buckets[at].increment();
    sumNs.add(ns);
  }

  /** So many took at most this bound, for every bound, and at last all of them. */
  public long[] cumulative() {
    long[] counts = new long[buckets.length];
    long below = 0;
    for (int i = 0; i < buckets.length; i++) {
      below += buckets[i].sum();
      counts[i] = below;
    }
    return counts;
  }

  public double sumSeconds() {
    return sumNs.sum() / (double) TimeUnit.SECONDS.toNanos(1);
  }
}
