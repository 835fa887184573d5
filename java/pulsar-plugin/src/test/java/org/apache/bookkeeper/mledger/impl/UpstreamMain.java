package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.LiveTopic.WAIT_S;
import static org.apache.bookkeeper.mledger.impl.Stories.check;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.apache.bookkeeper.mledger.Position;

/**
 * Serves who asks whether what Pulsar's own tests of cursors say holds for the kept one. Each
 * script ({@link UpstreamScripts}) is played on a cursor of Pulsar's and on a kept one: every call
 * has the same outcome, and both show the same at the end. The kept one shows it after a crash and
 * after a clean stop, and Pulsar's own is shown by a kept one that took it over. Arguments:
 * ZooKeeper, keeper.
 */
public final class UpstreamMain {

  private static final String STOCK = "";
  private static final int THREADS = 8;
  private static final int ALL_MAX_S = 300;

  private record Played(String mirrors, Player stock, Player kept, String shown) {}

  private final String zooKeeper;
  private final String keeper;
  private final List<Played> played = Collections.synchronizedList(new ArrayList<>());
  private String name;
  private LiveTopic stocks;
  private LiveTopic keeps;

  private UpstreamMain(String zooKeeper, String keeper) {
    this.zooKeeper = zooKeeper;
    this.keeper = keeper;
  }

  public static void main(String[] arguments) {
    UpstreamMain main = new UpstreamMain(arguments[0], arguments[1]);
    Map<String, Stories.Story> all = new LinkedHashMap<>();
    all.put("what Pulsar's own tests of cursors do", main::play);
    all.put(
        "ManagedCursorConcurrencyTest.testAckAndClose, asyncMarkDeleteAndClose",
        main::closesWhileAcked);
    all.put(
        "errorRecoveringCursor, 2, 3, failDuringRecoveryWithEmptyLedger, testForceCursorRecovery",
        main::takesOverWithoutItsLedger);
    all.put("what was played is there after a crash, and after a clean stop", main::isThereAgain);
    all.put("what was played on Pulsar's own cursors is taken over", main::isTakenOver);
    Stories.tell("upstream", all, topic -> main.name = topic);
  }

  @FunctionalInterface
  private interface Work<T> {
    void of(T each) throws Exception;
  }

  /** Some at a time: most of it is waiting. */
  private static <T> void all(List<T> of, Function<T, String> mirrors, Work<T> work)
      throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(THREADS);
    try {
      List<Future<?>> done = new ArrayList<>();
      for (T each : of) {
        done.add(
            threads.submit(
                () -> {
                  try {
                    work.of(each);
                  } catch (Exception | AssertionError e) {
                    throw new AssertionError(mirrors.apply(each) + ": " + e.getMessage(), e);
                  }
                }));
      }
      for (Future<?> each : done) {
        each.get(ALL_MAX_S, TimeUnit.SECONDS);
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static void same(String expected, String found, String what) {
    check(expected.equals(found), what + ": expected\n" + expected + "\nfound\n" + found);
  }

  private LiveTopic process(String by) throws Exception {
    return new LiveTopic(zooKeeper, by, name + "-" + System.nanoTime(), Map.of());
  }

  private void play() throws Exception {
    stocks = process(STOCK);
    keeps = process(keeper);
    List<UpstreamScripts.Script> scripts = UpstreamScripts.all();
    all(
        scripts,
        UpstreamScripts.Script::mirrors,
        each -> played.add(played(each, name + "-" + scripts.indexOf(each))));
  }

  private Played played(UpstreamScripts.Script script, String topic) throws Exception {
    Player stock = new Player(stocks, topic + "-stock", script.with());
    Player kept = new Player(keeps, topic, script.with());
    for (Player each : List.of(stock, kept)) {
      script.play().on(each);
    }
    same(String.join("\n", stock.outcomes), String.join("\n", kept.outcomes), "outcomes");
    String shown = kept.view();
    same(stock.view(), shown, "the state");
    return new Played(script.mirrors(), stock, kept, shown);
  }

  private void isThereAgain() throws Exception {
    keeps.crash();
    keeps = process(keeper);
    all(
        played,
        Played::mirrors,
        each -> {
          each.kept.loadedBy(keeps);
          same(each.shown, each.kept.view(), "the state after a crash");
          each.kept.unload();
          each.kept.loadedBy(keeps);
          same(each.shown, each.kept.view(), "the state after a clean stop");
        });
  }

  private void isTakenOver() throws Exception {
    all(
        played,
        Played::mirrors,
        each -> {
          each.stock.unload();
          each.stock.loadedBy(stocks);
          String shown = each.stock.view();
          each.stock.unload();
          each.stock.loadedBy(keeps);
          same(shown, each.stock.view(), "the state that was taken over");
        });
    keeps.crash();
    stocks.crash();
  }

  /**
   * Every ack is answered. Those with a receipt are there afterwards; of the others each may be.
   */
  private void closesWhileAcked() throws Exception {
    Player kept = new Player(keeps, name, config -> {});
    List<CompletableFuture<Void>> acks = new ArrayList<>();
    CompletableFuture<Void> acking =
        CompletableFuture.runAsync(
            () -> {
              for (Position each : kept.entries) {
                acks.add(LiveTopic.ack(kept.cursor, List.of(each)));
              }
            });
    kept.unload();
    acking.get(WAIT_S, TimeUnit.SECONDS);
    boolean[] confirmed = new boolean[acks.size()];
    for (int number = 0; number < confirmed.length; number++) {
      confirmed[number] =
          acks.get(number)
              .handle((nothing, failed) -> failed == null)
              .get(WAIT_S, TimeUnit.SECONDS);
    }
    kept.loadedBy(keeps);
    kept.use("sub");
    List<Integer> lost =
        IntStream.range(0, confirmed.length)
            .filter(
                number ->
                    confirmed[number] && !kept.cursor.isMessageDeleted(kept.entries.get(number)))
            .boxed()
            .toList();
    check(lost.isEmpty(), "confirmed and lost: " + lost);
  }

  /**
   * Then Pulsar's recovery goes on with what the znode says: so does the kept one that takes it
   * over.
   */
  private void takesOverWithoutItsLedger() throws Exception {
    LiveTopic before = process(STOCK);
    List<Player> both = new ArrayList<>();
    for (String each : List.of("-stock", "-kept")) {
      Player topic = new Player(before, name + each, config -> {});
      both.add(topic);
      topic.markDelete(4, Map.of("n", 1L));
      topic.reload();
      topic.ack(5, 8);
      topic.markDelete(9, Map.of("n", 2L));
      topic.ack(11);
      before.bookKeeper().deleteLedger(topic.cursor.cursorLedger.getId());
    }
    before.crash();
    both.get(0).loadedBy(stocks);
    both.get(1).loadedBy(keeps);
    String shown = both.get(0).view();
    same(shown, both.get(1).view(), "the state");
    both.get(1).reload();
    same(shown, both.get(1).view(), "the state after a clean stop");
  }
}
