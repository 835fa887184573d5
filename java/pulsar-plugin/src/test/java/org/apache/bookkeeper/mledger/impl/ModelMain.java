package org.apache.bookkeeper.mledger.impl;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.Position;

/**
 * Random changes of a topic's cursors, from several threads, with crashes at any point: what a new
 * load finds holds everything that was confirmed and nothing that nobody did; and at rest the
 * memory, the keeper's state and plain sets are the same.
 *
 * <p>With "shadow" Pulsar keeps the cursors: at rest the copies at the keeper are what it holds,
 * and no comparison under way says otherwise.
 *
 * <p>Arguments: ZooKeeper, keeper, first seed, rounds, perhaps "shadow". A round is a seed: it says
 * what it did when it fails. Ends with 0 and one line.
 */
public final class ModelMain {

  private static final int BATCH = 9;
  private static final List<String> SUBSCRIPTIONS = List.of("one", "two");

  /** What was done to a cursor: what is confirmed, and what may have happened. */
  private static final class Kept {
    Naive sure = new Naive();
    Naive possible = new Naive();
    boolean raced;
  }

  private final String zooKeeper;
  private final String keeper;
  private final boolean isShadow;
  private final boolean isThrottled;
  private final Random random;
  private final String name;
  private final Map<String, Kept> all = new HashMap<>();
  private final List<String> did = new ArrayList<>();
  private LiveTopic topic;
  private int crashes;
  private int operations;

  private ModelMain(String zooKeeper, String keeper, long seed, boolean isShadow) {
    this.isShadow = isShadow;
    isThrottled = seed % 2 == 1;
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
    random = new Random(seed);
    name = "public/default/persistent/model-" + Long.toHexString(System.nanoTime()) + "-" + seed;
  }

