package io.cursorkeeper.client;

import static io.cursorkeeper.client.Testing.entries;
import static io.cursorkeeper.client.Testing.failure;
import static io.cursorkeeper.client.Testing.get;
import static io.cursorkeeper.client.Testing.missing;
import static io.cursorkeeper.client.Testing.settings;
import static io.cursorkeeper.client.Testing.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.client.KeeperException.Code;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a program may rely on, whatever keeper it talks to. */
abstract class KeeperContract {

  static final List<DataLedger> LAYOUT = List.of(DataLedger.closed(10, 100), DataLedger.open(12));
  private static int numbers;

  Keeper keeper;
  KeeperLink link;
  String topic;

  abstract Keeper keeper();

  @BeforeEach
  void connect() {
    keeper = keeper();
    link = KeeperLink.connect(settings(keeper.address()));
    topic =
        "persistent://java/contract/"
            + getClass().getSimpleName()
            + "-"
            + ProcessHandle.current().pid()
            + "-"
            + ++numbers;
  }

  @AfterEach
  void disconnect() {
    link.close();
  }

  OpenRequest request() {
    return OpenRequest.of(topic, "s").withLayout(LAYOUT);
  }

  OpenedCursor open(OpenRequest request) {
    return get(link.open(request, new Recorder()));
  }

  CursorState reopened() {
    return open(request().withCreate(false).withTakeover(true)).state();
  }

  @Test
  void aNewCursorStartsWhereItWasTold() {
    CursorState state =
        open(request().withStart(new Position(10, 4)).withCursorProperties(Map.of("a", "b")))
            .state();
    assertTrue(state.created());
    assertEquals(new Position(10, 4), state.markDelete());
    assertTrue(state.acked().isEmpty() && state.partials().isEmpty());
    assertEquals(Map.of("a", "b"), state.cursorProperties());
    assertEquals(12, state.layout().get(state.layout().size() - 1).ledger());
    assertTrue(state.isAcked(10, 4) && !state.isAcked(10, 5));
    assertFalse(reopened().created());
  }

  @Test
  void acksOfEveryFormAreDurableAndComeBack() {
    KeptCursor cursor = open(request()).cursor();
    Acks acks =
        new Acks(cursor.generation())
            .entry(10, 3)
            .entry(10, 1)
            .range(10, 20, 29)
            .range(10, 40, 40)
            .batch(10, 50, 10, missing(0, 9))
            .batch(10, 51, 80, missing(0, 4, 70))
            .batch(10, 52, 4, new long[] {0})
            .entry(12, 0)
            .entry(12, 70_000)
            .markDelete(new Position(10, 1))
            .properties(Map.of("p", -5L));
    get(cursor.ack(acks));
    assertEquals(0, cursor.pendingBytes());
    CursorState state = reopened();
    assertEquals(new Position(10, 1), state.markDelete());
    List<Long> expected = new ArrayList<>(List.of(3L));
    LongStream.rangeClosed(20, 29).forEach(expected::add);
    expected.addAll(List.of(40L, 52L));
    assertEquals(expected, entries(state, 10));
    assertEquals(List.of(0L, 70_000L), entries(state, 12));
    assertEquals(
        List.of(
            new PartialBatch(10, 50, 10, missing(0, 9)),
            new PartialBatch(10, 51, 80, missing(0, 4, 70))),
        state.partials());
    assertEquals(Map.of("p", -5L), state.markDeleteProperties());
  }

  @Test
  void anOpenCursorIsReadByAnybodyAndStaysOpen() {
    KeptCursor cursor = open(request().withStart(new Position(10, 4))).cursor();
    get(
        cursor.ack(
            new Acks(cursor.generation())
                .range(10, 20, 29)
                .batch(10, 50, 10, missing(3))
                .properties(Map.of("p", 1L))));
    try (KeeperLink other = KeeperLink.connect(settings(keeper.address()))) {
      until(() -> other.status().up());
      CursorState state = get(other.read(topic, "s"));
      assertEquals(new Position(10, 4), state.markDelete());
      assertEquals(10, state.acked().get(10L).count());
      assertEquals(List.of(new PartialBatch(10, 50, 10, missing(3))), state.partials());
      assertEquals(Map.of("p", 1L), state.markDeleteProperties());
      assertEquals(Code.NOT_FOUND, failure(other.read(topic, "nobody")).code());
    }
    get(cursor.ack(entries(cursor.generation(), 10, 40)));
    assertTrue(get(link.read(topic, "s")).isAcked(10, 40));
  }

