package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperException;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Difference;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Picture;
import io.cursorkeeper.pulsar.Settings;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** What the tests ask of the copies of Pulsar's cursors at the keeper. */
final class Copies {

  static final Map<String, String> SETTINGS =
      Map.of(Settings.MODE, "shadow", Settings.SHADOW_COMPARE_MS, "50");

  private Copies() {}

  static void until(BooleanSupplier condition, String what) throws Exception {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(LiveTopic.WAIT_S);
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > until) {
        throw new AssertionError(what);
      }
      TimeUnit.MILLISECONDS.sleep(10);
    }
  }

  static Counters counters(LiveTopic topic) {
    return topic.ours().counters();
  }

  /** What the keeper has, asked by the topic's own link. Null: nobody has it open. */
  static Picture atKeeper(LiveTopic topic, String subscription) throws Exception {
    try {
      return Picture.of(
          topic
              .ours()
              .link()
              .read(Names.topic(topic.ledger.getName()), subscription)
              .get(LiveTopic.WAIT_S, TimeUnit.SECONDS));
    } catch (ExecutionException e) {
      if (e.getCause() instanceof KeeperException) {
        return null;
      }
      throw e;
    }
  }

  /** What differs between Pulsar's memory and the keeper, at rest. */
  static Difference difference(LiveTopic topic, String subscription) throws Exception {
    ShadowedManagedCursor cursor = (ShadowedManagedCursor) topic.cursor(subscription);
    Picture kept = atKeeper(topic, subscription);
    Picture pulsar = cursor.picture();
    return kept == null
        ? null
        : Difference.between(pulsar, kept, pulsar, ((ShadowedLedger) topic.ledger).written());
  }

  /** Waits until the copy is what Pulsar holds, which is at rest. */
  static void untilEqual(LiveTopic topic, String subscription) throws Exception {
    ShadowedManagedCursor cursor = (ShadowedManagedCursor) topic.cursor(subscription);
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(LiveTopic.WAIT_S);
    while (true) {
      Difference found = difference(topic, subscription);
      if (cursor.copy().isFollowing() && Difference.NONE.equals(found)) {
        return;
      }
      if (System.nanoTime() > until) {
        throw new AssertionError(subscription + ": the copy is not what Pulsar holds: " + found);
      }
      TimeUnit.MILLISECONDS.sleep(10);
    }
  }

  static void noneDiffered(LiveTopic topic) {
    if (counters(topic).shadowDifferences.sum() > 0) {
      throw new AssertionError(
          "a comparison found " + counters(topic).shadowDifferences.sum() + " differences");
    }
  }
}
