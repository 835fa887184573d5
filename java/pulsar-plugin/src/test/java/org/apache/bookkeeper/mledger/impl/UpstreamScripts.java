package org.apache.bookkeeper.mledger.impl;

import static org.apache.bookkeeper.mledger.impl.LiveTopic.WAIT_S;
import static org.apache.bookkeeper.mledger.impl.Player.ENTRIES;
import static org.apache.bookkeeper.mledger.impl.Stories.check;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.Entry;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedCursor.FindPositionConstraint;
import org.apache.bookkeeper.mledger.ManagedCursor.IndividualDeletedEntries;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.pulsar.metadata.api.GetResult;

/**
 * What Pulsar's own tests do with a cursor, in our words, for {@link UpstreamMain}. Without a class
 * before it a test is one of {@code ManagedCursorTest}.
 */
final class UpstreamScripts {

  /**
   * One of them.
   *
   * @param mirrors Pulsar's tests that it stands for
   * @param with the topic's settings
   */
  record Script(String mirrors, Consumer<ManagedLedgerConfig> with, Play play) {}

  @FunctionalInterface
  interface Play {
    void on(Player player) throws Exception;
  }

  /** Of what is acked wholly nothing is replayed, and nobody is answered. */
  private static final ReadEntriesCallback NOBODY =
      new ReadEntriesCallback() {
        @Override
        public void readEntriesComplete(List<Entry> read, Object ctx) {
          throw new AssertionError("replayed is " + read);
        }

        @Override
        public void readEntriesFailed(ManagedLedgerException exception, Object ctx) {
          throw new AssertionError(exception);
        }
      };

  private UpstreamScripts() {}

  static List<Script> all() {
    List<Script> all = new ArrayList<>();
    Consumer<ManagedLedgerConfig> asEver = config -> {};
    acks((mirrors, play) -> all.add(new Script(mirrors, asEver, play)));
    reads((mirrors, play) -> all.add(new Script(mirrors, asEver, play)));
    moves((mirrors, play) -> all.add(new Script(mirrors, asEver, play)));
    all.add(
        new Script(
            "testOutOfOrderDeletePersistenceIntoLedgerWithClose, …IntoZkWithClose,"
                + " testPersistUnackedRangesTruncatedCounter: of ranges beyond a limit none is"
                + " lost",
            UpstreamScripts::persistsFew,
            UpstreamScripts::leavesManyHoles));
    all.add(
        new Script(
            "testLazyRecoverCursor",
            config -> config.setLazyCursorRecovery(true),
            UpstreamScripts::acksLists));
    all.add(
        new Script(
            "LedgerLostAndSkipNonRecoverableTest, testSkipNonRecoverableEntries",
            config -> config.setAutoSkipNonRecoverableData(true),
            UpstreamScripts::losesALedger));
    all.add(
        new Script(
            "testSkipOpenLedgerFullyAcked, ManagedLedgerTest.testDeletionAfterRetention, "
                + "NonDurableCursorTest.testGetSlowestConsumer",
            UpstreamScripts::retainsNothing,
            UpstreamScripts::trims));
    all.add(
        new Script(
            "ManagedLedgerBkTest.testPeriodicRollover, testRateLimitMarkDelete,"
                + " testFlushCursorAfterInactivity",
            config -> config.setThrottleMarkDelete(0.001),
            UpstreamScripts::marksQuickly));
    return all;
  }

  @FunctionalInterface
  private interface Add {
    void mirroring(String tests, Play play);
  }