  @Test
  void nothingIsReadWithoutAKeeper() {
    try (KeeperLink lonely = KeeperLink.connect(settings("127.0.0.1:1"))) {
      assertEquals(Code.AWAY, failure(lonely.read(topic, "s")).code());
    }
    link.close();
    assertEquals(Code.LINK_CLOSED, failure(link.read(topic, "s")).code());
  }

  @Test
  void ackedWinsOverPartlyAcked() {
    KeptCursor cursor = open(request()).cursor();
    int generation = cursor.generation();
    get(
        cursor.ack(
            new Acks(generation)
                .batch(10, 5, 4, missing(1, 2))
                .batch(10, 6, 4, missing(0))
                .batch(10, 7, 4, missing(1))));
    cursor.ack(new Acks(generation).batch(10, 5, 4, missing(2, 3)).batch(10, 7, 4, missing(2)));
    get(cursor.ack(entries(generation, 10, 6)));
    CursorState state = reopened();
    assertEquals(List.of(new PartialBatch(10, 5, 4, missing(2))), state.partials());
    assertEquals(List.of(6L, 7L), entries(state, 10));
  }

  @Test
  void aMillionEntriesFitTheCredit() {
    KeptCursor cursor =
        open(OpenRequest.of(topic, "s").withLayout(List.of(DataLedger.open(12)))).cursor();
    CompletableFuture<Void> last = null;
    for (long first = 0; first < 2_000_000; first += 20_000) {
      Acks acks = new Acks(cursor.generation());
      for (long entry = first; entry < first + 20_000; entry += 2) {
        acks.entry(12, entry);
      }
      last = cursor.ack(acks);
    }
    get(last);
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertEquals(
        1_000_000 - (state.isAcked(12, 0) && !state.acked().get(12L).contains(0) ? 1 : 0),
        state.acked().get(12L).count());
    assertTrue(state.isAcked(12, 1_999_998) && !state.isAcked(12, 1_999_997));
  }

  @Test
  void aResetForgetsAllAcksAndBeginsAGeneration() {
    KeptCursor cursor = open(request()).cursor();
    int before = cursor.generation();
    CompletableFuture<Void> old = cursor.ack(entries(before, 10, 1, 2, 3));
    CompletableFuture<Integer> first = cursor.reset(new Position(10, 20));
    CompletableFuture<Void> during = cursor.ack(entries(before, 10, 70));
    CompletableFuture<Integer> second = cursor.reset(new Position(10, 49));
    int generation = get(second);
    assertTrue(generation > before && generation == cursor.generation());
    assertTrue(
        get(first) > before && get(first) <= generation,
        "the second one may have come in time for both");
    get(old);
    get(during);
    get(cursor.ack(entries(before, 10, 80))); // of a generation that is over: dropped, and decided
    assertThrows(IllegalArgumentException.class, () -> cursor.ack(entries(generation + 1, 10, 1)));
    get(cursor.ack(entries(generation, 10, 60)));
    CursorState state = reopened();
    assertEquals(new Position(10, 49), state.markDelete());
    assertEquals(generation, state.generation());
    assertEquals(List.of(60L), entries(state, 10));
  }

  @Test
  void aResetBeyondTheKnownLayoutNeedsNoMoreThanItsLayout() {
    KeptCursor cursor = open(request()).cursor();
    cursor.layout(List.of(DataLedger.closed(12, 7), DataLedger.closed(15, 9), DataLedger.open(16)));
    int generation = get(cursor.reset(new Position(15, 2)));
    get(cursor.ack(entries(generation, 16, 3)));
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertEquals(new Position(15, 2), state.markDelete());
    assertEquals(16, state.layout().get(state.layout().size() - 1).ledger());
  }

  @Test
  void aResetBackBringsTheLayoutAlong() {
    KeptCursor cursor = open(request()).cursor();
    get(
        cursor.ack(
            new Acks(cursor.generation())
                .markDelete(new Position(12, 3)))); // the keeper forgets 10
    int generation = get(cursor.reset(new Position(10, 49)));
    get(cursor.ack(entries(generation, 10, 60)));
    get(cursor.setProperties(Map.of()));
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertEquals(new Position(10, 49), state.markDelete());
    assertEquals(LAYOUT, state.layout());
  }

