package io.cursorkeeper.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.acks.v1.AckBatch;
import io.cursorkeeper.acks.v1.OpenCursor;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random acks joined and cut in every way say what plain sets say. */
class AckSetTest {

  /** Sets, and nothing clever. */
  private static final class Naive {
    final TreeSet<Position> acked = new TreeSet<>();
    final TreeMap<Position, BitSet> missing = new TreeMap<>();
    Position markDelete = new Position(0, -1);
    Map<String, Long> properties = Map.of();

    void add(Position at) {
      if (at.compareTo(markDelete) > 0) {
        acked.add(at);
        missing.remove(at);
      }
    }

    void add(Position at, BitSet left) {
      if (at.compareTo(markDelete) <= 0 || acked.contains(at)) {
        return;
      }
      BitSet both = (BitSet) left.clone();
      if (missing.containsKey(at)) {
        both.and(missing.get(at));
      }
      if (both.isEmpty()) {
        add(at);
      } else {
        missing.put(at, both);
      }
    }

    void raise(Position to) {
      if (to.compareTo(markDelete) > 0) {
        markDelete = to;
        acked.headSet(to, true).clear();
        missing.headMap(to, true).clear();
      }
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3, 4, 5, 6, 7, 8})
  void randomAcksSayWhatPlainSetsSay(int seed) {
    Random random = new Random(seed);
    for (int round = 0; round < 8; round++) {
      Naive naive = new Naive();
      FakeCursor told = new FakeCursor("c", OpenCursor.getDefaultInstance());
      AckSet waiting = new AckSet();
      List<AckSet> sent = new ArrayList<>();
      for (int step = 0; step < 60; step++) {
        switch (random.nextInt(8)) {
          case 0 -> tell(waiting, sent, told, random);
          case 1 -> { // as after a broken stream: what was sent, then what waits
            AckSet all = new AckSet();
            sent.forEach(all::join);
            sent.clear();
            all.join(waiting);
            waiting = all;
          }
          default -> waiting.join(random(random, naive));
        }
        assertTrue(
            waiting.bytes() >= 0
                && waiting.isEmpty()
                    == (waiting.bytes() == 0
                        && waiting.markDelete == null
                        && waiting.properties == null),
            waiting.bytes() + " bytes");
      }
      while (!waiting.isEmpty()) {
        tell(waiting, sent, told, random);
      }
      assertEquals(0, waiting.bytes());
      same(naive, told.recovered(0, false).get(0).getOpened(), told);
    }
  }

  private static Acks random(Random random, Naive naive) {
    Acks acks = new Acks(1);
    if (random.nextInt(6) == 0) {
      Position to = new Position(random.nextInt(3), random.nextInt(60) - 1);
      acks.markDelete(to);
      naive.raise(to);
    }
    if (random.nextInt(6) == 0) {
      naive.properties = Map.of("p", random.nextLong());
      acks.properties(naive.properties);
    }
    for (int at = random.nextInt(6); at > 0; at--) {
      long ledger = random.nextInt(4);
      long entry = random.nextInt(4) * 65_536L + random.nextInt(80);
      if (random.nextInt(3) == 0) {
        BitSet left = new BitSet();
        for (int bits = random.nextInt(4); bits > 0; bits--) {
          left.set(random.nextInt(200));
        }
        acks.batch(ledger, entry, 200, left.toLongArray());
        naive.add(new Position(ledger, entry), left);
      } else {
        long last =
            random.nextInt(60) == 0 ? entry + random.nextInt(70_000) : entry + random.nextInt(3);
        acks.range(ledger, entry, last);
        for (long each = entry; each <= last; each++) {
          naive.add(new Position(ledger, each));
        }
      }
    }
    return acks;
  }

  private static void tell(AckSet waiting, List<AckSet> sent, FakeCursor told, Random random) {
    int bytes = random.nextInt(3) == 0 ? 1 << 20 : 9_000 + random.nextInt(10_000);
    AckSet.Room room =
        new AckSet.Room(
            bytes, 1 + random.nextInt(3), 1 + random.nextInt(5), 1 + random.nextInt(8), false);
    AckSet piece = waiting.take(room);
    if (piece.isEmpty()) {
      assertTrue(
          room.parts() < 2 || room.batches() < 2 || waiting.isEmpty(), "nothing fits " + room);
      return;
    }
    AckBatch batch = Wire.acks(1, 1, 1, piece);
    assertTrue(
        batch.getSerializedSize() <= bytes + Wire.HEAD_BYTES_MAX,
        batch.getSerializedSize() + " of " + bytes);
    assertTrue(
        batch.getLedgersCount() <= room.ledgers() && piece.parts() <= room.parts(),
        room.toString());
    told.check(batch);
    told.durable.join(batch);
    sent.add(piece);
  }

  private static void same(Naive naive, io.cursorkeeper.acks.v1.Opened opened, FakeCursor told) {
    List<io.cursorkeeper.acks.v1.KeeperMessage> messages = told.recovered(0, false);
    StateParts parts = new StateParts(opened);
    parts.add(messages.get(1).getStatePart());
    CursorState state = parts.end(messages.get(2).getStateEnd());
    assertEquals(naive.markDelete, state.markDelete());
    assertEquals(naive.properties, state.markDeleteProperties());
    TreeSet<Position> acked = new TreeSet<>();
    state
        .acked()
        .forEach(
            (ledger, entries) -> {
              entries.forEachRange(
                  (first, last) -> {
                    for (long entry = first; entry <= last; entry++) {
                      acked.add(new Position(ledger, entry));
                    }
                  });
              BitSet words = BitSet.valueOf(entries.words());
              assertEquals(entries.count(), words.cardinality());
              assertTrue(words.stream().allMatch(entries::contains));
            });
    assertEquals(naive.acked, acked);
    TreeMap<Position, BitSet> missing = new TreeMap<>();
    state
        .partials()
        .forEach(
            each ->
                missing.put(
                    new Position(each.ledger(), each.entry()), BitSet.valueOf(each.ackSet())));
    assertEquals(naive.missing, missing);
  }
}
