package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.OutageMain.WAIT_S;
import static org.apache.bookkeeper.mledger.impl.OutageMain.failure;
import static org.apache.bookkeeper.mledger.impl.OutageMain.same;
import static org.apache.bookkeeper.mledger.impl.OutageMain.until;
import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.client.FakeKeeper;
import io.cursorkeeper.pulsar.Imprint;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Settings;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * What becomes of a new cursor whose znode is made when the keeper stops answering. Part of {@link
 * OutageMain}.
 */
final class NewCursorStories {

  private static final String SUBSCRIPTION = "sub";
  private static final long LATER_LOAD = 1L << 40;

  /** The older load hears nothing of its link in time. */
  private static final Map<String, String> PATIENT = Map.of(Settings.CLOSE_TIMEOUT_MS, "55000");

  private final String zooKeeper;
  private final Supplier<String> name;

  NewCursorStories(String zooKeeper, Supplier<String> name) {
    this.zooKeeper = zooKeeper;
    this.name = name;
  }

  void addTo(Map<String, Stories.Story> all) {
    all.put(
        "a new cursor of which the keeper does not hear is gone, and may be made again",
        this::isMadeAgain);
    all.put("a new cursor that a newer load may have stays", this::staysWhereFenced);
    all.put(
        "a new cursor that a newer load has stays, whatever the older one knows",
        () -> staysWhereLoaded(false));
    all.put(
        "so does one of which the keeper has heard, and the older load has not heard that",
        () -> staysWhereLoaded(true));
  }

  private LiveTopic load(String by) throws Exception {
    LiveTopic topic = new LiveTopic(zooKeeper, by, name.get(), PATIENT);
    for (int i = 0; i < 10; i++) {
      topic.publish();
    }
    return topic;
  }

  /** Begins to make the cursor. Its znode is there, and nothing becomes durable at the keeper. */
  private CompletableFuture<Void> making(LiveTopic topic, FakeKeeper keeper) throws Exception {
    keeper.faults().holdDurable = true;
    CompletableFuture<Void> made =
        CompletableFuture.runAsync(
            () -> {
              try {
                topic.cursor(SUBSCRIPTION);
              } catch (Exception e) {
                throw new CompletionException(e);
              }
            });
    until("the znode is made", () -> hasZnode(topic));
    check(!made.isDone(), "a cursor is there without the keeper's word");
    return made;
  }

  private static boolean hasZnode(LiveTopic topic) {
    return topic
        .store()
        .exists("/managed-ledgers/" + topic.ledger.getName() + "/" + SUBSCRIPTION)
        .join();
  }

  private static void ack(LiveTopic topic, int number) throws Exception {
    LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(topic.entries().get(number)))
        .get(WAIT_S, TimeUnit.SECONDS);
  }

  private static Naive state(LiveTopic topic) throws Exception {
    return Naive.of(topic.cursor(SUBSCRIPTION), topic.entries());
  }

  /** Of which the keeper has the note. */
  private static Imprint.Znode znode(FakeKeeper keeper, LiveTopic topic) {
    return Imprint.of(
            keeper.stored(Names.topic(topic.ledger.getName()), SUBSCRIPTION).cursorProperties())
        .znode();
  }

  private void isMadeAgain() throws Exception {
    try (FakeKeeper keeper = new FakeKeeper().start()) {
      LiveTopic topic = load(keeper.address());
      CompletableFuture<Void> made = making(topic, keeper);
      topic.ours().link().close();
      failure(made);
      check(!hasZnode(topic), "the znode is left");
      topic.crash();
      keeper.release();
      LiveTopic again = load(keeper.address());
      ack(again, 3);
      Naive confirmed = state(again);
      again.crash();
      LiveTopic last = load(keeper.address());
      same(confirmed.acked, state(last).acked, "acked");
      last.crash();
    }
  }

  private void staysWhereFenced() throws Exception {
    try (FakeKeeper keeper = new FakeKeeper().start()) {
      LiveTopic topic = load(keeper.address());
      CompletableFuture<Void> made = making(topic, keeper);
      keeper.kill();
      keeper.fence(Names.topic(topic.ledger.getName()), SUBSCRIPTION, LATER_LOAD);
      keeper.start();
      String said = failure(made);
      check(said.contains("FENCED"), said);
      check(hasZnode(topic), "the newer load's subscription is gone");
      topic.crash();
    }
  }

  private void staysWhereLoaded(boolean isHeard) throws Exception {
    try (FakeKeeper keeper = new FakeKeeper().start();
        Gate gate = new Gate(keeper.address())) {
      LiveTopic old = load(gate.address());
      CompletableFuture<Void> made = making(old, keeper);
      if (isHeard) {
        gate.mute();
        until(
            "the keeper has heard",
            () -> {
              keeper.release();
              return znode(keeper, old) != null;
            });
      }
      gate.shut();
      if (!isHeard) {
        keeper.kill(); // and with it what was not durable
        keeper.release();
        keeper.start();
      }
      check(
          isHeard == (znode(keeper, old) != null),
          "the keeper knows of znode " + znode(keeper, old));
      LiveTopic young = load(keeper.address());
      ack(young, 3);
      Naive confirmed = state(young);
      old.ours().link().close();
      failure(made);
      check(hasZnode(young), "the newer load's subscription is gone");
      young.crash();
      LiveTopic again = load(keeper.address());
      same(
          List.of(SUBSCRIPTION),
          List.of(again.ledger.getCursors().iterator().next().getName()),
          "subscriptions");
      same(confirmed.acked, state(again).acked, "acked");
      again.crash();
      old.crash();
    }
  }
}
