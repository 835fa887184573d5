package io.cursorkeeper.client;

import static io.cursorkeeper.client.Testing.entries;
import static io.cursorkeeper.client.Testing.get;
import static io.cursorkeeper.client.Testing.settings;
import static io.cursorkeeper.client.Testing.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A daemon of several workers: each cursor is opened at the one of its name. */
class WorkersTest {

  private static final int WORKERS = 3;
  private static final List<String> TOPICS =
      IntStream.range(0, 12).mapToObj(at -> "persistent://public/default/orders-" + at).toList();

  private final List<FakeKeeper> keepers =
      Stream.generate(() -> new FakeKeeper().start()).limit(WORKERS).toList();
  private final List<String> told = new CopyOnWriteArrayList<>();
  private final List<KeptCursor> cursors = new ArrayList<>();
  private final List<Recorder> listeners = new ArrayList<>();
  private KeeperLink link;

  @BeforeEach
  void connect() {
    tellWorkers(WORKERS);
    link = KeeperLink.connect(settings(keepers.get(0).address()), told::add);
  }

  @AfterEach
  void close() {
    link.close();
    keepers.forEach(FakeKeeper::close);
  }

  /** The first so many say in their next Hello that they are the workers of one daemon. */
  private void tellWorkers(int count) {
    List<String> ports =
        keepers.stream()
            .limit(count)
            .map(each -> each.address().substring(each.address().lastIndexOf(':')))
            .toList();
    for (int number = 0; number < count; number++) {
      keepers.get(number).faults().worker = number;
      keepers.get(number).faults().workerAddresses = count > 1 ? ports : List.of();
    }
  }

  private void open() {
    List<CompletableFuture<OpenedCursor>> opening = new ArrayList<>();
    for (String topic : TOPICS) {
      Recorder listener = new Recorder();
      listeners.add(listener);
      opening.add(
          link.open(OpenRequest.of(topic, "s").withLayout(List.of(DataLedger.open(12))), listener));
    }
    opening.forEach(each -> cursors.add(get(each).cursor()));
  }

  private void ackAll(long entry) {
    List<CompletableFuture<Void>> acks =
        cursors.stream().map(each -> each.ack(entries(1, 12, entry))).toList();
    acks.forEach(Testing::get);
  }

  private static Set<String> share(int worker, int workers) {
    return TOPICS.stream()
        .filter(topic -> Workers.of(topic, "s", workers) == worker)
        .map(topic -> topic + "|s")
        .collect(Collectors.toSet());
  }

  private void checkShares(int workers) {
    for (int number = 0; number < workers; number++) {
      assertFalse(share(number, workers).isEmpty());
      assertEquals(share(number, workers), keepers.get(number).held());
    }
  }

  /** The examples of the page of the ack stream. */
  @Test
  void theWorkerOfANameIsTheSameInEveryLanguage() {
    String topic = "persistent://public/default/orders";
    assertEquals(0, Workers.of(topic, "billing", 1));
    assertEquals(1, Workers.of(topic, "billing", 2));
    assertEquals(3, Workers.of(topic, "billing", 4));
    assertEquals(7, Workers.of(topic, "billing", 16));
    assertEquals(666_881, Workers.of("persistent://t/n/a b*c~\u00fc", "x|y/z:+", 1_000_003));
  }

  @Test
  void eachCursorIsOpenedReadAndDeletedAtTheWorkerOfItsName() {
    open();
    checkShares(WORKERS);
    ackAll(3);
    for (String topic : TOPICS) {
      assertEquals(List.of(3L), entries(get(link.read(topic, "s")), 12));
    }
    assertEquals(WORKERS, link.status().connects());
    assertEquals(TOPICS.size(), link.status().cursors());
    until(() -> link.status().up());
    assertEquals(List.of(""), told);
    get(cursors.get(0).close());
    get(link.delete(TOPICS.get(0), "s", 0));
  }

  @Test
  void aWorkerThatDiesTakesOnlyItsCursorsWithIt() {
    open();
    for (int number = WORKERS - 1; number >= 0; number--) {
      keepers.get(number).kill();
      List<CompletableFuture<Void>> waiting = new ArrayList<>();
      for (int at = 0; at < TOPICS.size(); at++) {
        CompletableFuture<Void> ack = cursors.get(at).ack(entries(1, 12, 5L + number));
        if (Workers.of(TOPICS.get(at), "s", WORKERS) == number) {
          listeners.get(at).await("down");
          waiting.add(ack);
        } else {
          get(ack);
        }
      }
      until(() -> !link.status().up());
      keepers.get(number).start();
      waiting.forEach(Testing::get);
      until(() -> link.status().up());
    }
    checkShares(WORKERS);
    for (Recorder listener : listeners) {
      assertEquals(List.of("down", "reopened", "up"), listener.heard());
    }
  }

  @Test
  void aDaemonThatComesBackWithOtherWorkersGetsEveryCursor() {
    // the fakes share nothing, so each has every cursor from the start
    for (FakeKeeper keeper : keepers) {
      keeper.faults().workerAddresses = List.of();
      keeper.faults().worker = 0;
      try (KeeperLink alone = KeeperLink.connect(settings(keeper.address()))) {
        for (String topic : TOPICS) {
          get(get(alone.open(OpenRequest.of(topic, "s"), new Recorder())).cursor().close());
        }
      }
    }
    tellWorkers(WORKERS);
    link.close();
    link = KeeperLink.connect(settings(keepers.get(0).address()), told::add);
    open();
    ackAll(1);
    for (int workers : List.of(2, 1, 3)) {
      keepers.forEach(FakeKeeper::kill);
      tellWorkers(workers);
      keepers.stream().limit(workers).forEach(FakeKeeper::start);
      ackAll(10L + workers);
      checkShares(workers);
    }
    assertEquals(0, link.status().pendingBytes());
  }
}