  @Test
  void layoutAndPropertiesAreConfirmedAndKept() {
    KeptCursor cursor = open(request()).cursor();
    cursor.setProperties(Map.of("x", "old"));
    CompletableFuture<Void> layout =
        cursor.layout(List.of(DataLedger.closed(12, 7), DataLedger.open(15)));
    get(cursor.setProperties(Map.of("x", "y")));
    get(layout);
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertTrue(state.layout().contains(DataLedger.closed(12, 7)), state.layout().toString());
    assertEquals(Map.of("x", "y"), state.cursorProperties());
  }

  @Test
  void propertiesOfTenThousandProducersAreKept() {
    KeptCursor cursor = open(request()).cursor();
    Map<String, Long> producers = new HashMap<>();
    for (long number = 0; number < 10_000; number++) {
      producers.put("standalone-1-" + number, Long.MAX_VALUE - number);
    }
    CompletableFuture<Void> first =
        cursor.ack(new Acks(1).entry(12, 3).properties(Map.of("standalone-1-0", 1L)));
    CompletableFuture<Void> second =
        cursor.ack(new Acks(1).entry(12, 4).markDelete(new Position(12, 2)).properties(producers));
    get(first);
    get(second);
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertEquals(producers, state.markDeleteProperties());
    assertTrue(state.markDelete().compareTo(new Position(12, 2)) >= 0);
  }

  @Test
  void propertiesBeyondAllLimitsCostThemselvesOnly() {
    KeptCursor cursor = open(request()).cursor();
    Map<String, Long> producers = new HashMap<>();
    for (long number = 0; number < 12_000; number++) {
      producers.put("a".repeat(90) + number, number);
    }
    assertEquals(Code.TOO_LARGE, failure(cursor.ack(new Acks(1).properties(producers))).code());
    get(cursor.ack(new Acks(1).entry(12, 3).properties(Map.of("p", 1L))));
    assertEquals(
        Map.of("p", 1L),
        open(OpenRequest.of(topic, "s").withTakeover(true)).state().markDeleteProperties());
  }

  @Test
  void aCursorThatMustExistIsNotCreated() {
    KeeperException why = failure(link.open(request().withCreate(false), new Recorder()));
    assertEquals(Code.NOT_FOUND, why.code());
    assertFalse(why.retryable() || why.remedy().isEmpty());
  }

  @Test
  void onlyOneHoldsACursorAndTakeoverDeposes() {
    Recorder first = new Recorder();
    KeptCursor cursor = get(link.open(request(), first)).cursor();
    get(cursor.ack(entries(cursor.generation(), 10, 1)));
    try (KeeperLink other = KeeperLink.connect(settings(keeper.address()))) {
      assertEquals(Code.ALREADY_OPEN, failure(other.open(request(), new Recorder())).code());
      OpenedCursor second = get(other.open(request().withTakeover(true), new Recorder()));
      assertEquals(List.of(1L), entries(second.state(), 10));
      assertEquals(Code.DEPOSED, first.awaitEnd().code());
      assertEquals(Code.DEPOSED, failure(cursor.ack(entries(cursor.generation(), 10, 2))).code());
      assertFalse(cursor.persistable());
      get(second.cursor().ack(entries(cursor.generation(), 10, 3)));
    }
  }

  @Test
  void aTokenDecidesWhoseTheCursorIs() {
    Recorder old = new Recorder();
    KeptCursor cursor = get(link.open(request().withFencingToken(7), old)).cursor();
    get(cursor.ack(entries(cursor.generation(), 10, 1)));
    try (KeeperLink other = KeeperLink.connect(settings(keeper.address()))) {
      assertEquals(
          Code.FENCED,
          failure(other.open(request().withFencingToken(6).withTakeover(true), new Recorder()))
              .code());
      assertEquals(
          Code.FENCED, failure(other.open(request().withTakeover(true), new Recorder())).code());
      OpenedCursor newer = get(other.open(request().withFencingToken(9), new Recorder()));
      assertTrue(newer.state().isAcked(10, 1));
      // the older one opens again by itself, and learns that its time is over
      assertEquals(Code.FENCED, old.awaitEnd().code());
      assertEquals(Code.FENCED, failure(cursor.ack(entries(cursor.generation(), 10, 2))).code());
      assertEquals(Code.FENCED, failure(link.delete(topic, "s", 7)).code());
      get(newer.cursor().ack(entries(newer.cursor().generation(), 10, 3)));
      get(newer.cursor().close());
      get(other.delete(topic, "s", 9));
    }
    assertEquals(
        Code.FENCED, failure(link.open(request().withFencingToken(8), new Recorder())).code());
    assertTrue(open(request().withFencingToken(9)).state().created());
  }

