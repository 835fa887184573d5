package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.Stories.check;

import io.cursorkeeper.client.Acks;
import io.cursorkeeper.client.CursorListener;
import io.cursorkeeper.client.FakeKeeper;
import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.client.OpenRequest;
import io.cursorkeeper.client.OpenedCursor;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Settings;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.Position;

/**
 * What happens where Pulsar keeps its cursors and the keeper has copies, and on the ways into it
 * and out of it. Arguments: ZooKeeper, keeper. Ends with 0 and one line, or with the story that
 * failed.
 */
public final class ShadowMain {

  private static final String STOCK = "";
  private static final String NOBODY = "127.0.0.1:1";
  private static final String SUBSCRIPTION = "sub";

  private final String zooKeeper;
  private final String keeper;
  private String name;

  private ShadowMain(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  public static void main(String[] arguments) {
    ShadowMain stories = new ShadowMain(arguments[0], arguments[1]);
    Map<String, Stories.Story> all = new LinkedHashMap<>();
    all.put("a copy follows, and Pulsar keeps what it keeps without it", stories::follows);
    all.put("a subscription that is made again, and a seek, are followed", stories::followsSeek);
    all.put("a wrong copy is noticed, and made right", stories::noticesWrong);
    all.put(
        "the truth is imported from Pulsar after a shadow, however it ended",
        stories::keepsAfterShadow);
    all.put("Pulsar's state is imported from whatever holds it", stories::importsAll);
    all.put("what a clean stop of keep left is taken for a copy", stories::shadowsAfterKeep);
    all.put("what only the keeper has is not overwritten", stories::sparesTheTruth);
    all.put("a seek back that only the keeper has is not overwritten", stories::sparesTheSeek);
    all.put("what a crash would cost is what it costs", stories::foretellsCrash);
    all.put("without a keeper the broker does what it did", stories::needsNobody);
    all.put("a keeper that stands still costs a copy, and nothing else", stories::givesUp);
    Stories.tell("shadow", all, topic -> stories.name = topic);
  }

  private LiveTopic load(
      String by, Map<String, String> settings, Consumer<ManagedLedgerConfig> with)
      throws Exception {
    return new LiveTopic(zooKeeper, by, name, settings, with);
  }

  private LiveTopic shadow(String by) throws Exception {
    return load(by, Copies.SETTINGS, config -> {});
  }

  private LiveTopic keep() throws Exception {
    return load(keeper, Map.of(), config -> {});
  }

  private LiveTopic stock() throws Exception {
    return load(STOCK, Map.of(), config -> {});
  }

  private static void end(LiveTopic topic) throws Exception {
    topic.unload();
    topic.shutdown();
  }

  /** Four data ledgers, some acks, a part of a batch. */
  private static LiveTopic worked(LiveTopic topic) throws Exception {
    for (int i = 0; i < 25; i++) {
      topic.publish();
    }
    List<Position> entries = topic.entries();
    LiveTopic.markDelete(topic.cursor(SUBSCRIPTION), entries.get(2), Map.of("n", 7L))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    BitSet left = new BitSet();
    left.set(1, 4);
    LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(LiveTopic.part(entries.get(22), left)))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    ack(topic, 4, 5, 9, 16, 20);
    return topic;
  }

  /**
   * As Pulsar finds it after a clean stop: of batches that are partly acked its znode holds what
   * its recovery does not read.
   */
  private static Naive afterCleanStop(Naive state) {
    state.left.clear();
    return state;
  }

