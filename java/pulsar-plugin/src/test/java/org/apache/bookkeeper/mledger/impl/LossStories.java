package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.OutageMain.WAIT_S;
import static org.apache.bookkeeper.mledger.impl.OutageMain.failure;
import static org.apache.bookkeeper.mledger.impl.OutageMain.figures;
import static org.apache.bookkeeper.mledger.impl.OutageMain.same;
import static org.apache.bookkeeper.mledger.impl.OutageMain.until;
import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.pulsar.Settings;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.bookkeeper.mledger.AsyncCallbacks;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;

/**
 * What must not be lost, nor stay unanswered, when a daemon goes away at the worst moment. Part of
 * {@link OutageMain}.
 */
final class LossStories {

  private static final String SUBSCRIPTION = "sub";

  /** Of a load that shall fail. */
  private static final Map<String, String> OPENS_IN_VAIN = Map.of(Settings.OPEN_TIMEOUT_MS, "1500");

  private static final Map<String, String> CLOSES_IN_VAIN =
      Map.of(Settings.CLOSE_TIMEOUT_MS, "1500");

  private final String zooKeeper;
  private final String keeper;
  private final Supplier<String> name;

  LossStories(String zooKeeper, String keeper, Supplier<String> name) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
    this.name = name;
  }

  void addTo(Map<String, Stories.Story> all) {
    all.put("who subscribes where the cursor did not load changes nothing", this::subscribesInVain);
    all.put("a subscription that is gone leaves nothing to one of its name", this::startsAnew);
    all.put(
        "a seek back keeps the data ledgers that it needs, from its beginning", this::seeksBack);
    all.put("who repeats an ack that did not become durable gets no receipt", this::repeatsInVain);
    all.put("whoever fails at its answer, the others hear theirs", this::answersEach);
    all.put(
        "an ack that comes just before a clean stop is in the way back", this::stopsBehindAnAck);
    all.put(
        "a change of string properties does not wait without end", this::changesPropertiesInVain);
  }

  private LiveTopic load(String by, Map<String, String> settings) throws Exception {
    return new LiveTopic(zooKeeper, by, name.get(), settings);
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

  /** A load that waits for little. Its cursor is made by another one, which does not. */
  private LiveTopic closesInVain(Gate gate, int entries) throws Exception {
    published(gate.address(), Map.of(), entries).crash();
    return load(gate.address(), CLOSES_IN_VAIN);
  }

  private static void ack(LiveTopic topic, int... numbers) throws Exception {
    List<Position> entries = topic.entries();
    for (int each : numbers) {
      LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(entries.get(each)))
          .get(WAIT_S, TimeUnit.SECONDS);
    }
  }

  private static Naive state(LiveTopic topic) throws Exception {
    return Naive.of(topic.cursor(SUBSCRIPTION), topic.entries());
  }

  private static boolean exists(LiveTopic topic) {
    try {
      return refused(topic) instanceof ManagedLedgerException.BadVersionException;
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static ManagedLedgerException refused(LiveTopic topic) throws Exception {
    try {
      topic.cursor(SUBSCRIPTION);
    } catch (ManagedLedgerException e) {
      return e;
    }
    throw new AssertionError("there is a cursor");
  }

  private void subscribesInVain() throws Exception {
    LiveTopic kept = published(keeper, Map.of(), 20);
    ack(kept, 0, 1, 2, 3, 7, 12);
    Naive confirmed = state(kept);
    kept.crash();
    try (Gate gate = new Gate(keeper)) {
      gate.shut();
      LiveTopic lazy =
          new LiveTopic(
              zooKeeper,
              gate.address(),
              name.get(),
              OPENS_IN_VAIN,
              config -> config.setLazyCursorRecovery(true));
      check(refused(lazy).getMessage().contains("AWAY"), "it does not say that the keeper is away");
      gate.open();
      until("the link is up", () -> figures(lazy).isLinkUp());
      until(
          "it is known that there is such a cursor",
          () -> exists(lazy)); // on a busy machine the keeper may need longer than is given
      lazy.crash();
    }
    LiveTopic again = load(keeper, Map.of());
    same(confirmed.acked, state(again).acked, "acked");
    again.crash();
  }

  private void startsAnew() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = published(gate.address(), Map.of(), 20);
      ack(topic, 0, 1, 5);
      gate.shut();
      topic.ledger.deleteCursor(SUBSCRIPTION); // of which the keeper does not hear
      topic.crash();
    }
    LiveTopic anew = load(keeper, Map.of());
    check(state(anew).acked.isEmpty(), "acks of the subscription that is gone");
    ack(anew, 3);
    Naive confirmed = state(anew);
    anew.crash();
    LiveTopic again = load(keeper, Map.of());
    same(confirmed.acked, state(again).acked, "acked");
    again.crash();
  }

  /** The managed ledger's executor stands still until what is returned is completed. */
  private static CompletableFuture<Void> stand(LiveTopic topic) {
    CompletableFuture<Void> goesOn = new CompletableFuture<>();
    topic.ledger.getExecutor().execute(goesOn::join);
    return goesOn;
  }

  /**
   * An ack that is durable before the seek is sent, and told behind it, changes nothing of that.
   */
  private void seeksBack() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = published(gate.address(), Map.of(), 40);
      ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
      List<Position> entries = topic.entries();
      LiveTopic.markDelete(cursor, entries.get(20), Map.of()).get(WAIT_S, TimeUnit.SECONDS);
      CompletableFuture<Void> goesOn = stand(topic);
      StoriesMain.receipt(() -> LiveTopic.markDelete(cursor, entries.get(35), Map.of()))
          .get(WAIT_S, TimeUnit.SECONDS);
      gate.shut();
      until("the link is down", () -> !figures(topic).isLinkUp());
      CompletableFuture<Void> sought = new CompletableFuture<>();
      cursor.internalResetCursor(
          entries.get(9),
          new AsyncCallbacks.ResetCursorCallback() {
            @Override
            public void resetComplete(Object ctx) {
              sought.complete(null);
            }

            @Override
            public void resetFailed(ManagedLedgerException exception, Object ctx) {
              sought.completeExceptionally(exception);
            }
          });
      goesOn.complete(null);
      topic.ledger.getConfig().setRetentionTime(0, TimeUnit.SECONDS);
      topic.ledger.getConfig().setRetentionSizeInMB(0);
      CompletableFuture<Void> trimmed = new CompletableFuture<>();
      topic.ledger.trimConsumedLedgersInBackground(trimmed);
      trimmed.get(WAIT_S, TimeUnit.SECONDS);
      check(!sought.isDone(), "the seek is done without the keeper");
      check(
          topic.entries().containsAll(entries.subList(9, 40)), "entries left: " + topic.entries());
      gate.open();
      sought.get(WAIT_S, TimeUnit.SECONDS);
      topic.crash();
    }
    LiveTopic again = load(keeper, Map.of());
    same(31L, again.cursor(SUBSCRIPTION).getNumberOfEntries(), "entries to be delivered");
    again.crash();
  }

  private void repeatsInVain() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = closesInVain(gate, 20);
      ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
      List<Position> entries = topic.entries();
      LiveTopic.markDelete(cursor, entries.get(0), Map.of()).get(WAIT_S, TimeUnit.SECONDS);
      gate.shut();
      until("the link is down", () -> !figures(topic).isLinkUp());
      CompletableFuture<Void> lower = LiveTopic.markDelete(cursor, entries.get(5), Map.of());
      CompletableFuture<Void> higher = LiveTopic.markDelete(cursor, entries.get(9), Map.of());
      ((KeptManagedCursor) cursor).leave(); // as at the end of a load
      failure(lower);
      failure(higher);
      CompletableFuture<Void> receipt =
          StoriesMain.receipt(() -> LiveTopic.markDelete(cursor, entries.get(5), Map.of()));
      check(receipt != null, "the receipt waits for nothing");
      failure(receipt);
      topic.crash();
    }
  }

  private void answersEach() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = published(gate.address(), Map.of(), 20);
      ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
      List<Position> entries = topic.entries();
      gate.shut();
      until("the link is down", () -> !figures(topic).isLinkUp());
      cursor.asyncDelete(
          List.of(entries.get(2)),
          new AsyncCallbacks.DeleteCallback() {
            @Override
            public void deleteComplete(Object ctx) {
              throw new IllegalStateException("the broker fails, as this story wants it to");
            }

            @Override
            public void deleteFailed(ManagedLedgerException exception, Object ctx) {}
          },
          null);
      CompletableFuture<Void> other = LiveTopic.ack(cursor, List.of(entries.get(3)));
      gate.open();
      other.get(WAIT_S, TimeUnit.SECONDS);
      topic.crash();
    }
  }

  /**
   * Pulsar reads the position before it asks for the znode; the ack may have passed its check
   * before that.
   */
  private void stopsBehindAnAck() throws Exception {
    LiveTopic topic = published(keeper, Map.of(), 20);
    KeptManagedCursor cursor = (KeptManagedCursor) topic.cursor(SUBSCRIPTION);
    ack(topic, 0, 1, 3, 4, 5, 9);
    Position read = cursor.lastMarkDeleteEntry.newPosition;
    ack(topic, 2); // everything up to 5 is acked now, without a range
    Naive confirmed = state(topic);
    CompletableFuture<Void> written = new CompletableFuture<>();
    cursor.persistPositionWhenClosing(
        read,
        Map.of(),
        new AsyncCallbacks.CloseCallback() {
          @Override
          public void closeComplete(Object ctx) {
            written.complete(null);
          }

          @Override
          public void closeFailed(ManagedLedgerException exception, Object ctx) {
            written.completeExceptionally(exception);
          }
        },
        null);
    written.get(WAIT_S, TimeUnit.SECONDS);
    topic.crash();
    LiveTopic stock = load("", Map.of());
    same(confirmed.acked, state(stock).acked, "acked");
    stock.crash();
  }

  private void changesPropertiesInVain() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic topic = closesInVain(gate, 1);
      ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
      until(
          "a property is set",
          () ->
              cursor
                  .putCursorProperty("a", "1")
                  .handle((nothing, failed) -> failed == null)
                  .join());
      gate.shut();
      until("the link is down", () -> !figures(topic).isLinkUp());
      CompletableFuture<Void> put = cursor.putCursorProperty("b", "2");
      CompletableFuture<Void> behind = cursor.setCursorProperties(Map.of("c", "3"));
      for (String said : List.of(failure(put), failure(behind))) {
        check(said.contains("did not answer within 1500 ms"), said);
      }
      gate.open();
      until("the link is up", () -> figures(topic).isLinkUp());
      until(
          "properties can be changed",
          () ->
              cursor
                  .putCursorProperty("d", "4")
                  .handle((nothing, failed) -> failed == null)
                  .join());
      same(Map.of("a", "1", "d", "4"), cursor.getCursorProperties(), "string properties");
      topic.crash();
    }
    LiveTopic again = load(keeper, Map.of());
    same(
        Map.of("a", "1", "d", "4"),
        again.cursor(SUBSCRIPTION).getCursorProperties(),
        "string properties");
    again.crash();
  }
}
