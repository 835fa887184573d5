package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.client.CursorListener;
import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.client.OpenRequest;
import io.cursorkeeper.client.OpenedCursor;
import io.cursorkeeper.pulsar.CommandScope;
import io.cursorkeeper.pulsar.Imprint;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Settings;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;

/**
 * What happens to a topic between Pulsar's own cursors, the keeper's, and two brokers. Arguments:
 * ZooKeeper, keeper. Ends with 0 and one line, or with the story that failed.
 */
public final class StoriesMain {

  private static final String STOCK = "";
  private static final String SUBSCRIPTION = "sub";
  private static final int STORY_MAX_S = 60;

  private final String zooKeeper;
  private final String keeper;
  private String name;

  private StoriesMain(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  public static void main(String[] arguments) {
    StoriesMain stories = new StoriesMain(arguments[0], arguments[1]);
    Map<String, Stories.Story> all = new LinkedHashMap<>();
    all.put("the first load takes Pulsar's state over", stories::imports);
    all.put("a clean stop is the way back to Pulsar's own cursors", stories::goesBack);
    all.put("what Pulsar itself did meanwhile is noticed", stories::noticesStock);
    all.put(
        "a write of the znode that never came covers none of Pulsar's own",
        stories::noticesStockAfterNoWrite);
    all.put("a state that belongs to no znode is stale", stories::noticesForeign);
    all.put(
        "a new cursor belongs to its znode before anybody has it", stories::belongsFromTheStart);
    all.put("Pulsar's state replaces a stale one", stories::importsStale);
    all.put("taking a state over removes no message that is not acked", stories::trimsNothing);
    all.put("the keeper's state stays though it is stale", stories::keepsStale);
    all.put("a newer load ends the older one", stories::isFenced);
    all.put("a load without a keeper fails, and a later one succeeds", stories::waitsForTheKeeper);
    all.put("string properties are no sign of a stale state", stories::writesItsZnode);
    all.put("a subscription that is made again starts anew", stories::startsAnew);
    all.put("acks of parts of a batch join, one by one or cumulative", stories::joinsParts);
    all.put("a part of a ledger's first batch is acked cumulatively", stories::acksPartOfFirst);
    all.put("a client's receipt waits for the keeper", stories::receipts);
    all.put("a mark-delete property that is removed is gone", stories::removesAProperty);
    all.put("a seek that fails changes nothing", stories::seeksInVain);
    ForeignStories foreign = new ForeignStories(arguments[0], arguments[1]);
    all.putAll(foreign.all());
    Stories.tell(
        "story",
        all,
        topic -> {
          stories.name = topic;
          foreign.on(topic);
        });
  }

  private LiveTopic load(String by) throws Exception {
    return load(by, Map.of());
  }

  private LiveTopic load(String by, Map<String, String> settings) throws Exception {
    return new LiveTopic(zooKeeper, by, name, settings);
  }

  private static void end(LiveTopic topic) throws Exception {
    topic.unload();
    topic.shutdown();
  }

  /** A topic of four data ledgers with some acks. */
  private LiveTopic worked(String by) throws Exception {
    LiveTopic topic = load(by);
    for (int i = 0; i < 25; i++) {
      topic.publish();
    }
    ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
    List<Position> entries = topic.entries();
    LiveTopic.markDelete(cursor, entries.get(2), Map.of("n", 7L))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    ack(topic, 4, 5, 9, 16, 20);
    return topic;
  }

  private static void ack(LiveTopic topic, int... numbers) throws Exception {
    for (int each : numbers) {
      LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(topic.entries().get(each)))
          .get(STORY_MAX_S, TimeUnit.SECONDS);
    }
  }

