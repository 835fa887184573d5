package io.cursorkeeper.pulsar;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToDoubleFunction;
import java.util.function.ToLongFunction;

/**
 * Serves the broker's operator: what the plugin tells of itself at one moment, and the table of
 * names by which both pages, Prometheus' and OpenTelemetry's, tell it.
 *
 * @param isLinkUp whether a daemon has answered on the connection of now
 * @param connects connections to a daemon so far
 * @param cursors by state; a state without cursors is there, too
 * @param waitingAcks calls of the broker that wait for the keeper's answer
 * @param waitingBytes memory of what the keeper has not confirmed
 * @param waitingRatio how much of the broker's bounds that takes: from 0 to 1, where dispatch
 *     pauses, and beyond it
 * @param oldestSeconds for how long the oldest of them waits
 * @param stockTopics loaded topics that have Pulsar's own cursors because the keeper did not answer
 * @param longest the cursors with the most waiting acks, at most as many as the setting says
 */
public record Figures(
    boolean isLinkUp,
    long connects,
    Map<State, Long> cursors,
    long waitingAcks,
    long waitingBytes,
    double waitingRatio,
    double oldestSeconds,
    long stockTopics,
    List<OfCursor> longest,
    Counters counters) {

  /**
   * Of a durable cursor. KEPT: the keeper's. PAUSED: the keeper's, and asks for a pause of
   * dispatch. STOCK: Pulsar's own, though it should be the keeper's.
   */
  public enum State {
    KEPT,
    PAUSED,
    STOCK
  }

  /**
   * What is shown of one cursor.
   *
   * @param namespace tenant/namespace
   */
  public record OfCursor(
      String namespace,
      String ledger,
      String cursor,
      long waitingAcks,
      long waitingBytes,
      double oldestSeconds) {}

  /**
   * One figure of the broker. {@code name} ends in _total if it only grows. {@code unit} is
   * OpenTelemetry's.
   */
  record Single(
      String name, String meter, String unit, String help, ToDoubleFunction<Figures> value) {
    boolean onlyGrows() {
      return name.endsWith("_total");
    }
  }

  static final String PREFIX = "pulsar_cursorkeeper_";
  static final String METER_PREFIX = "pulsar.broker.cursorkeeper.";

  static final String CURSORS = PREFIX + "cursors";
  static final String CURSORS_HELP = "Durable cursors by state.";
  static final String RECEIPTS = PREFIX + "receipt_latency_seconds";
  static final String RECEIPTS_HELP = "From the first ack of a group to the keeper's answer.";

  static final List<Single> ALL =
      List.of(
          gauge("link_up", "link.up", "1", "1 while a daemon answers.", of -> of.isLinkUp ? 1 : 0),
          gauge(
              "waiting_acks",
              "ack.waiting.count",
              "{ack}",
              "Calls of the broker that wait for the keeper's answer.",
              of -> of.waitingAcks),
          gauge(
              "waiting_bytes",
              "ack.waiting.size",
              "By",
              "Memory of what the keeper has not confirmed.",
              of -> of.waitingBytes),
          gauge(
              "waiting_ratio",
              "ack.waiting.utilization",
              "1",
              "How much of the broker's bounds the waiting acks take; at 1 dispatch pauses.",
              of -> of.waitingRatio),
          gauge(
              "waiting_oldest_seconds",
              "ack.waiting.age",
              "s",
              "For how long the oldest unconfirmed ack waits.",
              of -> of.oldestSeconds),
          gauge(
              "stock_topics",
              "topic.stock.count",
              "{topic}",
              "Loaded topics with Pulsar's own cursors because the keeper did not answer.",
              of -> of.stockTopics),
          gauge(
              "shadow_cursors",
              "shadow.cursor.count",
              "{cursor}",
              "Cursors whose copy at the keeper follows Pulsar's.",
              of -> of.counters.shadowsFollowing.sum()),
          gauge(
              "shadow_saved_entries",
              "shadow.saved.entry.count",
              "{entry}",
              "Acked entries that Pulsar alone would deliver again after a crash now.",
              of -> of.counters.shadowEntriesAtRisk.sum()),
          counter(
              "link_connects",
              "link.connect.count",
              "{connection}",
              "Connections to a daemon.",
              of -> of.connects),
          counter(
              "opens",
              "cursor.open.count",
              "{cursor}",
              "Cursors opened at the keeper.",
              of -> of.counters.opens.sum()),
          counter(
              "failed_loads",
              "cursor.load.failure.count",
              "{cursor}",
              "Cursors that could not be loaded from the keeper.",
              of -> of.counters.failedLoads.sum()),
          counter(
              "stock_loads",
              "topic.stock.load.count",
              "{topic}",
              "Loads that went on with Pulsar's own cursors because the keeper did not answer.",
              of -> of.counters.stockLoads.sum()),
          counter(
              "imports",
              "cursor.import.count",
              "{cursor}",
              "Pulsar's own state taken over to the keeper.",
              of -> of.counters.imports.sum()),
          counter(
              "stale",
              "cursor.stale.count",
              "{cursor}",
              "Loads that found that Pulsar itself had changed the cursor since the keeper held"
                  + " it.",
              of -> of.counters.stale.sum()),
          counter(
              "fenced",
              "cursor.fenced.count",
              "{cursor}",
              "Cursors whose topic a newer load has.",
              of -> of.counters.fenced.sum()),
          counter(
              "deposed",
              "cursor.deposed.count",
              "{cursor}",
              "Cursors that somebody else opened or set back.",
              of -> of.counters.deposed.sum()),
          counter(
              "acks_without_room",
              "ack.without_room.count",
              "{ack}",
              "Acks answered by a failure because too much waited for the keeper.",
              of -> of.counters.acksWithoutRoom.sum()),
          counter(
              "changes_refused",
              "change.refused.count",
              "{change}",
              "Changes that the keeper refused for what they say, answered by a failure.",
              of -> of.counters.changesRefused.sum()),
          counter(
              "closes_without_word",
              "cursor.close.without_word.count",
              "{cursor}",
              "Unloads that did not wait for the keeper any longer.",
              of -> of.counters.closesWithoutWord.sum()),
          counter(
              "shadow_comparisons",
              "shadow.comparison.count",
              "{comparison}",
              "Comparisons of copies with Pulsar's cursors.",
              of -> of.counters.shadowComparisons.sum()),
          counter(
              "shadow_differences",
              "shadow.difference.count",
              "{comparison}",
              "Comparisons that found a difference.",
              of -> of.counters.shadowDifferences.sum()),
          counter(
              "shadow_unanswered",
              "shadow.unanswered.count",
              "{comparison}",
              "Comparisons that could not be made.",
              of -> of.counters.shadowsUnanswered.sum()),
          counter(
              "shadow_given_up",
              "shadow.given_up.count",
              "{cursor}",
              "Copies given up because too much waited for the keeper.",
              of -> of.counters.shadowsGivenUp.sum()),
          counter(
              "shadow_refused",
              "shadow.refused.count",
              "{cursor}",
              "Loads of cursors without a copy, because the keeper has more of its own than"
                  + " Pulsar.",
              of -> of.counters.shadowsRefused.sum()));

  /** One figure of a cursor. */
  record OfOne(
      String name, String meter, String unit, String help, ToDoubleFunction<OfCursor> value) {}

  static final List<OfOne> OF_CURSORS =
      List.of(
          new OfOne(
              PREFIX + "cursor_waiting_acks",
              METER_PREFIX + "cursor.ack.waiting.count",
              "{ack}",
              "Calls that wait for the keeper's answer, of the cursors with the most.",
              OfCursor::waitingAcks),
          new OfOne(
              PREFIX + "cursor_waiting_bytes",
              METER_PREFIX + "cursor.ack.waiting.size",
              "By",
              "Memory of what the keeper has not confirmed, of these cursors.",
              OfCursor::waitingBytes),
          new OfOne(
              PREFIX + "cursor_waiting_oldest_seconds",
              METER_PREFIX + "cursor.ack.waiting.age",
              "s",
              "For how long the oldest unconfirmed ack waits, of these cursors.",
              OfCursor::oldestSeconds));

  private static Single gauge(
      String name, String meter, String unit, String help, ToDoubleFunction<Figures> value) {
    return new Single(PREFIX + name, METER_PREFIX + meter, unit, help, value);
  }

  private static Single counter(
      String name, String meter, String unit, String help, ToLongFunction<Figures> value) {
    return new Single(
        PREFIX + name + "_total", METER_PREFIX + meter, unit, help, value::applyAsLong);
  }

  /** A state without cursors counts 0. */
  public static Map<State, Long> noCursors() {
    Map<State, Long> counts = new TreeMap<>();
    for (State each : State.values()) {
      counts.put(each, 0L);
    }
    return counts;
  }
}
