package org.apache.bookkeeper.mledger.impl;

import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.Position;

/**
 * A topic that dies, in one process, and what another finds of it. Arguments: ZooKeeper, keeper,
 * the topic's name, and what it is: "keep" or "shadow", which work on it and die, or "stock", which
 * only loads it. Says the cursor's state in one line.
 */
public final class LeavingMain {

  private static final String SUBSCRIPTION = "sub";

  private LeavingMain() {}

  public static void main(String[] arguments) throws Exception {
    String as = arguments[3];
    boolean isStock = as.equals("stock");
    Map<String, String> settings = as.equals("shadow") ? Copies.SETTINGS : Map.of();
    LiveTopic topic =
        new LiveTopic(arguments[0], isStock ? "" : arguments[1], arguments[2], settings);
    ManagedCursorImpl cursor = topic.cursor(SUBSCRIPTION);
    if (!isStock) {
      work(topic, cursor);
    }
    if (as.equals("shadow")) {
      Copies.untilEqual(topic, SUBSCRIPTION);
    }
    Naive state = Naive.of(cursor, topic.entries());
    System.out.println(
        new TreeSet<>(state.acked)
            + " "
            + new TreeMap<>(state.left)
            + " "
            + state.properties
            + " "
            + cursor.getCursorProperties());
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private static void work(LiveTopic topic, ManagedCursorImpl cursor) throws Exception {
    cursor.putCursorProperty("a", "b").get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    for (int i = 0; i < 25; i++) {
      topic.publish();
    }
    List<Position> entries = topic.entries();
    LiveTopic.markDelete(cursor, entries.get(2), Map.of("n", 7L))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    BitSet left = new BitSet();
    left.set(1, 4);
    LiveTopic.ack(cursor, List.of(LiveTopic.part(entries.get(22), left)))
        .get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    for (int number : new int[] {4, 5, 9, 16, 20}) {
      LiveTopic.ack(cursor, List.of(entries.get(number))).get(LiveTopic.WAIT_S, TimeUnit.SECONDS);
    }
  }
}