  @Test
  void whatIsRefusedForItsContentIsNotKeptAndTheCursorGoesOn() {
    long connects = connectsOnceUp();
    Recorder listener = new Recorder();
    KeptCursor cursor = get(link.open(request().withFencingToken(3), listener)).cursor();
    int generation = cursor.generation();
    for (int round = 0; round < 2; round++) {
      long entry = 10L * round;
      get(cursor.ack(entries(generation, 10, entry)));
      CompletableFuture<Void> bad =
          cursor.ack(entries(generation, 10, 100)); // the ledger has 0 to 99
      CompletableFuture<Void> layout = cursor.layout(LAYOUT);
      assertEquals(Code.POSITION_OUT_OF_RANGE, failure(bad).code());
      if (layout != bad) {
        get(layout);
      }
      get(cursor.ack(entries(generation, 10, entry + 1).entry(12, entry)));
      get(cursor.setProperties(Map.of("round", "" + round)));
    }
    assertEquals(0, cursor.pendingBytes());
    assertEquals(
        2, listener.heard().stream().filter("refused: POSITION_OUT_OF_RANGE"::equals).count());
    int next = get(cursor.reset(new Position(10, 49)));
    get(cursor.ack(entries(next, 10, 60)));
    get(cursor.close());
    assertEquals(Code.CLOSED, listener.awaitEnd().code());
    CursorState state = open(request().withCreate(false).withFencingToken(3)).state();
    assertEquals(List.of(60L), entries(state, 10));
    assertEquals(Map.of("round", "1"), state.cursorProperties());
    assertEquals(connects, link.status().connects());
  }

  @Test
  void acksThatWereSentBeforeAndAfterARefusedOneAreKept() {
    KeptCursor cursor = open(request()).cursor();
    int generation = cursor.generation();
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (long entry = 0; entry < 60; entry++) {
      all.add(cursor.ack(entries(generation, 10, entry == 30 ? 100 : entry)));
    }
    TreeSet<Long> confirmed = new TreeSet<>();
    for (long entry = 0; entry < 60; entry++) {
      CompletableFuture<Void> answer = all.get((int) entry);
      answer.handle((nothing, failed) -> null).join();
      if (!answer.isCompletedExceptionally()) {
        confirmed.add(entry);
      }
    }
    assertFalse(confirmed.contains(30L));
    get(
        cursor.ack(
            entries(
                generation,
                10,
                60))); // it is open again, and does not take over from whom opens it next
    CursorState state = reopened();
    confirmed.forEach(entry -> assertTrue(state.isAcked(10, entry), entry + " was confirmed"));
    assertFalse(state.isAcked(10, 30) || state.isAcked(10, 100));
  }

  @Test
  void aRefusedLayoutCostsTheCursorAndNotTheLink() {
    long connects = connectsOnceUp();
    Recorder listener = new Recorder();
    KeptCursor cursor = get(link.open(request(), listener)).cursor();
    KeptCursor other = open(OpenRequest.of(topic, "other").withLayout(LAYOUT)).cursor();
    get(cursor.ack(entries(cursor.generation(), 10, 1)));
    KeeperException why =
        failure(
            cursor.layout(List.of(DataLedger.closed(10, 50), DataLedger.open(12)))); // it has 100
    assertEquals(Code.LAYOUT_CONTRADICTS, why.code());
    assertEquals(Code.LAYOUT_CONTRADICTS, listener.awaitEnd().code());
    assertEquals(Code.LAYOUT_CONTRADICTS, failure(cursor.close()).code());
    get(other.ack(entries(other.generation(), 10, 1)));
    assertEquals(List.of(1L), entries(reopened(), 10));
    assertEquals(connects, link.status().connects());
  }