  private static void part(LiveTopic topic, int number) throws Exception {
    BitSet left = new BitSet();
    left.set(1, 4);
    Position entry = LiveTopic.part(topic.entries().get(number), left);
    LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(entry)).get(STORY_MAX_S, TimeUnit.SECONDS);
  }

  private static Naive state(LiveTopic topic) throws Exception {
    return Naive.of(topic.cursor(SUBSCRIPTION), topic.entries());
  }

  private static void same(Naive before, Naive after) {
    check(
        before.acked.equals(after.acked), "acked were " + before.acked + " and are " + after.acked);
    check(before.left.equals(after.left), "batches were " + before.left + " and are " + after.left);
    check(
        Objects.equals(before.properties, after.properties),
        "properties were " + before.properties + " and are " + after.properties);
  }

  private void imports() throws Exception {
    LiveTopic stock = worked(STOCK);
    part(stock, 22);
    ack(stock, 23); // persists the batch, too
    Naive before = state(stock);
    stock.crash(); // its cursor ledger holds it
    LiveTopic kept = load(keeper);
    same(before, state(kept));
    ack(kept, 24);
    Naive more = state(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    same(more, state(again));
    end(again);
  }

  private void trimsNothing() throws Exception {
    LiveTopic stock = worked(STOCK);
    List<Position> before = stock.entries();
    stock.crash();
    LiveTopic kept =
        new LiveTopic(
            zooKeeper,
            keeper,
            name,
            Map.of(),
            config -> {
              config.setRetentionTime(0, TimeUnit.SECONDS);
              config.setRetentionSizeInMB(0);
            });
    CompletableFuture<Void> trimmed = new CompletableFuture<>();
    kept.ledger.trimConsumedLedgersInBackground(trimmed);
    trimmed.get(STORY_MAX_S, TimeUnit.SECONDS);
    check(
        kept.entries().equals(before),
        "of " + before.size() + " entries there are " + kept.entries().size());
    end(kept);
  }

  private void goesBack() throws Exception {
    LiveTopic kept = worked(keeper);
    Naive before = state(kept);
    end(kept);
    LiveTopic stock = load(STOCK);
    same(before, state(stock));
    end(stock);
  }

  /** Kept, then a time on Pulsar's own cursors, in which an ack moved. */
  private Naive stale() throws Exception {
    LiveTopic kept = worked(keeper);
    end(kept);
    LiveTopic stock = load(STOCK);
    ack(stock, 24);
    Naive after = state(stock);
    end(stock);
    return after;
  }

  private void noticesStock() throws Exception {
    stale();
    isRefused();
  }

  /**
   * The keeper heard of the next version, and then Pulsar's own cursor made it: with a cursor
   * ledger that holds its acks.
   */
  private void noticesStockAfterNoWrite() throws Exception {
    String topic = name;
    for (boolean isClose : new boolean[] {false, true}) {
      name = topic + isClose;
      LiveTopic kept = worked(keeper);
      KeptManagedCursor cursor = (KeptManagedCursor) kept.cursor(SUBSCRIPTION);
      if (isClose) {
        cursor.noteClose().get(STORY_MAX_S, TimeUnit.SECONDS);
      } else {
        fails(
            cursor.setCursorProperties(Map.of("#pulsar.internal.x", "y")),
            "Pulsar took an internal property");
      }
      Naive before = state(kept);
      kept.crash();
      LiveTopic same = load(keeper);
      same(before, state(same)); // nobody wrote: it is ours
      if (isClose) {
        ((KeptManagedCursor) same.cursor(SUBSCRIPTION))
            .noteClose()
            .get(STORY_MAX_S, TimeUnit.SECONDS);
      } else {
        fails(
            same.cursor(SUBSCRIPTION).setCursorProperties(Map.of("#pulsar.internal.x", "y")),
            "Pulsar took an internal property");
      }
      same.crash();
      LiveTopic stock = load(STOCK);
      ack(stock, 12, 23);
      stock.crash();
      isRefused();
    }
  }

  /** A rehearsal's import left it; the subscription was deleted and made again by Pulsar itself. */
  private void noticesForeign() throws Exception {
    LiveTopic stock = worked(STOCK);
    try (KeeperLink other = KeeperLink.connect(LiveTopic.patient(keeper))) {
      Position first = stock.entries().get(0);
      CursorListener listener = why -> {};
      OpenedCursor left =
          other
              .open(
                  OpenRequest.of(Names.topic(name), SUBSCRIPTION)
                      .withStart(new io.cursorkeeper.client.Position(first.getLedgerId(), 3)),
                  listener)
              .get(STORY_MAX_S, TimeUnit.SECONDS);
      left.cursor().close().get(STORY_MAX_S, TimeUnit.SECONDS);
    }
    stock.ledger.deleteCursor(SUBSCRIPTION);
    check(state(stock).acked.isEmpty(), "acks of the deleted subscription are there");
    stock.crash();
    isRefused();
  }

  private void belongsFromTheStart() throws Exception {
    LiveTopic kept = load(keeper);
    for (int i = 0; i < 5; i++) {
      kept.cursor(SUBSCRIPTION + i);
      Map<String, String> notes =
          kept.ours()
              .link()
              .read(Names.topic(name), SUBSCRIPTION + i)
              .get(STORY_MAX_S, TimeUnit.SECONDS)
              .cursorProperties();
      check(
          Imprint.of(notes).znode() != null && !Imprint.of(notes).importing(),
          "its notes are " + notes);
    }
    end(kept);
  }

  private void isRefused() throws Exception {
    try {
      load(keeper);
    } catch (ManagedLedgerException e) {
      check(
          e.getMessage().contains("Pulsar itself changed this cursor")
              && e.getMessage().contains(Settings.ON_STALE),
          e.getMessage());
      return;
    }
    throw new AssertionError("it loaded");
  }

  private void importsStale() throws Exception {
    Naive after = stale();
    LiveTopic kept = load(keeper, Map.of(Settings.ON_STALE, "import"));
    same(after, state(kept));
    kept.crash();
    LiveTopic again = load(keeper);
    same(after, state(again));
    end(again);
  }

  private void keepsStale() throws Exception {
    Naive after = stale();
    LiveTopic kept = load(keeper, Map.of(Settings.ON_STALE, "keeper"));
    Naive found = state(kept);
    check(
        found.acked.size() == after.acked.size() - 1 && after.acked.containsAll(found.acked),
        "acked are " + found.acked);
    kept.crash();
    LiveTopic again = load(keeper);
    same(found, state(again));
    end(again);
  }

  private void isFenced() throws Exception {
    LiveTopic old = worked(keeper);
    Naive before = state(old);
    ManagedCursorImpl cursor = old.cursor(SUBSCRIPTION);
    Position late = old.entries().get(24);
    LiveTopic young = load(keeper);
    same(before, state(young));
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(STORY_MAX_S);
    while (!old.ledger.getState().isFenced()) {
      check(System.nanoTime() < until, "the older load is " + old.ledger.getState());
      TimeUnit.MILLISECONDS.sleep(20);
    }
    fails(LiveTopic.ack(cursor, List.of(late)), "the older load took an ack");
    fails(receipt(() -> LiveTopic.ack(cursor, List.of(late))), "the older load gave a receipt");
    ack(young, 23);
    Naive after = state(young);
    old.crash();
    young.crash();
    LiveTopic again = load(keeper);
    same(after, state(again));
    end(again);
  }

  private static void fails(CompletableFuture<Void> done, String otherwise) throws Exception {
    try {
      done.get(STORY_MAX_S, TimeUnit.SECONDS);
    } catch (ExecutionException expected) {
      return;
    }
    throw new AssertionError(otherwise);
  }

  /** What a client's receipt waits for, before Pulsar 5.0; null: for nothing. */
  static CompletableFuture<Void> receipt(Runnable command) {
    CommandScope scope = new CommandScope().open(false);
    try {
      command.run();
    } finally {
      scope.close();
    }
    return scope.durable();
  }

  private void receipts() throws Exception {
    LiveTopic topic = worked(keeper);
    ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
    List<Position> entries = topic.entries();
    Position beyond = PositionFactory.create(entries.get(24).getLedgerId(), 1_000);
    receipt(() -> LiveTopic.ack(cursor, List.of(entries.get(10), entries.get(11))))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    receipt(() -> LiveTopic.ack(cursor, List.of(entries.get(10))))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    fails(
        receipt(() -> LiveTopic.ack(cursor, List.of(entries.get(12), beyond))),
        "an ack beyond the topic has a receipt");
    receipt(() -> LiveTopic.markDelete(cursor, entries.get(6), Map.of()))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    fails(
        receipt(() -> LiveTopic.markDelete(cursor, beyond, Map.of())),
        "a cumulative ack beyond the topic has a receipt");
    CompletableFuture<Void> newest = receipt(() -> LiveTopic.ack(cursor, List.of(entries.get(14))));
    CompletableFuture<Void> repeated =
        receipt(() -> LiveTopic.markDelete(cursor, entries.get(1), Map.of()));
    if (repeated != null) {
      repeated.get(STORY_MAX_S, TimeUnit.SECONDS);
    }
    check(newest.isDone(), "a repeated ack has its receipt before what it repeats");
    end(topic);
    LiveTopic atOnce = load(keeper, Map.of(Settings.RECEIPTS, "memory"));
    ManagedCursorImpl same = atOnce.cursor(SUBSCRIPTION);
    check(
        receipt(() -> LiveTopic.ack(same, List.of(entries.get(15)))) == null,
        "a receipt waits though it need not");
    end(atOnce);
  }

  private void waitsForTheKeeper() throws Exception {
    LiveTopic kept = worked(keeper);
    Naive before = state(kept);
    kept.crash();
    try {
      load("127.0.0.1:1", Map.of(Settings.OPEN_TIMEOUT_MS, "1000"));
      throw new AssertionError("it loaded without a keeper");
    } catch (ManagedLedgerException expected) {
      check(expected.getMessage().contains("AWAY"), expected.getMessage());
    }
    LiveTopic again = load(keeper);
    same(before, state(again));
    end(again);
  }

  private void writesItsZnode() throws Exception {
    LiveTopic kept = worked(keeper);
    ManagedCursorImpl cursor = kept.cursor(SUBSCRIPTION);
    cursor.putCursorProperty("a", "1").get(STORY_MAX_S, TimeUnit.SECONDS);
    cursor.setCursorProperties(Map.of("b", "2")).get(STORY_MAX_S, TimeUnit.SECONDS);
    kept.crash();
    LiveTopic again = load(keeper);
    check(
        again.cursor(SUBSCRIPTION).getCursorProperties().equals(Map.of("b", "2")),
        "string properties are gone");
    end(again);
    LiveTopic last = load(keeper);
    check(
        last.cursor(SUBSCRIPTION).getCursorProperties().equals(Map.of("b", "2")),
        "string properties are gone");
    end(last);
  }

  private void joinsParts() throws Exception {
    LiveTopic kept = worked(keeper);
    ManagedCursorImpl cursor = kept.cursor(SUBSCRIPTION);
    Position entry = kept.entries().get(22);
    for (long[] left : new long[][] {{0b1110}, {0b1011}}) {
      LiveTopic.markDelete(cursor, LiveTopic.part(entry, BitSet.valueOf(left)), Map.of())
          .get(STORY_MAX_S, TimeUnit.SECONDS);
    }
    Naive before = state(kept);
    check(
        before.left.equals(Map.of(entry, BitSet.valueOf(new long[] {0b1010}))),
        "left are " + before.left);
    kept.crash();
    LiveTopic again = load(keeper);
    same(before, state(again));
    end(again);
  }

  private void acksPartOfFirst() throws Exception {
    LiveTopic kept = worked(keeper);
    Position last = kept.ledger.getLastConfirmedEntry();
    LiveTopic.markDelete(kept.cursor(SUBSCRIPTION), last, Map.of())
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    kept.crash();
    LiveTopic again = load(keeper); // mark-delete stands at the start of the new ledger
    Position first = again.publish();
    again.publish();
    BitSet left = new BitSet();
    left.set(1, 4);
    Map<String, Long> properties = Map.of("n", 8L);
    Position part = LiveTopic.part(first, left);
    ManagedCursorImpl cursor = again.cursor(SUBSCRIPTION);
    receipt(() -> LiveTopic.markDelete(cursor, part, properties))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    Naive before = state(again);
    check(before.left.equals(Map.of(first, left)), "left are " + before.left);
    check(before.properties.equals(properties), "properties are " + before.properties);
    again.crash();
    LiveTopic third = load(keeper);
    same(before, state(third));
    end(third);
  }

  private void startsAnew() throws Exception {
    LiveTopic kept = worked(keeper);
    kept.ledger.deleteCursor(SUBSCRIPTION);
    check(state(kept).acked.isEmpty(), "acks of the deleted subscription are there");
    ack(kept, 3);
    Naive before = state(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    same(before, state(again));
    end(again);
  }

  /** A replicated subscription is marked by such a property, and unmarked. */
  private void removesAProperty() throws Exception {
    LiveTopic kept = worked(keeper);
    ManagedCursorImpl cursor = kept.cursor(SUBSCRIPTION);
    check(
        cursor.putProperty("replicated", 1L) && cursor.removeProperty("n"),
        "the cursor has no properties");
    ack(kept, 23);
    check(cursor.removeProperty("replicated"), "the cursor has no properties");
    ack(kept, 24);
    Naive before = state(kept);
    check(before.properties.isEmpty(), "properties are " + before.properties);
    kept.crash();
    LiveTopic again = load(keeper);
    same(before, state(again));
    check(again.cursor(SUBSCRIPTION).removeProperty("absent"), "the cursor has no properties");
    end(again);
  }

  /**
   * What a clean stop would write for Pulsar's own cursors stays, too. The keeper is away: a link's
   * end alone may come behind what was asked.
   */
  private void seeksInVain() throws Exception {
    Naive before;
    try (Gate gate = new Gate(keeper)) {
      LiveTopic kept = worked(gate.address());
      before = state(kept);
      ManagedCursorImpl cursor = kept.cursor(SUBSCRIPTION);
      gate.shut();
      ((KeptLedger) kept.ledger).link().close();
      try {
        LiveTopic.reset(cursor, kept.entries().get(22)).get(STORY_MAX_S, TimeUnit.SECONDS);
        throw new AssertionError("it went without the keeper");
      } catch (ExecutionException expected) {
        check(expected.getCause() instanceof ManagedLedgerException, expected.toString());
      }
      same(before, Naive.of(cursor, kept.entries()));
      check(
          cursor.lastMarkDeleteEntry.newPosition.equals(cursor.getMarkDeletedPosition()),
          "it would stop at " + cursor.lastMarkDeleteEntry.newPosition);
      kept.crash();
    }
    LiveTopic again = load(keeper);
    same(before, state(again));
    end(again);
  }
}