  private static void acks(Add add) {
    add.mirroring(
        "testSingleDelete, deleteSingleMessageTwice, deleteMessagesCheckhMarkDelete",
        UpstreamScripts::acksSingly);
    add.mirroring(
        "unorderedMarkDelete, unorderedAsyncMarkDelete, cursorPersistenceAsyncMarkDeleteSameThread,"
            + " markDeleteSkippingMessage",
        UpstreamScripts::marksOutOfOrder);
    add.mirroring("outOfOrderAcks, randomOrderAcks", UpstreamScripts::acksAtRandom);
    add.mirroring("testIndividuallyDeletedMessages, 1, 2, 3", UpstreamScripts::leavesRanges);
    add.mirroring(
        "testConsistencyOfIndividualMessages, ManagedCursorListAckTest.testMultiPositionDelete",
        UpstreamScripts::acksLists);
    add.mirroring(
        "testBatchIndexMarkdelete, testBatchIndexDelete, testBatchIndexesDeletionPersistAndRecover,"
            + " ManagedCursorBatchAckRecoveryTest.testMetadataStoreRecoveryPreservesAllCursorState",
        UpstreamScripts::acksPartsOfBatches);
    add.mirroring("testDeleteBatchedMessageWithEmptyAckSet", UpstreamScripts::acksAnEmptySet);
    add.mirroring(
        "testAsyncMarkDeleteNeverLoseProperties, testAsyncDeleteNeverLoseMarkDeleteProperties",
        UpstreamScripts::keepsProperties);
    add.mirroring(
        "ManagedCursorPropertiesTest.testPropertiesClose, testPropertiesRecoveryAfterCrash,"
            + " testUpdateCursorProperties",
        UpstreamScripts::keepsStringProperties);
    add.mirroring("cursorPersistence, cursorPersistence2", UpstreamScripts::keepsSeveralCursors);
    add.mirroring(
        "ManagedCursorConcurrencyTest.testConcurrentIndividualDeletes, …WithGetNthEntry",
        UpstreamScripts::acksConcurrently);
    add.mirroring(
        "testConcurrentMarkDelete, asyncMarkDeleteBlocking", UpstreamScripts::marksConcurrently);
  }

  private static void reads(Add add) {
    add.mirroring(
        "readTwice, rewind, seekPosition, 2, 3, 4, testReadEntriesOrWait",
        UpstreamScripts::readsAndSeeks);
    add.mirroring(
        "testGetLastIndividualDeletedRange, testTrimDeletedEntries,"
            + " testReadEntriesWithSkipDeletedEntries, ManagedCursorSkipDeletedEntriesTest",
        UpstreamScripts::readsWhatIsLeft);
    add.mirroring(
        "testNumberOfEntries, testNumberOfEntriesWithReopen,"
            + " hasBacklogMatchesBacklogCountsAfterCursorRecovery",
        UpstreamScripts::counts);
    add.mirroring(
        "testGetEntryAfterN, testGetEntryAfterNWithIndividualDeletedMessages",
        UpstreamScripts::getsTheNth);
    add.mirroring("testFindNewestMatching, …EdgeCase1 to 5, …AllEntries", UpstreamScripts::finds);
    add.mirroring("testReplayEntries", UpstreamScripts::replays);
    add.mirroring(
        "NonDurableCursorTest.markDeleteGreaterThanLastConfirmedEntry,"
            + " deleteNonDurableCursorWithName, testZNodeBypassed",
        UpstreamScripts::duplicates);
    add.mirroring(
        "ManagedLedgerTest.testActiveDeactiveCursorWithDiscardEntriesFromCache",
        UpstreamScripts::rests);
  }

  private static void moves(Add add) {
    add.mirroring(
        "testRecoverCursorAfterResetToLatest, …ForNewEntry, testResetCursor",
        UpstreamScripts::resets);
    add.mirroring("testResetCursorAfterRecovery", UpstreamScripts::resetsAfterALoad);
    add.mirroring("testConcurrentResetCursor", UpstreamScripts::resetsAtOnce);
    add.mirroring(
        "testSkipEntries, testSkipEntriesWithIndividualDeletedMessages", UpstreamScripts::skips);
    add.mirroring("testClearBacklog", UpstreamScripts::clears);
    add.mirroring(
        "testSkipNonRecoverableEntries, with nothing lost", UpstreamScripts::skipsALedger);
    add.mirroring(
        "removingCursor, ManagedCursorPropertiesTest.testPropertiesOnDelete",
        UpstreamScripts::makesAgain);
    add.mirroring(
        "testReopenMultipleTimes, testCursorRecoveryForEmptyLedgers", UpstreamScripts::reopens);
    add.mirroring("testRecoverCursorAheadOfLastPosition", UpstreamScripts::losesTheEnd);
    add.mirroring(
        "testRecoverCursorWithTerminateManagedLedger, ManagedLedgerTerminationTest",
        UpstreamScripts::terminates);
  }

