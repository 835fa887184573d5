package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.client.KeptCursor;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Settings;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the operator who looks before he leaps: all copies of a broker's cursors. A few begin at a
 * time, and few are compared at a time, evenly over the settings' interval. One thread of its own
 * does it; nobody waits for it.
 */
final class ShadowedRounds {

  private static final Logger LOG = LoggerFactory.getLogger(ShadowedRounds.class);

  private static final int BEGINNING_MAX = 16;
  private static final int COMPARING_MAX = 4;
  private static final long STEP_MS = 1_000;

  /**
   * Of all cursors, what waits for the keeper; from there on until half of it copies are given up.
   */
  private static final long PENDING_BYTES_MAX = 32L << 20;

  private final Settings settings;
  private final KeeperLink link;
  private final Counters counters;
  private final ScheduledThreadPoolExecutor thread;
  private final Set<ShadowedCopy> copies = ConcurrentHashMap.newKeySet();

  /** A test lowers it. */
  volatile long pendingBytesMax = PENDING_BYTES_MAX;

  // Of the thread.
  private final Set<ShadowedCopy> toBegin = new LinkedHashSet<>();
  private final Set<ShadowedCopy> toCompare = new LinkedHashSet<>();
  private int beginning;
  private int comparing;
  private long gapMs;
  private long differencesTold;
  private long riskTold = -1;

  ShadowedRounds(Settings settings, KeeperLink link, Counters counters) {
    this.settings = settings;
    this.link = link;
    this.counters = counters;
    thread =
        new ScheduledThreadPoolExecutor(
            1,
            work -> {
              Thread made = new Thread(work, "cursorkeeper-shadow");
              made.setDaemon(true);
              return made;
            },
            new ThreadPoolExecutor.DiscardPolicy());
    thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    thread.setContinueExistingPeriodicTasksAfterShutdownPolicy(false);
    long step = Math.min(STEP_MS, settings.shadowCompare().toMillis());
    thread.scheduleWithFixedDelay(guarded(this::lookForWork), step, step, TimeUnit.MILLISECONDS);
    thread.schedule(
        guarded(this::round), settings.shadowCompare().toMillis(), TimeUnit.MILLISECONDS);
  }

  Settings settings() {
    return settings;
  }

  KeeperLink link() {
    return link;
  }

  Counters counters() {
    return counters;
  }

  Executor executor() {
    return thread;
  }

  /** When what failed may be tried again. */
  long laterNs() {
    return System.nanoTime() + settings.shadowCompare().toNanos();
  }

  CompletableFuture<Void> after(long ms) {
    CompletableFuture<Void> then = new CompletableFuture<>();
    thread.schedule(() -> then.complete(null), ms, TimeUnit.MILLISECONDS);
    return then;
  }

  /** Whether so much waits for the keeper that who told this cursor's acks has to give it up. */
  boolean isFull(KeptCursor of) {
    return of.pendingBytes() > 0 && link.status().pendingBytes() > pendingBytesMax;
  }

  void add(ShadowedCopy copy) {
    copies.add(copy);
    thread.execute(
        guarded(
            () -> {
              toBegin.add(copy);
              beginSome();
            }));
  }

  void remove(ShadowedCopy copy) {
    copies.remove(copy);
    thread.execute(
        guarded(
            () -> {
              toBegin.remove(copy);
              toCompare.remove(copy);
              copy.forget();
            }));
  }

  /** Those that nobody has begun yet. */
  CompletableFuture<Integer> toBegin() {
    return CompletableFuture.supplyAsync(toBegin::size, thread);
  }

  void close() {
    thread.shutdownNow();
  }

  /** Those that failed or were given up, when their time has come. */
  private void lookForWork() {
    if (toBegin.isEmpty()) {
      copies.stream().filter(ShadowedCopy::isWaiting).forEach(toBegin::add);
    }
    beginSome();
  }

  private void beginSome() {
    while (!toBegin.isEmpty() && beginning < BEGINNING_MAX && link.status().up()) {
      beginning++;
      begun(first(toBegin)::open)
          .whenCompleteAsync(
              (nothing, failed) -> {
                beginning--;
                beginSome();
              },
              thread);
    }
  }

  private void round() {
    copies.stream().filter(ShadowedCopy::isFollowing).forEach(toCompare::add);
    gapMs =
        settings.shadowCompare().toMillis()
            * COMPARING_MAX
            / Math.max(COMPARING_MAX, toCompare.size());
    comparing = COMPARING_MAX;
    for (int lane = 0; lane < COMPARING_MAX; lane++) {
      next(System.nanoTime());
    }
  }

  /** The next comparison of a lane, not before the gap after the one before. */
  private void next(long beganNs) {
    ShadowedCopy copy = first(toCompare);
    if (copy == null) {
      if (--comparing == 0) {
        say();
        thread.schedule(guarded(this::round), gapMs, TimeUnit.MILLISECONDS);
      }
      return;
    }
    begun(copy::compare)
        .whenCompleteAsync(
            (nothing, failed) -> {
              long spentMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beganNs);
              thread.schedule(
                  guarded(() -> next(System.nanoTime())),
                  toCompare.isEmpty() ? 0 : Math.max(0, gapMs - spentMs),
                  TimeUnit.MILLISECONDS);
            },
            thread);
  }

  /** Takes it out; null if there is none. */
  private static ShadowedCopy first(Set<ShadowedCopy> waiting) {
    Iterator<ShadowedCopy> each = waiting.iterator();
    ShadowedCopy first = each.hasNext() ? each.next() : null;
    waiting.remove(first);
    return first;
  }

  /** One line of a round, when it says something new. */
  private void say() {
    long differences = counters.shadowDifferences.sum();
    long risk = counters.shadowEntriesAtRisk.sum();
    if (counters.shadowComparisons.sum() > 0
        && (differences != differencesTold || risk != riskTold)) {
      LOG.info(
          "Shadow: {} of {} cursors follow at the keeper, {} comparisons, {} differences; a crash"
              + " of the broker now: Pulsar would deliver {} acked entries again",
          counters.shadowsFollowing.sum(),
          copies.size(),
          counters.shadowComparisons.sum(),
          differences,
          risk);
      differencesTold = differences;
      riskTold = risk;
    }
  }

  /** A bug of one cursor's costs the others nothing. */
  private static CompletableFuture<Void> begun(Supplier<CompletableFuture<Void>> work) {
    try {
      return work.get();
    } catch (RuntimeException bug) {
      LOG.error("bug: a copy of a cursor could not be worked on", bug);
      return CompletableFuture.completedFuture(null);
    }
  }

  private static Runnable guarded(Runnable task) {
    return () -> {
      try {
        task.run();
      } catch (RuntimeException | Error bug) {
        LOG.error("bug: a task of the shadow failed", bug);
      }
    };
  }
}
