package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.pulsar.Figures;
import io.cursorkeeper.pulsar.Settings;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.pulsar.common.policies.data.ManagedLedgerInternalStats;

/**
 * What becomes of a topic while its keeper is away, and what it tells of itself. Arguments:
 * ZooKeeper, keeper. Ends with 0 and one line, or with the story that failed.
 */
public final class OutageMain {

  private static final String STOCK = "";
  private static final String SUBSCRIPTION = "sub";
  static final int WAIT_S = 60;
  private static final Map<String, String> GOES_ON = Map.of(Settings.ON_FAILED_LOAD, "stock");
  private static final Map<String, String> AT_ONCE =
      Map.of(Settings.OPEN_TIMEOUT_MS, "1500", Settings.ON_FAILED_LOAD, "stock");

  private final String zooKeeper;
  private final String keeper;
  private String name;

  private OutageMain(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  public static void main(String[] arguments) {
    OutageMain stories = new OutageMain(arguments[0], arguments[1]);
    Map<String, Stories.Story> all = new LinkedHashMap<>();
    all.put("acks wait within their limits, and nothing is lost", stories::waits);
    all.put(
        "a load without an answer goes on with Pulsar's own cursors, and the next one notices",
        stories::goesOnWithStock);
    all.put(
        "a load deletes no data ledger that one of its cursors needs",
        stories::trimsNothingTooEarly);
    all.put("figures are as Pulsar's own", stories::comparesFigures);
    new LossStories(stories.zooKeeper, stories.keeper, () -> stories.name).addTo(all);
    new NewCursorStories(stories.zooKeeper, () -> stories.name).addTo(all);
    Stories.tell("outage", all, topic -> stories.name = topic);
  }

  private LiveTopic load(String by, Map<String, String> settings) throws Exception {
    return new LiveTopic(zooKeeper, by, name, settings);
  }

  static void same(Object expected, Object found, String what) {
    check(expected.equals(found), what + ": expected " + expected + ", found " + found);
  }

  static void until(String what, BooleanSupplier done) throws Exception {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
    while (!done.getAsBoolean()) {
      check(System.nanoTime() < until, "not within " + WAIT_S + " s: " + what);
      TimeUnit.MILLISECONDS.sleep(10);
    }
  }

  static String failure(CompletableFuture<Void> of) throws Exception {
    try {
      of.get(WAIT_S, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      return e.getCause().getMessage();
    }
    throw new AssertionError("it did not fail");
  }

  private LiveTopic published(String by, Map<String, String> settings, int entries)
      throws Exception {
    LiveTopic topic = load(by, settings);
    topic.cursor(SUBSCRIPTION);
    for (int i = 0; i < entries; i++) {
      topic.publish();
    }
    return topic;
  }

  private static void end(LiveTopic topic) throws Exception {
    topic.unload();
    topic.shutdown();
  }

  private static Naive state(LiveTopic topic) throws Exception {
    return Naive.of(topic.cursor(SUBSCRIPTION), topic.entries());
  }

  static Figures figures(LiveTopic topic) {
    return ((KeptLedger) topic.ledger).keeping().figures();
  }

  private void waits() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      Map<String, String> limits =
          Map.of(
              Settings.WAITING_ACKS_MAX,
              "6",
              Settings.WAITING_ACKS_BROKER_MAX,
              "10",
              Settings.CURSOR_METRICS_MAX,
              "1");
      LiveTopic topic = published(gate.address(), limits, 40);
      ManagedCursorImpl one = topic.cursor(SUBSCRIPTION);
      ManagedCursorImpl two = topic.cursor("two");
      List<Position> entries = topic.entries();
      LiveTopic.ack(one, List.of(entries.get(0))).get(WAIT_S, TimeUnit.SECONDS);
      Figures before = figures(topic);
      same(2L, before.cursors().get(Figures.State.KEPT), "kept cursors");
      same(2L, before.counters().opens.sum(), "opens");
      check(
          before.isLinkUp()
              && before.counters().receipts.cumulative()[0]
                  <= before.counters().receipts.sumSeconds() * 1e9,
          "receipts");

      gate.shut();
      until("the link is down", () -> !figures(topic).isLinkUp());
      List<CompletableFuture<Void>> waiting = new ArrayList<>();
      for (int i = 2; i < 8; i++) {
        check(one.isCursorDataFullyPersistable(), "it pauses before its limit");
        waiting.add(LiveTopic.ack(one, List.of(entries.get(i))));
      }
      check(
          !one.isCursorDataFullyPersistable() && two.isCursorDataFullyPersistable(),
          "one cursor's limit is its own");
      String said = failure(LiveTopic.ack(one, List.of(entries.get(9))));
      check(said.contains("it is taken"), said);
      said = failure(LiveTopic.markDelete(one, entries.get(4), Map.of("n", 3L)));
      check(said.contains("it is taken"), said);
      for (int i = 10; i < 14; i++) {
        waiting.add(LiveTopic.ack(two, List.of(entries.get(i))));
      }
      check(!two.isCursorDataFullyPersistable(), "the broker's limit is every cursor's");
      failure(LiveTopic.ack(two, List.of(entries.get(14))));
      check(
          waiting.stream().noneMatch(CompletableFuture::isDone),
          "an ack was answered without the keeper");
      Figures away = figures(topic);
      same(2L, away.cursors().get(Figures.State.PAUSED), "paused cursors");
      same(10L, away.waitingAcks(), "waiting acks");
      same(3L, away.counters().acksWithoutRoom.sum(), "acks without room");
      check(away.waitingBytes() > 0 && away.oldestSeconds() > 0, "nothing waits: " + away);
      same(
          List.of(SUBSCRIPTION),
          away.longest().stream().map(Figures.OfCursor::cursor).toList(),
          "the longest");
      same("public/default", away.longest().get(0).namespace(), "its namespace");
      Naive memory = state(topic);

      gate.open();
      for (CompletableFuture<Void> each : waiting) {
        each.get(WAIT_S, TimeUnit.SECONDS);
      }
      until(
          "it goes on",
          () -> one.isCursorDataFullyPersistable() && two.isCursorDataFullyPersistable());
      LiveTopic.ack(one, List.of(entries.get(9)))
          .get(WAIT_S, TimeUnit.SECONDS); // the client sends it again
      Figures after = figures(topic);
      same(0L, after.waitingAcks(), "waiting acks");
      same(0.0, after.oldestSeconds(), "the oldest");
      check(
          after.isLinkUp() && after.connects() > before.connects(), "the link is not up: " + after);
      topic.crash();
      LiveTopic again = load(keeper, Map.of());
      Naive kept = state(again);
      same(memory.acked, kept.acked, "acked");
      same(Map.of("n", 3L), kept.properties, "properties");
      check(
          Naive.of(again.cursor("two"), again.entries()).acked.contains(entries.get(14)),
          "an ack without room is lost");
      end(again);
    }
  }