  private static void persistsFew(ManagedLedgerConfig config) {
    config.setMaxUnackedRangesToPersist(3);
    config.setMaxUnackedRangesToPersistInMetadataStore(2);
  }

  private static void retainsNothing(ManagedLedgerConfig config) {
    config.setRetentionTime(0, TimeUnit.SECONDS);
    config.setRetentionSizeInMB(0);
  }

  // ---- acks

  private static void acksSingly(Player on) throws Exception {
    on.ack(0);
    on.ack(0);
    on.ack(2);
    on.ack(2);
    on.ack(1);
    on.ack(5);
    on.markDelete(3, Map.of());
    on.ack(4);
    on.ack(1);
  }

  private static void marksOutOfOrder(Player on) throws Exception {
    on.markDelete(9, Map.of());
    on.markDelete(4, Map.of());
    on.markDelete(9, Map.of());
    on.markDelete(17, Map.of());
    on.markDelete(16, Map.of());
  }

  private static void acksAtRandom(Player on) throws Exception {
    List<Integer> order = new ArrayList<>();
    for (int number = 0; number < ENTRIES; number++) {
      order.add(number);
    }
    Collections.shuffle(order, new Random(17));
    for (int number : order) {
      on.ack(number);
    }
  }

  private static void leavesRanges(Player on) throws Exception {
    for (int number : new int[] {6, 8, 7, 3, 20, 0, 14, 13}) {
      on.ack(number);
    }
  }

  private static void leavesManyHoles(Player on) throws Exception {
    for (int number = 1; number < ENTRIES; number += 2) {
      on.ack(number);
    }
  }

  private static void acksLists(Player on) throws Exception {
    on.ack(1, 3, 5, 20);
    on.ack(4, 4, 3);
    on.ack(0, 2);
    on.ack(22);
    on.ack(21, 23, 19);
  }

  private static void acksPartsOfBatches(Player on) throws Exception {
    on.part(4, 0, 1, 2);
    on.part(4, 1, 2, 3);
    on.part(11, 3);
    on.part(11, 2);
    on.ack(3);
    on.part(3, 0);
    on.part(20, 0, 5);
    on.markDelete(1, Map.of());
    on.part(20, 0, 1, 2, 3, 4, 5);
  }

  private static void acksAnEmptySet(Player on) throws Exception {
    on.part(7);
    on.part(0);
  }

  private static void keepsProperties(Player on) throws Exception {
    on.markDelete(2, Map.of("p", 7L, "q", -1L));
    on.ack(3);
    on.ack(9);
    on.ack(4, 5);
  }

  private static void keepsStringProperties(Player on) throws Exception {
    on.outcome(on.cursor.setCursorProperties(Map.of("a", "1", "b", "2")));
    on.outcome(on.cursor.putCursorProperty("c", "3"));
    on.ack(0, 5);
    on.outcome(on.cursor.removeCursorProperty("a"));
  }

  private static void keepsSeveralCursors(Player on) throws Exception {
    on.ack(0, 3);
    on.use("second");
    on.markDelete(20, Map.of("n", 1L));
    on.use("third");
    on.ack(23);
    on.use("second");
    on.ack(22);
  }

  private static CompletableFuture<Void> thread(Stories.Story work) {
    return CompletableFuture.runAsync(
        () -> {
          try {
            work.tell();
          } catch (Exception e) {
            throw new CompletionException(e);
          }
        });
  }

  /** Each of four threads acks every fourth, others look meanwhile. */
  private static void acksConcurrently(Player on) throws Exception {
    List<CompletableFuture<Void>> threads = new ArrayList<>();
    for (int thread = 0; thread < 4; thread++) {
      int first = thread;
      threads.add(
          thread(
              () -> {
                for (int number = first; number < ENTRIES - 3; number += 4) {
                  LiveTopic.ack(on.cursor, on.positions(number)).get(WAIT_S, TimeUnit.SECONDS);
                }
              }));
    }
    threads.add(
        thread(
            () -> {
              for (int looks = 0; looks < 20; looks++) {
                Entry found = on.cursor.getNthEntry(1, IndividualDeletedEntries.Exclude);
                check(found.getEntryId() >= 0, "the first one is " + found.getPosition());
                found.release();
              }
            }));
    for (CompletableFuture<Void> each : threads) {
      each.get(WAIT_S, TimeUnit.SECONDS);
    }
  }