  public static void main(String[] arguments) throws Exception {
    long first = Long.parseLong(arguments[2]);
    int rounds = Integer.parseInt(arguments[3]);
    boolean isShadow = arguments.length > 4;
    int crashes = 0;
    int operations = 0;
    for (long seed = first; seed < first + rounds; seed++) {
      ModelMain model = new ModelMain(arguments[0], arguments[1], seed, isShadow);
      try {
        model.run();
      } catch (Exception | AssertionError e) {
        System.out.println("seed " + seed + ": " + e);
        e.printStackTrace(System.out);
        System.out.println(String.join("\n", model.did));
        System.out.flush();
        Runtime.getRuntime().halt(1);
      }
      crashes += model.crashes;
      operations += model.operations;
    }
    System.out.println("rounds " + rounds + " crashes " + crashes + " operations " + operations);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private LiveTopic load() throws Exception {
    if (!isShadow) {
      return new LiveTopic(zooKeeper, keeper, name, Map.of());
    }
    int writesPerSecond = isThrottled ? 1 : 0; // a broker's usual limit, and none
    return new LiveTopic(
        zooKeeper,
        keeper,
        name,
        Copies.SETTINGS,
        config -> config.setThrottleMarkDelete(writesPerSecond));
  }

  private void run() throws Exception {
    topic = load();
    for (int i = 0; i < 10; i++) {
      topic.publish();
    }
    for (String each : SUBSCRIPTIONS) {
      all.put(each, new Kept());
      topic.cursor(each);
    }
    for (int step = 0; step < 12; step++) {
      int what = random.nextInt(10);
      if (what < 3) {
        publish();
      } else if (what < 6) {
        for (String each : SUBSCRIPTIONS) {
          oneByOne(each);
        }
      } else if (what < 9) {
        sideBySide();
      } else {
        created();
      }
      if (random.nextInt(3) == 0) {
        compareAtRest();
        reload(random.nextInt(3) > 0);
      } else if (random.nextInt(4) == 0) {
        crashAtWork();
      }
    }
    compareAtRest();
    reload(true);
    compareAtRest();
    topic.unload();
    topic.shutdown();
  }

  private void publish() throws Exception {
    int count = 1 + random.nextInt(12);
    note("publish " + count);
    for (int i = 0; i < count; i++) {
      topic.publish();
    }
  }

  private void note(String what) {
    synchronized (did) {
      did.add(what);
    }
    operations++;
  }

  private Position anyOf(List<Position> entries, Random by) {
    return entries.get(by.nextInt(entries.size()));
  }

  private static BitSet anyPart(Random by) {
    BitSet left = new BitSet();
    left.set(0, BATCH);
    int acked = 1 + by.nextInt(BATCH);
    for (int i = 0; i < acked; i++) {
      left.clear(by.nextInt(BATCH));
    }
    if (left.isEmpty()) {
      left.set(by.nextInt(BATCH));
    }
    return left;
  }

  private static void get(CompletableFuture<Void> future) throws Exception {
    future.get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
  }

  /** All kinds of changes, one after the other, each confirmed. */
  private void oneByOne(String subscription) throws Exception {
    ManagedCursorImpl cursor = topic.cursor(subscription);
    Kept kept = all.get(subscription);
    for (int i = 0; i < 6; i++) {
      List<Position> entries = topic.entries();
      Position entry = anyOf(entries, random);
      BitSet part = anyPart(random);
      int kind = random.nextInt(12);
      Naive after = kept.sure.copy();
      CompletableFuture<Void> done;
      boolean mayFail = false;
      if (kind < 4) {
        note(subscription + " ack " + entry);
        after.ack(entry, null);
        done = LiveTopic.ack(cursor, List.of(entry));
      } else if (kind < 6) {
        note(subscription + " ack " + entry + " but " + part);
        after.ack(entry, part);
        done = LiveTopic.ack(cursor, List.of(LiveTopic.part(entry, part)));
      } else if (kind < 8) {
        List<Position> some = new ArrayList<>();
        for (int j = 0; j < 5; j++) {
          Position each = anyOf(entries, random);
          some.add(each);
          after.ack(each, null);
        }
        note(subscription + " ack " + some);
        done = LiveTopic.ack(cursor, some);
      } else if (kind < 9) {
        Map<String, Long> properties = random.nextBoolean() ? Map.of("n", (long) i) : Map.of();
        note(subscription + " mark-delete " + entry + " " + properties);
        entries.stream()
            .filter(each -> each.compareTo(entry) <= 0)
            .forEach(each -> after.ack(each, null));
        after.properties = properties;
        done = LiveTopic.markDelete(cursor, entry, properties);
        mayFail = true;
      } else if (kind < 10) {
        note(subscription + " mark-delete " + entry + " but " + part);
        entries.stream()
            .filter(each -> each.compareTo(entry) < 0)
            .forEach(each -> after.ack(each, null));
        after.ack(entry, part);
        after.properties = Map.of();
        done = LiveTopic.markDelete(cursor, LiveTopic.part(entry, part), Map.of());
        mayFail = true;
      } else if (kind < 11) {
        note(subscription + " reset " + entry);
        after.acked.clear();
        after.left.clear();
        entries.stream()
            .filter(each -> each.compareTo(entry) < 0)
            .forEach(each -> after.ack(each, null));
        after.properties = Map.of();
        done = LiveTopic.reset(cursor, entry);
      } else {
        note(subscription + " property " + i);
        get(cursor.putCursorProperty("step", Integer.toString(i)));
        continue;
      }
      try {
        get(done);
      } catch (java.util.concurrent.ExecutionException e) {
        if (!mayFail || (!isShadow && cursor.getMarkDeletedPosition().compareTo(entry) < 0)) {
          throw e;
        }
        note(subscription + " refused, mark-delete is " + cursor.getMarkDeletedPosition());
        continue;
      }
      kept.sure = after;
    }
    kept.possible = kept.sure.copy();
  }

  /** Acks from several threads at once, of all cursors; they join, in whatever order. */
  private void sideBySide() throws Exception {
    List<CompletableFuture<Void>> waiting = new ArrayList<>();
    race(waiting, 4, random.nextInt(3) == 0);
    for (CompletableFuture<Void> each : waiting) {
      get(each.exceptionally(failed -> null));
    }
    for (Kept each : all.values()) {
      if (each.raced) {
        continue;
      }
      each.sure = each.possible.copy();
    }
  }

  private void race(List<CompletableFuture<Void>> waiting, int threads, boolean withReset)
      throws Exception {
    List<Position> entries = topic.entries();
    ExecutorService workers = Executors.newFixedThreadPool(threads);
    List<Future<?>> running = new ArrayList<>();
    for (int t = 0; t < threads; t++) {
      Random by = new Random(random.nextLong());
      boolean resets = withReset && t == 0;
      running.add(
          workers.submit(
              () -> {
                for (int i = 0; i < 25; i++) {
                  String subscription = SUBSCRIPTIONS.get(by.nextInt(SUBSCRIPTIONS.size()));
                  ManagedCursorImpl cursor = topic.cursor(subscription);
                  Kept kept = all.get(subscription);
                  Position entry = anyOf(entries, by);
                  BitSet part = by.nextInt(3) == 0 ? anyPart(by) : null;
                  CompletableFuture<Void> done;
                  if (resets && i % 10 == 5) {
                    note(subscription + " reset among others " + entry);
                    synchronized (kept) {
                      kept.raced = true;
                    }
                    done = LiveTopic.reset(cursor, entry);
                  } else {
                    note(subscription + " side by side " + entry + " but " + part);
                    synchronized (kept) {
                      kept.possible.ack(entry, part);
                    }
                    done =
                        LiveTopic.ack(
                                cursor, List.of(part == null ? entry : LiveTopic.part(entry, part)))
                            .thenRun(
                                () -> {
                                  synchronized (kept) {
                                    if (!kept.raced) {
                                      kept.sure.ack(entry, part);
                                    }
                                  }
                                });
                  }
                  synchronized (waiting) {
                    waiting.add(done);
                  }
                }
                return null;
              }));
    }
    for (Future<?> each : running) {
      each.get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    }
    workers.shutdown();
  }

  /** A subscription is deleted and made again: it starts anew. */
  private void created() throws Exception {
    String subscription = SUBSCRIPTIONS.get(random.nextInt(SUBSCRIPTIONS.size()));
    note(subscription + " deleted and made again");
    topic.ledger.deleteCursor(subscription);
    topic.cursor(subscription);
    all.put(subscription, new Kept());
  }

  /**
   * Memory = plain sets. Of a cursor that was reset among acks only the memory is known: it is
   * taken, and must survive a crash.
   */
  private void compareAtRest() throws Exception {
    if (isShadow) {
      for (String each : SUBSCRIPTIONS) {
        all.put(each, new Kept());
        Copies.untilEqual(topic, each);
      }
      Copies.noneDiffered(topic);
      return;
    }
    List<Position> entries = topic.entries();
    for (String each : SUBSCRIPTIONS) {
      Kept kept = all.get(each);
      Naive memory = Naive.of(topic.cursor(each), entries);
      if (kept.raced) {
        kept.raced = false;
        kept.sure = memory;
        kept.possible = memory.copy();
        continue;
      }
      String wrong = Naive.between(kept.sure, memory, kept.possible, entries);
      if (wrong != null) {
        throw new AssertionError(each + " at rest: " + wrong);
      }
    }
  }

  private void crashAtWork() throws Exception {
    for (Kept each : all.values()) {
      if (each.raced) {
        compareAtRest();
      }
    }
    race(new ArrayList<>(), 3, false);
    reload(true);
  }

  private void reload(boolean byCrash) throws Exception {
    List<Position> entries = topic.entries();
    if (isShadow) {
      Copies.noneDiffered(topic);
    }
    note(byCrash ? "crash" : "unload");
    Map<String, Kept> before = new HashMap<>();
    if (byCrash) {
      topic.crash();
      crashes++;
    } else {
      topic.unload();
      topic.shutdown();
    }
    for (String each : SUBSCRIPTIONS) {
      synchronized (all.get(each)) {
        Kept copy = new Kept();
        copy.sure = all.get(each).sure.copy();
        copy.possible = all.get(each).possible.copy();
        before.put(each, copy);
      }
    }
    topic = load();
    for (String each : SUBSCRIPTIONS) {
      Naive found = Naive.of(topic.cursor(each), entries);
      String wrong =
          isShadow
              ? null
              : Naive.between(before.get(each).sure, found, before.get(each).possible, entries);
      if (wrong != null) {
        throw new AssertionError(each + " after a load: " + wrong);
      }
      Kept kept = new Kept();
      kept.sure = found;
      kept.possible = found.copy();
      all.put(each, kept);
    }
  }
}