  @Test
  void closingGivesTheCursorBackWithEverythingDurable() {
    Recorder listener = new Recorder();
    KeptCursor cursor = get(link.open(request(), listener)).cursor();
    CompletableFuture<Void> acked = cursor.ack(entries(cursor.generation(), 10, 1, 2));
    CompletableFuture<Void> closed = cursor.close();
    assertEquals(Code.CLOSED, failure(cursor.ack(entries(cursor.generation(), 10, 3))).code());
    get(closed);
    get(acked);
    assertEquals(Code.CLOSED, listener.awaitEnd().code());
    try (KeeperLink other = KeeperLink.connect(settings(keeper.address()))) {
      assertEquals(
          List.of(1L, 2L),
          entries(get(other.open(request(), new Recorder())).state(), 10)); // no takeover needed
    }
  }

  @Test
  void aDeletedCursorIsGone() {
    Recorder listener = new Recorder();
    KeptCursor cursor = get(link.open(request(), listener)).cursor();
    get(cursor.delete());
    assertEquals(Code.DELETED, listener.awaitEnd().code());
    assertEquals(
        Code.NOT_FOUND, failure(link.open(request().withCreate(false), new Recorder())).code());
    KeptCursor again = open(request()).cursor();
    get(again.close());
    get(link.delete(topic, "s", 0));
    assertEquals(
        Code.NOT_FOUND, failure(link.open(request().withCreate(false), new Recorder())).code());
    assertEquals(Code.NOT_FOUND, failure(link.delete(topic, "s", 0)).code());
  }

  @Test
  void whatIsTooMuchForOneMessageLeavesAsSeveral() {
    KeptCursor cursor = open(OpenRequest.of(topic, "s")).cursor();
    Acks acks =
        new Acks(cursor.generation()).markDelete(new Position(0, 2)).properties(Map.of("p", 7L));
    for (long ledger = 1; ledger <= 1_500; ledger++) {
      acks.entry(ledger, 3).entry(ledger, 5);
    }
    for (int at = 0; at < 2_500; at++) {
      acks.batch(1_501, 10 + at, 4, missing(at % 4));
    }
    get(cursor.ack(acks));
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    assertEquals(1_500, state.acked().size());
    assertTrue(
        state.acked().keySet().stream()
            .allMatch(ledger -> entries(state, ledger).equals(List.of(3L, 5L))));
    assertEquals(2_500, state.partials().size());
    assertEquals(new PartialBatch(1_501, 13, 4, missing(3)), state.partials().get(3));
    assertEquals(new Position(0, 2), state.markDelete());
    assertEquals(Map.of("p", 7L), state.markDeleteProperties());
  }

  @Test
  void aLongLayoutLeavesAsSeveral() {
    long last = 25_005;
    List<DataLedger> layout = new ArrayList<>();
    for (long ledger = 1; ledger < last; ledger++) {
      layout.add(DataLedger.closed(ledger, 1));
    }
    layout.add(DataLedger.open(last));
    KeptCursor cursor =
        open(OpenRequest.of(topic, "s").withLayout(layout).withStart(new Position(12_000, -1)))
            .cursor();
    get(cursor.setProperties(Map.of()));
    CursorState state = open(OpenRequest.of(topic, "s").withTakeover(true)).state();
    List<Long> known =
        state.layout().stream().map(DataLedger::ledger).filter(each -> each >= 12_000).toList();
    assertEquals(LongStream.rangeClosed(12_000, last).boxed().toList(), known);
  }

  @Test
  void threeHundredCursorsOpenOnOneLink() {
    List<CompletableFuture<OpenedCursor>> opening = new ArrayList<>();
    for (int at = 0; at < 300; at++) {
      opening.add(link.open(OpenRequest.of(topic, "s" + at).withLayout(LAYOUT), new Recorder()));
    }
    List<CompletableFuture<Void>> acked = new ArrayList<>();
    for (int at = 0; at < 300; at++) {
      KeptCursor cursor = get(opening.get(at)).cursor();
      acked.add(cursor.ack(entries(cursor.generation(), 10, at % 100)));
    }
    acked.forEach(Testing::get);
    assertEquals(300, link.status().cursors());
    assertEquals(0, link.status().pendingBytes());
    List<CompletableFuture<Void>> closed = new ArrayList<>();
    opening.forEach(each -> closed.add(get(each).cursor().close()));
    closed.forEach(Testing::get);
    assertEquals(0, link.status().cursors());
  }

