package io.cursorkeeper.pulsar;

import io.cursorkeeper.client.Position;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;

/**
 * What is wrong with the keeper's copy of a cursor. Pure.
 *
 * @param missing entries that are acked in Pulsar and not at the keeper
 * @param extra entries that are acked at the keeper and not in Pulsar
 * @param batches that are partly acked, and otherwise at the keeper
 * @param properties of the mark-delete: what Pulsar and the keeper have, or empty
 * @param first the lowest entry that differs; null: none does
 */
public record Difference(
    long missing, long extra, long batches, String properties, Position first) {

  public static final Difference NONE = new Difference(0, 0, 0, "", null);

  /**
   * Pulsar's cursor changes while the keeper is asked, and acks only grow: the keeper must have all
   * of what Pulsar had before, and nothing that Pulsar has not after.
   *
   * @param ledgers the topic's data ledgers, with their entries, as of after
   */
  public static Difference between(
      Picture before, Picture kept, Picture after, NavigableMap<Long, Long> ledgers) {
    long missing = 0;
    long extra = 0;
    Position first = null;
    long lowest = Math.min(before.markDelete().ledger(), kept.markDelete().ledger());
    for (Map.Entry<Long, Long> each : ledgers.tailMap(lowest, true).entrySet()) {
      long ledger = each.getKey();
      BitSet here = kept.of(ledger, each.getValue());
      BitSet lost = before.of(ledger, each.getValue());
      lost.andNot(here);
      here.andNot(after.of(ledger, each.getValue()));
      missing += lost.cardinality();
      extra += here.cardinality();
      first = lower(first, ledger, lost);
      first = lower(first, ledger, here);
    }
    long batches = 0;
    for (Map.Entry<Position, BitSet> each : before.left().entrySet()) {
      if (!kept.isAcked(each.getKey())
          && !within(kept.left().get(each.getKey()), each.getValue())) {
        batches++;
        first = lower(first, each.getKey());
      }
    }
    for (Map.Entry<Position, BitSet> each : kept.left().entrySet()) {
      boolean isOfTopic = ledgers.containsKey(each.getKey().ledger());
      if (isOfTopic
          && !after.isAcked(each.getKey())
          && !within(after.left().get(each.getKey()), each.getValue())) {
        batches++;
        first = lower(first, each.getKey());
      }
    }
    boolean isSettled = before.properties().equals(after.properties());
    String properties =
        isSettled && !before.properties().equals(kept.properties())
            ? before.properties() + " and " + kept.properties()
            : "";
    return missing + extra + batches == 0 && properties.isEmpty()
        ? NONE
        : new Difference(missing, extra, batches, properties, first);
  }

  /**
   * Whether all that the larger one leaves un-acked at most is left by the other; null leaves
   * everything.
   */
  private static boolean within(BitSet left, BitSet atMost) {
    if (left == null) {
      return false;
    }
    BitSet rest = (BitSet) left.clone();
    rest.andNot(atMost);
    return rest.isEmpty();
  }

  private static Position lower(Position known, long ledger, BitSet entries) {
    return entries.isEmpty() ? known : lower(known, new Position(ledger, entries.nextSetBit(0)));
  }

  private static Position lower(Position known, Position other) {
    return known == null || other.compareTo(known) < 0 ? other : known;
  }

  public boolean isNone() {
    return equals(NONE);
  }

  /** For people. */
  @Override
  public String toString() {
    List<String> parts = new ArrayList<>();
    if (missing > 0) {
      parts.add(missing + " acked entries are missing at the keeper");
    }
    if (extra > 0) {
      parts.add(extra + " entries are acked at the keeper only");
    }
    if (batches > 0) {
      parts.add(batches + " partly acked batches differ");
    }
    if (!properties.isEmpty()) {
      parts.add("the mark-delete's properties are " + properties);
    }
    return String.join(", ", parts) + (first == null ? "" : " (first at " + first + ")");
  }
}