  private static void ack(LiveTopic topic, int... numbers) throws Exception {
    for (int each : numbers) {
      LiveTopic.ack(topic.cursor(SUBSCRIPTION), List.of(topic.entries().get(each)))
          .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    }
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

  /** Two more comparisons, none of which finds anything. */
  private static void compared(LiveTopic topic) throws Exception {
    Counters counters = Copies.counters(topic);
    long before = counters.shadowComparisons.sum();
    Copies.until(() -> counters.shadowComparisons.sum() >= before + 2, "nothing is compared");
    Copies.noneDiffered(topic);
  }

  private void follows() throws Exception {
    LiveTopic shadow = worked(shadow(keeper));
    Copies.untilEqual(shadow, SUBSCRIPTION);
    check(Copies.counters(shadow).shadowsFollowing.sum() == 1, "it does not count as following");
    compared(shadow);
    Naive before = state(shadow);
    shadow.crash();
    LiveTopic stock = stock();
    same(before, state(stock));
    ack(stock, 24);
    Naive more = state(stock);
    end(stock);
    LiveTopic again = shadow(keeper);
    same(afterCleanStop(more), state(again));
    Copies.untilEqual(again, SUBSCRIPTION);
    compared(again);
    end(again);
    check(
        Copies.counters(again).shadowsFollowing.sum() == 0,
        "it counts as following when it is closed");
    LiveTopic last = stock();
    same(more, state(last));
    end(last);
  }

  private void followsSeek() throws Exception {
    LiveTopic shadow = worked(shadow(keeper));
    Copies.untilEqual(shadow, SUBSCRIPTION);
    LiveTopic.reset(shadow.cursor(SUBSCRIPTION), shadow.entries().get(1))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    ack(shadow, 12);
    Copies.untilEqual(shadow, SUBSCRIPTION);
    shadow.ledger.deleteCursor(SUBSCRIPTION);
    Copies.until(() -> isGone(shadow), "the copy of a deleted subscription is at the keeper");
    ack(shadow, 3);
    shadow.cursor(SUBSCRIPTION).putProperty("of", 3L);
    Copies.untilEqual(shadow, SUBSCRIPTION);
    compared(shadow);
    end(shadow);
  }

  private static boolean isGone(LiveTopic topic) {
    try {
      return Copies.atKeeper(topic, SUBSCRIPTION) == null;
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  /**
   * As somebody does who should not: an ack that Pulsar knows nothing of. The gate is shut
   * meanwhile: the copy would take its cursor back.
   */
  private void spoil(LiveTopic topic, int number, Gate gate) throws Exception {
    gate.shut();
    Position entry = topic.entries().get(number);
    long token = ((ShadowedLedger) topic.ledger).token();
    try (KeeperLink other = KeeperLink.connect(LiveTopic.patient(keeper))) {
      CursorListener listener = why -> {};
      OpenedCursor opened =
          other
              .open(
                  OpenRequest.of(Names.topic(name), SUBSCRIPTION).withFencingToken(token), listener)
              .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
      opened
          .cursor()
          .ack(new Acks(opened.state().generation()).entry(entry.getLedgerId(), entry.getEntryId()))
          .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    }
  }

  private void noticesWrong() throws Exception {
    try (Gate gate = new Gate(keeper)) {
      LiveTopic shadow = worked(shadow(gate.address()));
      Copies.untilEqual(shadow, SUBSCRIPTION);
      spoil(shadow, 11, gate);
      gate.open();
      Counters counters = Copies.counters(shadow);
      Copies.until(() -> counters.shadowDifferences.sum() == 1, "the wrong copy is not noticed");
      Copies.untilEqual(shadow, SUBSCRIPTION);
      ack(shadow, 23);
      Copies.untilEqual(shadow, SUBSCRIPTION);
      check(
          counters.shadowDifferences.sum() == 1,
          "a copy that is right again is taken for a wrong one");
      end(shadow);
    }
  }

  private void keepsAfterShadow() throws Exception {
    Naive before;
    try (Gate gate = new Gate(keeper)) {
      LiveTopic shadow = worked(shadow(gate.address()));
      Copies.untilEqual(shadow, SUBSCRIPTION);
      before = state(shadow);
      spoil(shadow, 11, gate);
      shadow.crash(); // with a wrong copy
    }
    LiveTopic kept = keep();
    same(before, state(kept));
    ack(kept, 24);
    Naive more = state(kept);
    kept.crash();
    LiveTopic again = keep();
    same(more, state(again));
    end(again);
    LiveTopic second = shadow(keeper);
    Copies.untilEqual(second, SUBSCRIPTION);
    ack(second, 23);
    Naive most = state(second);
    end(second);
    LiveTopic last = keep();
    same(afterCleanStop(most), state(last));
    end(last);
  }

  /** Where Pulsar has a cursor's state when `keep` finds it first. */
  private record Held(
      String where,
      boolean isCleanStop,
      Consumer<ManagedLedgerConfig> with,
      Consumer<ManagedLedgerFactoryConfig> withAll) {}

  private void importsAll() throws Exception {
    List<Held> all =
        List.of(
            new Held(
                "a cursor ledger, as words",
                false,
                config -> config.setPersistIndividualAckAsLongArray(true),
                of -> {}),
            new Held(
                "a cursor ledger, as ranges",
                false,
                config -> config.setPersistIndividualAckAsLongArray(false),
                of -> {}),
            new Held(
                "a cursor ledger, after a clean stop",
                true,
                config -> config.setMaxUnackedRangesToPersistInMetadataStore(1),
                of -> {}),
            new Held("the znode", true, config -> {}, of -> {}),
            new Held(
                "the znode, compressed",
                true,
                config -> {},
                of -> {
                  of.setManagedCursorInfoCompressionType("LZ4");
                  of.setManagedCursorInfoCompressionThresholdInBytes(1);
                }));
    for (Held each : all) {
      name += "-next";
      LiveTopic stock =
          worked(new LiveTopic(zooKeeper, STOCK, name, Map.of(), each.with, each.withAll));
      boolean isInZnode = each.where.startsWith("the znode");
      boolean isCompressed =
          each.where.endsWith("compressed"); // with properties no released Pulsar reads it
      ManagedCursorImpl cursor = stock.cursor(SUBSCRIPTION);
      if (isCompressed) {
        LiveTopic.markDelete(cursor, stock.entries().get(3), Map.of())
            .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
      } else {
        cursor.putCursorProperty("a", "b").get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
      }
      ack(stock, 18);
      Naive before = isInZnode ? afterCleanStop(state(stock)) : state(stock);
      if (each.isCleanStop) {
        end(stock);
      } else {
        stock.crash();
      }
      LiveTopic kept = new LiveTopic(zooKeeper, keeper, name, Map.of(), each.with, each.withAll);
      imported(each.where, before, kept, isCompressed ? Map.of() : Map.of("a", "b"));
      kept.crash();
      LiveTopic again = new LiveTopic(zooKeeper, keeper, name, Map.of(), each.with, each.withAll);
      imported(each.where, before, again, isCompressed ? Map.of() : Map.of("a", "b"));
      end(again);
    }
    name += "-empty";
    LiveTopic empty = stock();
    empty.cursor(SUBSCRIPTION);
    empty.publish();
    Naive nothing = state(empty);
    empty.crash();
    LiveTopic kept = keep();
    imported("an empty cursor", nothing, kept, Map.of());
    end(kept);
  }

  private static void imported(
      String where, Naive before, LiveTopic topic, Map<String, String> properties)
      throws Exception {
    try {
      same(before, state(topic));
    } catch (AssertionError e) {
      throw new AssertionError("from " + where, e);
    }
    Map<String, String> found = topic.cursor(SUBSCRIPTION).getCursorProperties();
    check(found.equals(properties), "from " + where + ": string properties are " + found);
  }

  private void shadowsAfterKeep() throws Exception {
    LiveTopic kept = worked(keep());
    Naive before = state(kept);
    end(kept);
    try (Gate gate = new Gate(keeper)) {
      gate.shut();
      LiveTopic shadow = shadow(gate.address());
      same(afterCleanStop(before), state(shadow));
      ack(shadow, 12, 23); // before there can be a copy
      gate.open();
      Copies.untilEqual(shadow, SUBSCRIPTION);
      compared(shadow);
      end(shadow);
    }
  }

  private void sparesTheSeek() throws Exception {
    end(worked(keep()));
    LiveTopic kept = keep();
    LiveTopic.reset(kept.cursor(SUBSCRIPTION), kept.entries().get(0))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    Naive before = state(kept);
    kept.crash();
    LiveTopic shadow = shadow(keeper);
    Counters counters = Copies.counters(shadow);
    Copies.until(
        () -> counters.shadowsRefused.sum() == 1, "the keeper's own state was taken for a copy");
    check(state(shadow).acked.size() > before.acked.size(), "Pulsar has the seek by itself");
    shadow.crash();
    LiveTopic again = keep();
    same(before, state(again));
    end(again);
  }

  private void sparesTheTruth() throws Exception {
    LiveTopic kept = worked(keep());
    Naive before = state(kept);
    kept.crash(); // only the keeper has the acks
    LiveTopic shadow = shadow(keeper);
    Counters counters = Copies.counters(shadow);
    Copies.until(
        () -> counters.shadowsRefused.sum() == 1, "the keeper's own state was taken for a copy");
    check(state(shadow).acked.size() < before.acked.size(), "Pulsar has it all by itself");
    shadow.crash();
    LiveTopic again = keep();
    same(before, state(again));
    again.crash();
    Map<String, String> settings = new HashMap<>(Copies.SETTINGS);
    settings.put(Settings.ON_STALE, "import");
    LiveTopic dropped = load(keeper, settings, config -> {});
    Copies.untilEqual(dropped, SUBSCRIPTION);
    end(dropped);
  }

  private void foretellsCrash() throws Exception {
    for (boolean inWords : new boolean[] {false, true}) {
      name += inWords;
      Consumer<ManagedLedgerConfig> few =
          config ->
              config.setPersistIndividualAckAsLongArray(inWords).setMaxUnackedRangesToPersist(2);
      LiveTopic shadow = worked(load(keeper, Copies.SETTINGS, few));
      Counters counters = Copies.counters(shadow);
      for (int number = 7; number < 25; number += 2) {
        ack(shadow, number);
      }
      Naive before = state(shadow);
      compared(shadow);
      Copies.until(() -> counters.shadowEntriesAtRisk.sum() > 0, "nothing is at risk");
      compared(shadow);
      long said = counters.shadowEntriesAtRisk.sum();
      shadow.crash();
      LiveTopic stock = load(STOCK, Map.of(), few);
      Set<Position> lost = new HashSet<>(before.acked);
      lost.removeAll(state(stock).acked);
      check(lost.size() == said, said + " were said to come back, " + lost + " did");
      end(stock);
    }
  }

  private void needsNobody() throws Exception {
    LiveTopic shadow = worked(shadow(NOBODY));
    Naive before = state(shadow);
    LiveTopic.reset(shadow.cursor(SUBSCRIPTION + "2"), shadow.entries().get(3))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    shadow.ledger.deleteCursor(SUBSCRIPTION + "2");
    ShadowedRounds rounds = shadow.ours().rounds();
    check(
        rounds.toBegin().get(LiveTopic.WAIT_S, TimeUnit.SECONDS) > 0,
        "a copy waits for the keeper");
    shadow.unload();
    check(
        rounds.toBegin().get(LiveTopic.WAIT_S, TimeUnit.SECONDS) == 0,
        "what is unloaded is let go of");
    shadow.shutdown();
    LiveTopic stock = stock();
    same(afterCleanStop(before), state(stock));
    end(stock);
  }

  private void givesUp() throws Exception {
    try (FakeKeeper fake = new FakeKeeper().start()) {
      LiveTopic shadow = worked(shadow(fake.address()));
      Copies.untilEqual(shadow, SUBSCRIPTION);
      Counters counters = Copies.counters(shadow);
      fake.faults().holdDurable = true;
      shadow.ours().rounds().pendingBytesMax = 1;
      ack(shadow, 11);
      check(
          counters.shadowsGivenUp.sum() == 1 && counters.shadowsFollowing.sum() == 0,
          "more waits than may");
      ack(shadow, 13, 18);
      check(counters.shadowsGivenUp.sum() == 1, "it is given up twice");
      Naive before = state(shadow);
      shadow.ours().rounds().pendingBytesMax = 1 << 20;
      fake.release();
      Copies.untilEqual(shadow, SUBSCRIPTION);
      fake.faults().silent = true;
      fake.breakStreams();
      ack(shadow, 23);
      before.ack(shadow.entries().get(23), null);
      end(shadow);
      LiveTopic stock = stock();
      same(afterCleanStop(before), state(stock));
      end(stock);
    }
  }
}