  @Test
  void aKilledKeeperCostsNothing() throws Exception {
    int count = 20;
    List<Recorder> listeners = new ArrayList<>();
    List<KeptCursor> cursors = new ArrayList<>();
    List<TreeMap<Long, TreeSet<Long>>> truth = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      listeners.add(new Recorder());
      OpenRequest wanted =
          OpenRequest.of(topic, "s" + at).withFencingToken(at % 2).withLayout(LAYOUT);
      cursors.add(get(link.open(wanted, listeners.get(at))).cursor());
      truth.add(new TreeMap<>());
    }
    List<CompletableFuture<Void>> answers = Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    AtomicInteger done = new AtomicInteger();
    AtomicBoolean stop = new AtomicBoolean();
    for (int at = 0; at < 4; at++) {
      int mine = at;
      Random random = new Random(at);
      threads.add(
          new Thread(
              () -> {
                while (!stop.get()) {
                  int which = random.nextInt(count / 4) * 4 + mine;
                  long ledger = random.nextBoolean() ? 10 : 12;
                  long entry = random.nextInt(ledger == 10 ? 100 : 5_000);
                  KeptCursor cursor = cursors.get(which);
                  answers.add(cursor.ack(entries(cursor.generation(), ledger, entry)));
                  truth.get(which).computeIfAbsent(ledger, none -> new TreeSet<>()).add(entry);
                  if (done.incrementAndGet() % 8 == 0) {
                    LockSupport.parkNanos(1_000_000);
                  }
                }
              }));
    }
    threads.forEach(Thread::start);
    for (int round = 1; round <= 2; round++) {
      int wanted = done.get() + 500;
      until(() -> done.get() >= wanted);
      keeper.kill();
      int more = done.get() + 500; // nobody is there: they are kept
      until(() -> done.get() >= more);
      assertTrue(
          new ArrayList<>(answers).stream().noneMatch(CompletableFuture::isCompletedExceptionally));
      keeper.start();
      long ups = round;
      until(
          () ->
              listeners.stream()
                  .allMatch(each -> each.heard().stream().filter("up"::equals).count() >= ups));
    }
    stop.set(true);
    for (Thread each : threads) {
      each.join();
    }
    answers.forEach(Testing::get);
    assertEquals(0, link.status().pendingBytes());
    for (int at = 0; at < count; at++) {
      List<String> heard = listeners.get(at).heard();
      assertTrue(heard.stream().filter("reopened"::equals).count() >= 2, heard.toString());
      assertEquals(
          heard.stream().filter("down"::equals).count(),
          heard.stream().filter("up"::equals).count(),
          heard.toString());
      get(cursors.get(at).close()); // whom a token gives the cursor would take it back
      OpenRequest check =
          OpenRequest.of(topic, "s" + at).withCreate(false).withFencingToken(at % 2);
      CursorState state = get(link.open(check, new Recorder())).state();
      TreeMap<Long, TreeSet<Long>> expected = truth.get(at);
      expected.forEach(
          (ledger, entries) ->
              entries.forEach(
                  entry -> assertTrue(state.isAcked(ledger, entry), ledger + ":" + entry)));
      state
          .acked()
          .keySet()
          .forEach(
              ledger ->
                  assertTrue(
                      expected
                          .getOrDefault(ledger, new TreeSet<>())
                          .containsAll(entries(state, ledger)),
                      "a phantom"));
    }
  }

  @Test
  void aResetHoldsOverAKill() {
    Recorder listener = new Recorder();
    KeptCursor cursor = get(link.open(request(), listener)).cursor();
    int generation = cursor.generation();
    get(cursor.ack(entries(generation, 10, 1, 2, 3)));
    keeper.kill();
    listener.await("down");
    CompletableFuture<Void> old =
        cursor.ack(entries(generation, 10, 4)); // from before the seek: void
    CompletableFuture<Integer> reset = cursor.reset(new Position(10, 49));
    keeper.start();
    int now = get(reset);
    get(old);
    get(cursor.ack(entries(now, 10, 60)));
    CursorState state = reopened();
    assertEquals(new Position(10, 49), state.markDelete());
    assertEquals(List.of(60L), entries(state, 10));
  }

  /** Streams that came; of a daemon with workers one to each. */
  private long connectsOnceUp() {
    until(() -> link.status().up());
    return link.status().connects();
  }
}
