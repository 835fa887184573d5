package org.apache.bookkeeper.mledger.impl;

import java.util.BitSet;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.bookkeeper.mledger.Position;

/** What a cursor holds, as plain sets. */
final class Naive {

  final Set<Position> acked = new HashSet<>();
  final Map<Position, BitSet> left = new HashMap<>();
  Map<String, Long> properties = Map.of();

  Naive copy() {
    Naive copy = new Naive();
    copy.acked.addAll(acked);
    left.forEach((position, bits) -> copy.left.put(position, (BitSet) bits.clone()));
    copy.properties = properties;
    return copy;
  }

  /** What a real cursor says of these entries. */
  static Naive of(ManagedCursorImpl cursor, List<Position> entries) {
    Naive found = new Naive();
    for (Position each : entries) {
      if (cursor.isMessageDeleted(each)) {
        found.acked.add(each);
        continue;
      }
      long[] words = cursor.getDeletedBatchIndexesAsLongArray(each);
      if (words != null) {
        found.left.put(each, BitSet.valueOf(words));
      }
    }
    found.properties = cursor.getProperties();
    return found;
  }

  /** Null: the whole entry. */
  void ack(Position entry, BitSet remaining) {
    if (acked.contains(entry)) {
      return;
    }
    if (remaining != null) {
      BitSet now = left.computeIfAbsent(entry, none -> (BitSet) remaining.clone());
      now.and(remaining);
      if (!now.isEmpty()) {
        return;
      }
    }
    left.remove(entry);
    acked.add(entry);
  }

  /**
   * What is acked for sure and what may be, between two states that differ by acks that had no
   * receipt. Null: it is right.
   */
  static String between(Naive sure, Naive found, Naive possible, List<Position> entries) {
    for (Position each : entries) {
      if (sure.acked.contains(each) && !found.acked.contains(each)) {
        return each + " was confirmed and is lost";
      }
      if (found.acked.contains(each) && !possible.acked.contains(each)) {
        return each + " is acked, and nobody did it";
      }
      if (found.acked.contains(each)) {
        continue;
      }
      BitSet now = found.left.get(each);
      BitSet before = sure.left.get(each);
      BitSet after = possible.left.get(each);
      if (before != null && (now == null || !within(now, before))) {
        return each + ": indexes were confirmed and are lost: " + now + " of " + before;
      }
      if (now != null && !possible.acked.contains(each) && (after == null || !within(after, now))) {
        return each + ": indexes are acked, and nobody did it: " + now + ", possible " + after;
      }
    }
    if (!Objects.equals(found.properties, sure.properties)
        && !Objects.equals(found.properties, possible.properties)) {
      return "properties are "
          + found.properties
          + ", neither "
          + sure.properties
          + " nor "
          + possible.properties;
    }
    return null;
  }

  private static boolean within(BitSet smaller, BitSet larger) {
    BitSet rest = (BitSet) smaller.clone();
    rest.andNot(larger);
    return rest.isEmpty();
  }
}