  /** One that comes behind a further one is refused; the furthest counts. */
  private static void marksConcurrently(Player on) throws Exception {
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (int thread = 0; thread < 4; thread++) {
      int first = thread;
      all.add(
          thread(
              () -> {
                for (int number = first; number < 20; number += 4) {
                  LiveTopic.markDelete(on.cursor, on.entries.get(number), Map.of())
                      .handle((nothing, refused) -> null)
                      .get(WAIT_S, TimeUnit.SECONDS);
                }
              }));
    }
    for (CompletableFuture<Void> each : all) {
      each.get(WAIT_S, TimeUnit.SECONDS);
    }
  }

  /** Pulsar's own cursor leaves what comes too soon for later. */
  private static void marksQuickly(Player on) throws Exception {
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (int number = 0; number < 20; number++) {
      all.add(LiveTopic.markDelete(on.cursor, on.entries.get(number), Map.of("n", (long) number)));
    }
    for (CompletableFuture<Void> each : all) {
      each.get(WAIT_S, TimeUnit.SECONDS);
    }
  }

  // ---- reads

  private static void readsAndSeeks(Player on) throws Exception {
    on.read(3);
    on.read(3);
    on.cursor.rewind();
    on.read(2);
    on.cursor.seek(on.entries.get(15));
    on.read(2);
    on.markDelete(5, Map.of());
    on.read(2);
    on.cursor.seek(on.entries.get(1));
    on.read(2);
    on.cursor.seek(on.entries.get(1), true);
    on.read(2);
    on.cursor.rewind();
    on.note(on.numbers(on.cursor.readEntriesOrWait(4)));
    on.figures();
    on.markDelete(ENTRIES - 1, Map.of());
    on.read(1);
    on.figures();
  }

  private static void readsWhatIsLeft(Player on) throws Exception {
    on.ack(2, 3, 4, 5, 6, 7, 8, 9);
    on.ack(12, 14, 23);
    on.note(on.number(on.cursor.getLastIndividualDeletedRange().upperEndpoint()));
    on.note(on.readable(on.cursor));
    on.ack(10, 11);
    on.note(on.readable(on.cursor));
    on.read(5);
    on.ack(0, 1);
    on.note(on.number(on.cursor.getReadPosition()));
  }

  private static void counts(Player on) throws Exception {
    on.figures();
    on.read(5);
    on.figures();
    on.ack(2, 4, 9);
    on.figures();
    on.ack(0, 1);
    on.figures();
    on.markDelete(12, Map.of());
    on.figures();
    on.use("second");
    on.figures();
  }

  private static void getsTheNth(Player on) throws Exception {
    on.ack(0, 1, 3, 4, 8);
    for (IndividualDeletedEntries acked : IndividualDeletedEntries.values()) {
      for (int n : new int[] {1, 2, 5, 12, 100}) {
        Entry found = on.cursor.getNthEntry(n, acked);
        on.note(found == null ? "none" : on.numbers(List.of(found)));
      }
    }
  }

  private static void finds(Player on) throws Exception {
    on.ack(0, 1, 5, 6, 13);
    for (int last : new int[] {-1, 0, 3, 5, 12, 13, 100}) {
      on.note(on.number(on.cursor.findNewestMatching(entry -> isUpTo(last, entry))));
      on.note(
          on.number(
              on.cursor.findNewestMatching(
                  FindPositionConstraint.SearchAllAvailableEntries, entry -> isUpTo(last, entry))));
    }
    Position found = on.cursor.findNewestMatching(entry -> isUpTo(9, entry));
    on.reset(on.ledger.getNextValidPosition(found)); // as a seek by time does
    on.figures();
    List<Integer> seen = Collections.synchronizedList(new ArrayList<>());
    on.note(
        on.cursor
            .scan(
                Optional.of(on.entries.get(2)),
                entry -> seen.add(Player.content(entry)),
                4,
                9,
                60_000)
            .get(WAIT_S, TimeUnit.SECONDS));
    on.note(seen);
  }

