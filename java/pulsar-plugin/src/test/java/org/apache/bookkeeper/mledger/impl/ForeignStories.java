package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.client.Acks;
import io.cursorkeeper.client.OpenRequest;
import io.cursorkeeper.client.OpenedCursor;
import io.cursorkeeper.pulsar.Names;
import java.util.BitSet;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;

/**
 * Stories of {@link StoriesMain}: a client acks what the topic does not have, as after a failover
 * to another cluster.
 */
final class ForeignStories {

  private static final String SUBSCRIPTION = "sub";
  private static final int STORY_MAX_S = 60;

  private final String zooKeeper;
  private final String keeper;
  private String name;

  ForeignStories(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  void on(String topic) {
    name = topic;
  }

  Map<String, Stories.Story> all() {
    Map<String, Stories.Story> all = new LinkedHashMap<>();
    all.put(
        "acks of what the topic does not have are answered, and nobody else notices", this::acks);
    all.put(
        "cumulative acks of what the topic does not have count up to it", this::acksCumulatively);
    all.put("an ack beyond a ledger's end that the keeper has heals at the next load", this::heals);
    all.put(
        "Pulsar's state is taken over with acks of what the topic does not have", this::imports);
    all.put("an ack that the keeper refuses fails, and the cursor goes on", this::refuses);
    return all;
  }

  private LiveTopic load(String by) throws Exception {
    return new LiveTopic(zooKeeper, by, name, Map.of());
  }

  /** A topic of several data ledgers; between two of them is one of another topic. */
  private LiveTopic worked(String by) throws Exception {
    return worked(
        new LiveTopic(
            zooKeeper,
            by,
            name,
            Map.of(),
            config -> config.setUnackedRangesOpenCacheSetEnabled(false)));
  }

  private LiveTopic worked(LiveTopic topic) throws Exception {
    topic.cursor(SUBSCRIPTION);
    topic.cursor("other");
    publish(topic, 10);
    LiveTopic foreign = new LiveTopic(zooKeeper, "", name + "-foreign", Map.of());
    publish(foreign, 1);
    foreign.crash();
    publish(topic, 15);
    return topic;
  }

  private static void publish(LiveTopic topic, int count) throws Exception {
    for (int i = 0; i < count; i++) {
      topic.publish();
    }
  }

  private static void ack(LiveTopic topic, String subscription, Position... positions)
      throws Exception {
    LiveTopic.ack(topic.cursor(subscription), List.of(positions))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
  }

  /** An entry beyond the end of a closed ledger. */
  private static Position beyond(LiveTopic topic, int of) {
    return PositionFactory.create(topic.entries().get(of).getLedgerId(), 1_000);
  }

  /** An entry of a ledger that is not the topic's, between its second and its third one. */
  private static Position foreign(LiveTopic topic) {
    TreeSet<Long> ids = new TreeSet<>(topic.ledger.getLedgersInfo().keySet());
    for (long id = topic.entries().get(9).getLedgerId() + 1; id < ids.last(); id++) {
      if (!ids.contains(id)) {
        return PositionFactory.create(id, 3);
      }
    }
    throw new AssertionError("no ledger of another topic between " + ids);
  }

  private static void isLoaded(LiveTopic topic) throws Exception {
    Position last = topic.publish();
    ack(topic, "other", last);
    check(
        topic.ledger.getState() == ManagedLedgerImpl.State.LedgerOpened,
        "the topic is " + topic.ledger.getState());
  }

  private static void isAcked(LiveTopic topic, int... numbers) throws Exception {
    Set<Position> expected = new HashSet<>();
    for (int each : numbers) {
      expected.add(topic.entries().get(each));
    }
    Naive found = Naive.of(topic.cursor(SUBSCRIPTION), topic.entries());
    check(found.acked.equals(expected), "acked are " + found.acked + ", and not " + expected);
  }

  private void acks() throws Exception {
    LiveTopic kept = worked(keeper);
    List<Position> entries = kept.entries();
    ack(kept, SUBSCRIPTION, entries.get(0), entries.get(9));
    ack(kept, SUBSCRIPTION, beyond(kept, 2));
    ack(kept, SUBSCRIPTION, foreign(kept), entries.get(24), beyond(kept, 9));
    BitSet left = new BitSet();
    left.set(1, 4);
    ack(kept, SUBSCRIPTION, LiveTopic.part(beyond(kept, 2), left), entries.get(15));
    isLoaded(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    isAcked(again, 0, 9, 15, 24);
    isLoaded(again);
    again.crash();
  }

  private void acksCumulatively() throws Exception {
    LiveTopic kept = worked(keeper);
    ManagedCursorImpl cursor = kept.cursor(SUBSCRIPTION);
    LiveTopic.markDelete(cursor, beyond(kept, 2), Map.of("n", 1L))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    isLoaded(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    isAcked(again, 0, 1, 2, 3, 4, 5, 6);
    LiveTopic.markDelete(again.cursor(SUBSCRIPTION), foreign(again), Map.of("n", 2L))
        .get(STORY_MAX_S, TimeUnit.SECONDS);
    Naive before = Naive.of(again.cursor(SUBSCRIPTION), again.entries());
    isLoaded(again);
    again.crash();
    LiveTopic third = load(keeper);
    Naive after = Naive.of(third.cursor(SUBSCRIPTION), third.entries());
    check(
        before.acked.equals(after.acked) && after.properties.equals(Map.of("n", 2L)),
        "acked were " + before.acked + " and are " + after.acked + ", " + after.properties);
    check(
        third.cursor(SUBSCRIPTION).getNumberOfEntriesInBacklog(true)
            == third.entries().size() - after.acked.size(),
        "the backlog is " + third.cursor(SUBSCRIPTION).getNumberOfEntriesInBacklog(true));
    third.unload();
    third.shutdown();
  }

  /**
   * The keeper is told that a ledger is closed when a later one is acked: it may have taken an ack
   * beyond its end before.
   */
  private void heals() throws Exception {
    LiveTopic kept = load(keeper);
    kept.cursor("other");
    publish(kept, 3);
    ack(kept, SUBSCRIPTION, kept.entries().get(1));
    publish(kept, 10);
    long token = ((KeptLedger) kept.ledger).token();
    Position beyond = beyond(kept, 1);
    kept.crash();
    LiveTopic helper = new LiveTopic(zooKeeper, keeper, name + "-helper", Map.of());
    String topic = Names.topic(kept.ledger.getName());
    OpenRequest request =
        OpenRequest.of(topic, Names.subscription(SUBSCRIPTION))
            .withCreate(false)
            .withFencingToken(token);
    OpenedCursor opened =
        helper.ours().link().open(request, why -> {}).get(STORY_MAX_S, TimeUnit.SECONDS);
    Acks acks =
        new Acks(opened.state().generation()).entry(beyond.getLedgerId(), beyond.getEntryId());
    opened.cursor().ack(acks).get(STORY_MAX_S, TimeUnit.SECONDS);
    opened.cursor().close().get(STORY_MAX_S, TimeUnit.SECONDS);
    helper.crash();
    LiveTopic again = load(keeper);
    isAcked(again, 1);
    ack(again, SUBSCRIPTION, again.entries().get(0), again.entries().get(9));
    isLoaded(again);
    again.crash();
    LiveTopic third = load(keeper);
    isAcked(third, 0, 1, 9);
    isLoaded(third);
    third.crash();
  }

  private void imports() throws Exception {
    LiveTopic stock = worked("");
    ManagedCursorImpl cursor = stock.cursor(SUBSCRIPTION);
    List<Position> entries = stock.entries();
    LiveTopic.markDelete(cursor, entries.get(1), Map.of()).get(STORY_MAX_S, TimeUnit.SECONDS);
    ack(
        stock,
        SUBSCRIPTION,
        foreign(stock),
        beyond(stock, 2),
        beyond(stock, 9),
        entries.get(6),
        entries.get(20));
    BitSet left = new BitSet();
    left.set(1);
    ack(stock, SUBSCRIPTION, LiveTopic.part(entries.get(7), left)); // the first entry of a ledger
    BitSet other = new BitSet();
    other.set(0);
    ack(stock, SUBSCRIPTION, LiveTopic.part(entries.get(7), other));
    ack(stock, SUBSCRIPTION, entries.get(22));
    isAcked(stock, 0, 1, 6, 7, 20, 22);
    stock.crash();
    LiveTopic kept =
        new LiveTopic(
            zooKeeper,
            keeper,
            name,
            Map.of(),
            config -> config.setUnackedRangesOpenCacheSetEnabled(false));
    isAcked(kept, 0, 1, 6, 7, 20, 22);
    isLoaded(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    isAcked(again, 0, 1, 6, 7, 20, 22);
    again.crash();
  }

  private void refuses() throws Exception {
    LiveTopic kept = worked(keeper);
    List<Position> entries = kept.entries();
    BitSet left = new BitSet();
    left.set(69_999); // a batch has 65,536 messages at most
    for (int at = 3; at < 5; at++) {
      ack(kept, SUBSCRIPTION, entries.get(at));
      try {
        ack(kept, SUBSCRIPTION, LiveTopic.part(entries.get(at + 10), left));
        throw new AssertionError("it was taken");
      } catch (ExecutionException expected) {
        check(expected.getMessage().contains("BATCH_CONTRADICTS"), expected.getMessage());
      }
    }
    check(
        kept.ours().counters().changesRefused.sum() == 2,
        "counted are " + kept.ours().counters().changesRefused.sum());
    ack(kept, SUBSCRIPTION, entries.get(20));
    isLoaded(kept);
    kept.crash();
    LiveTopic again = load(keeper);
    isAcked(again, 3, 4, 20);
    isLoaded(again);
    again.crash();
  }
}