  private static long znode(LiveTopic topic) throws Exception {
    CompletableFuture<Long> version = new CompletableFuture<>();
    KeptZnodes.version(topic.ledger.getStore(), topic.ledger.getName(), SUBSCRIPTION)
        .whenComplete(
            (found, failed) -> {
              if (failed == null) {
                version.complete(found.version());
              } else {
                version.completeExceptionally(failed);
              }
            });
    return version.get(WAIT_S, TimeUnit.SECONDS);
  }

  private void goesOnWithStock() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = published(gate.address(), Map.of(), 20);
      topic.cursor("two");
      LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(topic.entries().get(3)))
          .get(WAIT_S, TimeUnit.SECONDS);
      end(topic); // what Pulsar knows
      LiveTopic more = load(gate.address(), Map.of());
      LiveTopic.ack(more.cursor(SUBSCRIPTION), List.of(more.entries().get(5)))
          .get(WAIT_S, TimeUnit.SECONDS);
      Naive confirmed = state(more);
      long before = znode(more);
      more.crash();

      gate.shut();
      LiveTopic stock = load(gate.address(), AT_ONCE);
      KeptLedger ledger = (KeptLedger) stock.ledger;
      check(
          ledger.isStock() && stock.cursor(SUBSCRIPTION).getClass() == ManagedCursorImpl.class,
          "it is no cursor of Pulsar's own");
      Naive own = state(stock);
      check(
          confirmed.acked.containsAll(own.acked) && own.acked.size() == confirmed.acked.size() - 1,
          "acked are " + own.acked);
      check(
          znode(stock) >= before + 2,
          "the znode went from version " + before + " to " + znode(stock));
      Figures now = figures(stock);
      same(1L, now.stockTopics(), "topics with Pulsar's own cursors");
      same(2L, now.cursors().get(Figures.State.STOCK), "Pulsar's own cursors");
      same(0L, now.cursors().get(Figures.State.KEPT), "kept cursors");
      same(1L, now.counters().stockLoads.sum(), "loads");
      check(now.counters().failedLoads.sum() >= 1, "no load failed");
      same(
          10_000,
          stock.ledger.getConfig().getMaxUnackedRangesToPersist(),
          "ranges that Pulsar keeps");
      stock.crash(); // it wrote nothing

      gate.open();
      try {
        load(gate.address(), GOES_ON);
        throw new AssertionError("it loaded");
      } catch (ManagedLedgerException e) {
        check(e.getMessage().contains("Pulsar itself changed this cursor"), e.getMessage());
      }
      LiveTopic kept = load(keeper, Map.of(Settings.ON_STALE, "keeper"));
      same(confirmed.acked, state(kept).acked, "acked");
      same(2L, figures(kept).counters().stale.sum(), "stale cursors");
      end(kept);
      LiveTopic last = load(keeper, Map.of());
      same(confirmed.acked, state(last).acked, "acked");
      end(last);
    }
  }

  /**
   * The same work, and then what the broker shows of it; positions by their number in the topic.
   */
  private Map<String, Object> worked(String by) throws Exception {
    name = name.replaceAll("-of-.*", "") + "-of-" + (by.isEmpty() ? "stock" : "kept");
    LiveTopic topic = published(by, Map.of(), 30);
    ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
    List<Position> entries = topic.entries();
    LiveTopic.markDelete(cursor, entries.get(2), Map.of("n", 7L)).get(WAIT_S, TimeUnit.SECONDS);
    for (int each : new int[] {4, 5, 8, 16, 20, 22}) {
      LiveTopic.ack(cursor, List.of(entries.get(each))).get(WAIT_S, TimeUnit.SECONDS);
    }
    LiveTopic.ack(cursor, List.of(entries.get(3))).get(WAIT_S, TimeUnit.SECONDS);
    BitSet left = new BitSet();
    left.set(1, 4);
    LiveTopic.ack(cursor, List.of(LiveTopic.part(entries.get(25), left)))
        .get(WAIT_S, TimeUnit.SECONDS);
    cursor.putCursorProperty("a", "b").get(WAIT_S, TimeUnit.SECONDS);
    cursor.readEntries(3).forEach(each -> each.release());
    topic.ledger.mbean.refreshStats(1, TimeUnit.SECONDS);

    Map<String, Object> figures = new LinkedHashMap<>();
    ManagedLedgerInternalStats stats =
        topic.ledger.getManagedLedgerInternalStats(false).get(WAIT_S, TimeUnit.SECONDS);
    ManagedLedgerInternalStats.CursorStats of = stats.cursors.get(SUBSCRIPTION);
    figures.put("markDeletePosition", number(entries, of.markDeletePosition));
    figures.put("readPosition", number(entries, of.readPosition));
    figures.put("waitingReadOp", of.waitingReadOp);
    figures.put("pendingReadOps", of.pendingReadOps);
    figures.put("messagesConsumedCounter", of.messagesConsumedCounter);
    figures.put("individuallyDeletedMessages", numbers(entries, of.individuallyDeletedMessages));
    figures.put("state", of.state);
    figures.put("active", of.active);
    figures.put(
        "numberOfEntriesSinceFirstNotAckedMessage", of.numberOfEntriesSinceFirstNotAckedMessage);
    figures.put(
        "totalNonContiguousDeletedMessagesRange", of.totalNonContiguousDeletedMessagesRange);
    figures.put("properties", of.properties);
    figures.put("cursorProperties", cursor.getCursorProperties());
    figures.put("hasLedgerSwitch", !of.lastLedgerSwitchTimestamp.isEmpty());
    figures.put("backlog", cursor.getNumberOfEntriesInBacklog(false));
    figures.put("preciseBacklog", cursor.getNumberOfEntriesInBacklog(true));
    figures.put("backlogSize", cursor.getEstimatedSizeSinceMarkDeletePosition());
    figures.put("entries", cursor.getNumberOfEntries());
    figures.put("markDeleteRate", topic.ledger.getStats().getMarkDeleteRate());
    figures.put(
        "persistentMarkDelete",
        number(entries, cursor.getPersistentMarkDeletedPosition().toString()));
    figures.put(
        "activeEntries",
        topic.ledger.getNumberOfActiveEntries()); // those behind the slowest cursor
    figures.put("persistLedgerErrors", cursor.getStats().getPersistLedgerErrors());
    figures.put("isPersisted", cursor.getStats().getPersistLedgerSucceed() > 0);
    figures.put(
        "throughput",
        cursor.getStats().getName()
            + " of "
            + cursor.getStats().getLedgerName().replaceAll(".*-of-.*", "it"));
    if (!by.isEmpty()) {
      same(-1L, of.cursorLedger, "a kept cursor's ledger");
      same(-1L, of.cursorLedgerLastEntry, "its last entry");
      ((KeptLedger) topic.ledger).link().close();
      until(
          "failures count",
          () -> {
            LiveTopic.ack(cursor, List.of(entries.get(28)));
            return cursor.getStats().getPersistLedgerErrors() > 0;
          });
      topic.crash();
    } else {
      end(topic);
    }
    return figures;
  }

  private static String number(List<Position> entries, String position) {
    for (int i = 0; i < entries.size(); i++) {
      if (entries.get(i).toString().equals(position)) {
        return "#" + i;
      }
    }
    return position;
  }

  private static String numbers(List<Position> entries, String ranges) {
    String all = ranges;
    for (int i = entries.size() - 1; i >= 0; i--) {
      all = all.replaceAll("(?<![0-9])" + entries.get(i) + "(?![0-9])", "#" + i);
    }
    return all.replaceAll("[0-9]+:-1", "start");
  }

  private void comparesFigures() throws Exception {
    Map<String, Object> stock = worked(STOCK);
    Map<String, Object> kept = worked(keeper);
    List<String> different =
        stock.keySet().stream()
            .filter(each -> !String.valueOf(stock.get(each)).equals(String.valueOf(kept.get(each))))
            .map(each -> each + ": Pulsar's own " + stock.get(each) + ", kept " + kept.get(each))
            .toList();
    check(different.isEmpty(), String.join("; ", different));
  }

  private void trimsNothingTooEarly() throws Exception {
    LiveTopic stock = published(STOCK, Map.of(), 30);
    for (int i = 0; i < 8; i++) {
      LiveTopic.markDelete(
              stock.cursor("done-" + i), stock.ledger.getLastConfirmedEntry(), Map.of())
          .get(WAIT_S, TimeUnit.SECONDS);
    }
    end(stock);
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
    trimmed.get(WAIT_S, TimeUnit.SECONDS);
    same(30, kept.entries().size(), "entries");
    same(30L, kept.cursor(SUBSCRIPTION).getNumberOfEntries(), "entries to be delivered");
    end(kept);
  }
}