  private static boolean isUpTo(int last, Entry entry) {
    int number = Player.content(entry);
    entry.release();
    return number <= last;
  }

  private static void replays(Player on) throws Exception {
    on.read(12);
    on.ack(3, 4, 9);
    on.note(
        on.numbers(on.cursor.replayEntries(new HashSet<>(on.positions(2, 3, 7, 9, 11)))).stream()
            .sorted()
            .toList());
    on.note(
        on
            .numbersOf(
                on.cursor.asyncReplayEntries(new HashSet<>(on.positions(3, 9)), NOBODY, null))
            .stream()
            .sorted()
            .toList());
    on.read(2);
  }

  /** They leave no znode, and what is acked with them changes nothing of the durable one. */
  private static void duplicates(Player on) throws Exception {
    on.ack(0, 3);
    on.part(8, 1);
    ManagedCursor copy = on.cursor.duplicateNonDurableCursor("copy");
    on.note(copy.isDurable() + " " + on.readable(copy));
    on.outcome(LiveTopic.ack(copy, on.positions(1, 2, 5)));
    on.note(on.readable(copy));
    on.note(on.readable(on.cursor));
    ManagedCursor other = on.ledger.newNonDurableCursor(on.entries.get(4), "other");
    on.note(on.numbers(other.readEntries(3)));
    on.outcome(LiveTopic.markDelete(other, on.entries.get(9), Map.of()));
    on.note(other.getNumberOfEntriesInBacklog(true));
    on.note(
        on.process()
            .store()
            .getChildrenFromStore("/managed-ledgers/" + on.name())
            .get(WAIT_S, TimeUnit.SECONDS));
    on.ledger.deleteCursor("copy");
  }

  private static void rests(Player on) throws Exception {
    isActive(on);
    on.cursor.setInactive();
    isActive(on);
    on.cursor.setActive();
    isActive(on);
    on.cursor.setAlwaysInactive();
    on.cursor.setActive();
    isActive(on);
    on.read(3);
    on.ack(0, 2);
  }

  private static void isActive(Player on) {
    List<String> active = new ArrayList<>();
    on.ledger.getActiveCursors().forEach(each -> active.add(each.getName()));
    on.note(on.cursor.isActive() + " " + active);
  }

  // ---- moves

  private static void resets(Player on) throws Exception {
    on.ack(0, 1, 2, 9);
    on.reset(PositionFactory.LATEST);
    on.figures();
    on.ack(5);
    on.reset(on.entries.get(12));
    on.figures();
    on.ack(14);
    on.reset(PositionFactory.create(on.entries.get(7).getLedgerId(), 1_000));
    on.figures();
    on.use("second");
    on.markDelete(20, Map.of("n", 1L));
    on.reset(PositionFactory.EARLIEST);
    on.figures();
  }

  private static void resetsAfterALoad(Player on) throws Exception {
    on.ack(0, 1, 5, 9);
    on.markDelete(12, Map.of());
    on.reload();
    on.reset(on.entries.get(6));
    on.ack(8);
    on.reload();
    on.figures();
    on.reset(PositionFactory.LATEST);
    on.reload();
    on.reset(on.entries.get(3));
  }

  /** The second of two fails, or comes to its turn. */
  private static void resetsAtOnce(Player on) throws Exception {
    on.markDelete(10, Map.of());
    CompletableFuture<Void> first = LiveTopic.reset(on.cursor, on.entries.get(3));
    CompletableFuture<Void> second = LiveTopic.reset(on.cursor, on.entries.get(15));
    on.outcome(first);
    int expected =
        second.handle((nothing, failed) -> failed == null ? 15 : 3).get(WAIT_S, TimeUnit.SECONDS);
    on.note(on.number(on.cursor.getReadPosition()) == expected);
    on.reset(on.entries.get(6));
  }

