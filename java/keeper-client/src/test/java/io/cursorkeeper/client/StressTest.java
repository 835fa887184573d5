package io.cursorkeeper.client;

import static io.cursorkeeper.client.Testing.get;
import static io.cursorkeeper.client.Testing.missing;
import static io.cursorkeeper.client.Testing.settings;
import static io.cursorkeeper.client.Testing.until;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Several threads, every call, and a keeper that breaks streams, dies, refuses and deposes
 * meanwhile: what it holds is what was said.
 */
class StressTest {

  private static final int CURSORS = 12;
  private static final int THREADS = 4;
  private static final int CALLS = 6_000;

  /** What a program remembers of one cursor; its monitor is the program's lock. */
  private static final class Memory {
    KeptCursor cursor;
    int generation;
    Position markDelete;
    final TreeMap<Long, TreeSet<Long>> acked = new TreeMap<>();
    final TreeMap<Position, boolean[]> batches = new TreeMap<>();
    Map<String, Long> properties = Map.of();
    Map<String, String> cursorProperties = Map.of();
    CompletableFuture<Integer> resetting;
  }

  @ParameterizedTest
  @ValueSource(longs = {1, 2, 3, 4})
  void whatTheKeeperHoldsIsWhatWasSaid(long seed) throws Exception {
    try (FakeKeeper fake = new FakeKeeper().start();
        KeeperLink link =
            KeeperLink.connect(
                settings(fake.address())
                    .withMemoryBytesMax(50_000)
                    .withBackOff(Duration.ofMillis(1), Duration.ofMillis(8)))) {
      fake.faults().creditBytes = 20_000;
      fake.faults().neverResume = seed == 2;
      List<Memory> memories = new ArrayList<>();
      for (int at = 0; at < CURSORS; at++) {
        Memory memory = new Memory();
        OpenRequest request =
            OpenRequest.of("t", "s" + at)
                .withFencingToken(1)
                .withLayout(List.of(DataLedger.open(0)));
        OpenedCursor opened = get(link.open(request, new Recorder()));
        memory.cursor = opened.cursor();
        memory.generation = opened.state().generation();
        memory.markDelete = opened.state().markDelete();
        memories.add(memory);
      }
      List<CompletableFuture<?>> answers = Collections.synchronizedList(new ArrayList<>());
      AtomicReference<Throwable> wrong = new AtomicReference<>();
      List<Thread> threads = new ArrayList<>();
      for (int at = 0; at < THREADS; at++) {
        Random random = new Random(seed * 100 + at);
        threads.add(
            new Thread(
                () -> {
                  try {
                    for (int call = 0; call < CALLS; call++) {
                      answers.add(act(random, memories.get(random.nextInt(CURSORS))));
                      if (call % 16 == 0) {
                        Thread.sleep(1);
                      }
                    }
                  } catch (Throwable e) {
                    wrong.set(e);
                  }
                }));
      }
      threads.forEach(Thread::start);
      Random trouble = new Random(seed);
      fake.breakStreams();
      while (threads.stream().anyMatch(Thread::isAlive)) {
        switch (trouble.nextInt(5)) {
          case 0 -> fake.breakStreams();
          case 1 -> {
            fake.kill();
            fake.start();
          }
          case 2 -> fake.depose("t", "s" + trouble.nextInt(CURSORS));
          case 3 ->
              fake.refuse("t", "s" + trouble.nextInt(CURSORS), KeeperException.Code.UNAVAILABLE);
          default -> {
            fake.faults().holdDurable = true;
            Thread.sleep(20);
            fake.release();
          }
        }
        Thread.sleep(5 + trouble.nextInt(30));
      }
      assertEquals(null, wrong.get());
      for (CompletableFuture<?> each : new ArrayList<>(answers)) {
        get(each);
      }
      until(
          () ->
              link.status().pendingBytes()
                  == 0); // after a reset the layout is told again, and nobody waits for that
      until(() -> link.status().connects() > 1);
      for (int at = 0; at < CURSORS; at++) {
        same(memories.get(at), fake.stored("t", "s" + at));
      }
    }
  }

  private static CompletableFuture<?> act(Random random, Memory memory) {
    synchronized (memory) {
      if (memory.resetting != null) {
        if (!memory.resetting.isDone()) {
          return memory.cursor.ack(
              new Acks(memory.generation).entry(0, 5)); // of the old generation: void
        }
        memory.generation = memory.resetting.join();
        memory.resetting = null;
      }
      Acks acks = new Acks(memory.generation);
      switch (random.nextInt(40)) {
        case 0 -> {
          memory.markDelete = new Position(0, random.nextInt(50) - 1);
          memory.acked.clear();
          memory.batches.clear();
          memory.properties = Map.of();
          memory.resetting = memory.cursor.reset(memory.markDelete);
          return memory.resetting;
        }
        case 1 -> {
          memory.cursorProperties = Map.of("c", Long.toString(random.nextLong()));
          return memory.cursor.setProperties(memory.cursorProperties);
        }
        case 2, 3 -> {
          Position to = new Position(0, random.nextInt(400));
          memory.properties = Map.of("p", random.nextLong());
          acks.markDelete(to).properties(memory.properties);
          if (memory.markDelete.compareTo(to) < 0) {
            memory.markDelete = to;
          }
        }
        case 4, 5, 6, 7 -> {
          long ledger = random.nextInt(4);
          long entry = random.nextInt(500);
          boolean[] left =
              memory.batches.computeIfAbsent(
                  new Position(ledger, entry), none -> new boolean[] {true, true, true});
          left[random.nextInt(3)] = false;
          acks.batch(
              ledger, entry, 3, missing(IntStream.range(0, 3).filter(at -> left[at]).toArray()));
        }
        default -> {
          long ledger = random.nextInt(4);
          long first = random.nextInt(2_000);
          long last = first + random.nextInt(4);
          acks.range(ledger, first, last);
          for (long entry = first; entry <= last; entry++) {
            memory.acked.computeIfAbsent(ledger, none -> new TreeSet<>()).add(entry);
          }
        }
      }
      return memory.cursor.ack(acks);
    }
  }

  private static void same(Memory memory, CursorState state) {
    assertEquals(memory.markDelete, state.markDelete());
    assertEquals(memory.properties, state.markDeleteProperties());
    assertEquals(memory.cursorProperties, state.cursorProperties());
    TreeSet<Position> expected = new TreeSet<>();
    memory.acked.forEach(
        (ledger, entries) -> entries.forEach(entry -> expected.add(new Position(ledger, entry))));
    TreeMap<Position, long[]> partly = new TreeMap<>();
    memory.batches.forEach(
        (at, left) -> {
          int[] indexes = IntStream.range(0, 3).filter(each -> left[each]).toArray();
          if (indexes.length == 0) {
            expected.add(at);
          } else if (!expected.contains(at) && at.compareTo(memory.markDelete) > 0) {
            partly.put(at, missing(indexes));
          }
        });
    expected.headSet(memory.markDelete, true).clear();
    TreeSet<Position> found = new TreeSet<>();
    state
        .acked()
        .forEach(
            (ledger, entries) ->
                entries.forEachRange(
                    (first, last) -> {
                      for (long entry = first; entry <= last; entry++) {
                        found.add(new Position(ledger, entry));
                      }
                    }));
    assertEquals(expected, found);
    assertEquals(
        partly.entrySet().stream()
            .map(
                each ->
                    new PartialBatch(
                        each.getKey().ledger(), each.getKey().entry(), 3, each.getValue()))
            .toList(),
        state.partials());
  }
}