  private static void skips(Player on) throws Exception {
    on.ack(3, 5);
    on.cursor.skipEntries(6, IndividualDeletedEntries.Exclude);
    on.figures();
    on.cursor.skipEntries(6, IndividualDeletedEntries.Include);
    on.figures();
    on.use("second");
    on.cursor.skipEntries(1_000, IndividualDeletedEntries.Include);
    on.figures();
  }

  private static void clears(Player on) throws Exception {
    on.ack(3, 5, 9);
    on.part(11, 1);
    on.cursor.clearBacklog();
    on.figures();
    on.use("second");
    on.ack(7);
  }

  private static void skipsALedger(Player on) throws Exception {
    on.ack(3);
    on.part(9, 1);
    on.cursor.skipNonRecoverableLedger(on.entries.get(9).getLedgerId());
    on.ack(ENTRIES - 1); // answered after it
  }

  private static void makesAgain(Player on) throws Exception {
    on.use("second");
    on.markDelete(9, Map.of("n", 1L));
    on.ack(14);
    on.outcome(on.cursor.putCursorProperty("a", "1"));
    on.delete("second");
    on.note(
        on.process()
            .store()
            .getChildrenFromStore("/managed-ledgers/" + on.name())
            .get(WAIT_S, TimeUnit.SECONDS));
    on.use("second");
    on.figures();
    on.note(on.cursor.getProperties() + " " + on.cursor.getCursorProperties());
    on.ack(2);
    on.use("third");
    on.delete("third");
    on.use("sub");
  }

  private static void reopens(Player on) throws Exception {
    for (int times = 0; times < 3; times++) {
      on.reload();
    }
    on.ack(4);
    on.markDelete(2, Map.of());
    for (int times = 0; times < 2; times++) {
      on.reload();
      on.figures();
    }
  }

  /** The topic's znode is an earlier one again, so that mark-delete is beyond its last entry. */
  private static void losesTheEnd(Player on) throws Exception {
    String path = "/managed-ledgers/" + on.name();
    byte[][] before = new byte[1][];
    on.reload(
        () ->
            before[0] =
                on.process()
                    .store()
                    .get(path)
                    .get(WAIT_S, TimeUnit.SECONDS)
                    .orElseThrow()
                    .getValue());
    for (int number = 0; number < 9; number++) {
      on.ledger.addEntry(new byte[] {1});
    }
    on.ack(3);
    on.outcome(LiveTopic.markDelete(on.cursor, on.ledger.getLastConfirmedEntry(), Map.of("n", 2L)));
    on.reload(
        () -> {
          GetResult now =
              on.process().store().get(path).get(WAIT_S, TimeUnit.SECONDS).orElseThrow();
          on.process()
              .store()
              .put(path, before[0], Optional.of(now.getStat().getVersion()))
              .get(WAIT_S, TimeUnit.SECONDS);
        });
    on.note(on.number(on.cursor.getMarkDeletedPosition()));
  }

  private static void terminates(Player on) throws Exception {
    on.ack(0, 4);
    on.note(on.number(on.ledger.terminate()));
    on.outcome(() -> on.ledger.addEntry(new byte[] {1}));
    on.ack(ENTRIES - 1);
    on.reload();
    on.note(on.ledger.isTerminated());
    on.ack(1, 7);
    on.cursor.seek(on.entries.get(ENTRIES - 1));
    on.read(1);
    on.outcome(() -> on.cursor.readEntriesOrWait(1));
  }

  /**
   * A closed data ledger that nobody has read is gone from the bookies: what is read goes on behind
   * it.
   */
  private static void losesALedger(Player on) throws Exception {
    on.ack(1);
    on.reload();
    long lost = on.entries.get(9).getLedgerId();
    on.process().bookKeeper().deleteLedger(lost);
    on.note(on.readable(on.cursor));
    on.ack(ENTRIES - 1); // answered after what the read acked
  }

  private static void trims(Player on) throws Exception {
    on.markDelete(12, Map.of());
    on.use("second");
    on.trim();
    on.markDelete(8, Map.of());
    on.trim();
    on.ack(9, 10, 12, 13, 14);
    on.trim();
    on.ack(11);
    on.use("sub");
    on.markDelete(16, Map.of());
    on.trim();
    on.figures();
    on.reload();
    on.trim();
    on.use("late");
    on.figures();
  }
}
