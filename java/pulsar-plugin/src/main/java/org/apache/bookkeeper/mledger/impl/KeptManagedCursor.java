package org.apache.bookkeeper.mledger.impl;

import com.google.common.collect.Range;
import io.cursorkeeper.client.Acks;
import io.cursorkeeper.client.CursorListener;
import io.cursorkeeper.client.CursorState;
import io.cursorkeeper.client.DataLedger;
import io.cursorkeeper.client.KeeperException;
import io.cursorkeeper.client.KeptCursor;
import io.cursorkeeper.client.OpenRequest;
import io.cursorkeeper.pulsar.CommandScope;
import io.cursorkeeper.pulsar.Imprint;
import io.cursorkeeper.pulsar.Layouts;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Settings;
import io.cursorkeeper.pulsar.WaitingAcks;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.AsyncCallbacks.CloseCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.commons.lang3.tuple.Pair;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker: a durable cursor that the keeper holds. Pulsar's own code changes the memory,
 * as ever; what it changed is told to the keeper instead of being written to a cursor ledger, and
 * callers are answered when the keeper has it durable.
 *
 * <p>Invariants. What the memory holds of acks, and in which generation, changes under Pulsar's
 * write lock only, and is handed to the link under the same lock: so no ack of before a seek is
 * taken for one behind it. The link only joins what it is given and sends elsewhere, so nothing
 * waits under the lock. Answers run on the managed ledger's executor, in their order. Data ledgers
 * are trimmed by what is durable. The znode holds Pulsar's string properties, and after a clean
 * stop the way back to Pulsar's own cursors.
 */
final class KeptManagedCursor extends LineCursor {

  private static final Logger LOG = LoggerFactory.getLogger(KeptManagedCursor.class);

  /**
   * The name of the compactor's cursor: its reset moves what it reads, and nothing that it keeps.
   */
  private static final String COMPACTION = "__compaction";

  /** No subscription has such a string property: what removes it writes the znode as it is. */
  private static final String NO_PROPERTY = "cursorkeeper.none";

  /**
   * Up to so many entries of a data ledger Pulsar's set takes its acks in one piece, of so many
   * bits. A million ranges take it half a second.
   */
  private static final long WORDS_ENTRIES_MAX = 1 << 26;

  /** One change of the memory, while it is under way: what the keeper is told of it. */
  private static final class Change {
    final Acks acks;
    long highestLedger = -1;
    Position markDelete;
    private final ManagedLedgerImpl topic;
    private long ledger = -1;
    private long lastEntry;

    Change(int generation, ManagedLedgerImpl topic) {
      acks = new Acks(generation);
      this.topic = topic;
    }

    /**
     * Whether the topic has such an entry. Looks once for each run of entries of a ledger: the
     * cursor knows that they are not behind the end.
     */
    boolean exists(Position position) {
      if (position.getLedgerId() != ledger) {
        ledger = position.getLedgerId();
        lastEntry = KeptEntries.last(topic, ledger);
      }
      return position.getEntryId() >= 0 && position.getEntryId() <= lastEntry;
    }

    void entry(Position position) {
      acks.entry(position.getLedgerId(), position.getEntryId());
      highestLedger = Math.max(highestLedger, position.getLedgerId());
    }

    void batch(Position position, long[] left) {
      acks.batch(position.getLedgerId(), position.getEntryId(), 0, left);
      highestLedger = Math.max(highestLedger, position.getLedgerId());
    }

    void markDelete(Position position) {
      markDelete = position;
      highestLedger = Math.max(highestLedger, position.getLedgerId());
    }
  }

  /** Callers that wait for the same answer of the keeper. Changes under the write lock. */
  private static final class Waiting {
    final CompletableFuture<Void> durable;
    final int generation;
    final List<Answer> answers = new ArrayList<>();
    Position markDelete;

    /** 0: nobody's receipt waits. */
    long receiptSinceNs;

    Waiting(CompletableFuture<Void> durable, int generation) {
      this.durable = durable;
      this.generation = generation;
    }

    void receiptWaits() {
      if (receiptSinceNs == 0) {
        receiptSinceNs = System.nanoTime();
      }
    }
  }

  /** Hears of one opening. Its end is the load's, if the cursor was in use. */
  private final class Opening implements CursorListener {
    private KeeperException why;
    private boolean used;

    @Override
    public void paused(String reason) {
      lookAgain();
    }

    @Override
    public void resumed() {
      lookAgain();
    }

    @Override
    public void refused(KeeperException reason) {
      topic.counters().changesRefused.increment();
      LOG.warn(
          "[{}][{}] The keeper refused a change, which is answered by a failure; the cursor goes"
              + " on: {}",
          topic.getName(),
          getName(),
          reason.getMessage());
    }

    @Override
    public void ended(KeeperException reason) {
      boolean matters;
      synchronized (this) {
        why = reason;
        matters = used;
      }
      if (matters) {
        lost(reason);
      }
    }

    void use() {
      KeeperException already;
      synchronized (this) {
        used = true;
        already = why;
      }
      if (already != null) {
        lost(already);
      }
    }
  }

  private record Opened(KeptCursor cursor, CursorState state, Opening opening) {}

  /** Tells a caller: null = it is done. */
  @FunctionalInterface
  private interface Answer {
    void tell(ManagedLedgerException failure);
  }

  private final KeptLedger topic;
  private final Executor executor;
  private final WaitingAcks.Share room;

  /**
   * Whether Pulsar's set of acks takes the bits of a data ledger: as it does when it recovers a
   * cursor itself.
   */
  private final boolean takesWords;

  private final KeptReplays replays = new KeptReplays();

  /** Set once, before the cursor is given to anybody. */
  private volatile KeptCursor keeper;

  private volatile ReadEntriesCallback reader;

  /** Whether Pulsar's own recovery is running: it may call `initialize`. */
  private volatile boolean recovering;

  /** Whether the end at the keeper is this side's wish. */
  private volatile boolean leaving;

  // Guarded by the write lock.
  private int generation;
  private Change change;
  private Waiting waiting;
  private Position toldMarkDelete;
  private Map<String, Long> toldProperties = Map.of();

  /**
   * Data ledgers that the keeper was told of, or told of. It may have forgotten those below
   * mark-delete; the link has not.
   */
  private final NavigableMap<Long, DataLedger> toldLedgers = new TreeMap<>();

  /** What the managed ledger trims its data ledgers by. Guarded by the write lock. */
  private Position neededFrom;

  /**
   * Whether a seek is on its way, or it is not known what became of one: then that does not rise.
   * Guarded by the write lock.
   */
  private boolean isSeeking;

  /** Only on the executor. */
  private Imprint imprint;

  /**
   * Whether the managed ledger knows this cursor. Before, it takes word of its mark-delete for the
   * end of a cursor that was removed, and trims every data ledger that none of those it knows
   * needs. Only on the executor.
   */
  private boolean isKnown;

  /**
   * The last write of the znode that Pulsar was let to do: the next one waits. Under this cursor's
   * monitor.
   */
  private CompletableFuture<Void> znodeWrites = CompletableFuture.completedFuture(null);

  KeptManagedCursor(BookKeeper bookKeeper, KeptLedger ledger, String name) {
    super(bookKeeper, ledger, name);
    topic = ledger;
    executor = ledger.getExecutor();
    takesWords = ledger.getConfig().isUnackedRangesOpenCacheSetEnabled();
    room = ledger.keeping().waitingAcks().share(this::lookAgain);
    super.setThrottleMarkDelete(0);
  }

  // ---- to and from the keeper's words

  private static io.cursorkeeper.client.Position words(Position position) {
    return new io.cursorkeeper.client.Position(
        Math.max(0, position.getLedgerId()), Math.max(-1, position.getEntryId()));
  }

  /** The same mark-delete, as an entry of the topic: a client may give any position. */
  private io.cursorkeeper.client.Position told(Position markDelete) {
    return words(KeptEntries.markDelete(topic, markDelete));
  }

  private static ManagedLedgerException failure(Throwable why) {
    Throwable cause =
        why instanceof CompletionException && why.getCause() != null ? why.getCause() : why;
    return cause instanceof ManagedLedgerException already
        ? already
        : new ManagedLedgerException(cause.getMessage(), cause);
  }

  private <T> T given(Supplier<T> work) {
    writeLock().lock();
    try {
      return work.get();
    } finally {
      writeLock().unlock();
    }
  }

  private void locked(Runnable work) {
    writeLock().lock();
    try {
      work.run();
    } finally {
      writeLock().unlock();
    }
  }

  // ---- loading

  /**
   * An existing cursor: Pulsar's recovery first, for its znode and string properties; then the
   * keeper's state takes its place.
   */
  @Override
  void recover(VoidCallback callback) {
    znode()
        .whenComplete(
            (before, unreadable) -> {
              if (unreadable != null) {
                callback.operationFailed(failure(unreadable));
                return;
              }
              recovering = true;
              super.recover(
                  new VoidCallback() {
                    @Override
                    public void operationComplete() {
                      recovering = false;
                      executor.execute(() -> finish(recovered(before), callback));
                    }

                    @Override
                    public void operationFailed(ManagedLedgerException exception) {
                      recovering = false;
                      callback.operationFailed(exception);
                    }
                  });
            });
  }

  /**
   * A new cursor: at the keeper first, so that a failure leaves nothing that a later try would
   * stumble over. Pulsar asks for it also where it did not load the one that there is: then the
   * znode says so, and the keeper hears nothing.
   */
  @Override
  void initialize(
      Position position,
      Map<String, Long> properties,
      Map<String, String> cursorProperties,
      VoidCallback callback) {
    if (recovering) {
      super.initialize(position, properties, cursorProperties, callback);
      return;
    }
    Imprint fresh = new Imprint(UUID.randomUUID().toString(), true, null);
    CompletableFuture<Void> ready =
        topic
            .deletion(getName())
            .thenCompose(nothing -> hasNoZnode())
            .thenCompose(nothing -> made(fresh, position))
            .thenComposeAsync(
                opened -> {
                  imprint = fresh;
                  return given(
                      () -> {
                        takeOver(opened, position);
                        toldMarkDelete = position;
                        if (properties == null || properties.isEmpty()) {
                          return CompletableFuture.completedFuture(null);
                        }
                        toldProperties = properties;
                        return keeper.ack(new Acks(generation).properties(properties));
                      });
                },
                executor)
            .thenComposeAsync(
                nothing -> znodeMade(position, properties, cursorProperties), executor)
            .thenComposeAsync(
                nothing -> {
                  STATE_UPDATER.compareAndSet(this, State.NoLedger, State.Open);
                  return noted(now -> imprint.with(now)).exceptionallyCompose(this::unmade);
                },
                executor);
    finish(ready, callback);
  }

  private CompletableFuture<Void> znodeMade(
      Position position, Map<String, Long> properties, Map<String, String> cursorProperties) {
    CompletableFuture<Void> written = new CompletableFuture<>();
    super.initialize(
        position,
        properties,
        cursorProperties,
        new VoidCallback() {
          @Override
          public void operationComplete() {
            written.complete(null);
          }

          @Override
          public void operationFailed(ManagedLedgerException exception) {
            if (!(exception
                instanceof
                ManagedLedgerException
                    .BadVersionException)) { // it is another's, or a repeated write of ours
              leaving = true;
              keeper.delete();
            }
            written.completeExceptionally(exception);
          }
        });
    return written;
  }

  /**
   * The keeper did not hear which znode it is: a later try would find a znode that it did not
   * expect, so it is removed. A newer load of the topic may have the subscription already: then it
   * stays. One of which nothing is known here has written the znode, see {@link #recovered}.
   */
  private CompletableFuture<Void> unmade(Throwable why) {
    Imprint.Znode made = imprint.znode();
    CompletableFuture<Void> left =
        made == null || topic.isOver() || isOfAnotherLoad(why)
            ? CompletableFuture.completedFuture(null)
            : KeptZnodes.removed(
                topic.keeping().metadata(), topic.getStore(), topic.getName(), getName(), made);
    return left.handle((nothing, failed) -> why).thenCompose(CompletableFuture::failedFuture);
  }

  private static boolean isOfAnotherLoad(Throwable why) {
    return failure(why).getCause() instanceof KeeperException said
        && switch (said.code()) {
          case FENCED, DEPOSED -> true;
          default -> false;
        };
  }

  /** Pulsar skips what was published while it made the cursor: so does the keeper. */
  @Override
  void initializeCursorPosition(Pair<Position, Long> lastPositionCounter) {
    locked(
        () -> {
          super.initializeCursorPosition(lastPositionCounter);
          neededFrom = markDeletePosition;
          Change skipped = new Change(generation, topic);
          skipped.markDelete(markDeletePosition);
          tell(skipped, null);
        });
  }

  private void finish(CompletableFuture<Void> ready, VoidCallback callback) {
    ready.whenCompleteAsync(
        (nothing, failed) -> {
          if (failed == null && !topic.isOver()) {
            isKnown = true;
            locked(() -> neededFrom = markDeletePosition);
            callback.operationComplete();
            return;
          }
          leave();
          topic.counters().failedLoads.increment();
          ManagedLedgerException why =
              failed == null
                  ? new ManagedLedgerException("the topic was closed meanwhile")
                  : failure(failed);
          LOG.warn(
              "[{}][{}] The cursor does not load: {}",
              topic.getName(),
              getName(),
              why.getMessage());
          callback.operationFailed(why);
        },
        executor);
  }

  private CompletableFuture<Opened> open(Imprint ifCreated, Position start) {
    OpenRequest request =
        OpenRequest.of(Names.topic(topic.getName()), Names.subscription(getName()))
            .withFencingToken(topic.token())
            .withStart(told(start))
            .withCursorProperties(ifCreated.properties());
    Opening opening = new Opening();
    topic.opened(this);
    return topic
        .link()
        .open(request, opening)
        .thenApply(opened -> new Opened(opened.cursor(), opened.state(), opening));
  }

  /**
   * Opens it newly made: what the keeper has of the name is left from a subscription that was
   * deleted. That it still has no znode is asked again, now that no older load can make one and
   * have acks kept here.
   */
  private CompletableFuture<Opened> made(Imprint fresh, Position start) {
    return open(fresh, start)
        .thenCompose(
            opened -> {
              if (Imprint.of(opened.state.cursorProperties()).created().equals(fresh.created())) {
                return CompletableFuture.completedFuture(opened);
              }
              CompletableFuture<Void> gone = hasNoZnode();
              gone.exceptionally(
                  failed -> {
                    opened.cursor.close();
                    return null;
                  });
              return gone.thenCompose(
                      nothing -> {
                        LOG.info(
                            "[{}][{}] The keeper has a cursor of that name from a subscription that"
                                + " is gone: deleted",
                            topic.getName(),
                            getName());
                        return opened.cursor.delete();
                      })
                  .thenCompose(nothing -> open(fresh, start));
            });
  }

  /**
   * What was made and never written since may be removed by an older load that does not know what
   * became of it: a write of the znode ends that, or fails.
   *
   * @param before the znode as it was before Pulsar's recovery, which writes it if the cursor
   *     ledger is lost
   */
  private CompletableFuture<Void> recovered(Imprint.Znode before) {
    Imprint fresh = new Imprint(UUID.randomUUID().toString(), true, null);
    return open(fresh, markDeletePosition)
        .thenComposeAsync(
            opened -> {
              checkIsLoading(opened.cursor);
              imprint = Imprint.of(opened.state.cursorProperties());
              if (!imprint.importing() && !imprint.belongsTo(before)) {
                stale(opened, before);
              }
              if (imprint.importing()) {
                return imported(opened, imprint.created().equals(fresh.created()));
              }
              locked(
                  () -> {
                    takeOver(opened, markDeletePosition);
                    remember(opened.state);
                  });
              return CompletableFuture.completedFuture(null);
            },
            executor)
        .thenCompose(nothing -> znode())
        .thenComposeAsync(
            now -> {
              checkIsLoading(keeper);
              STATE_UPDATER.compareAndSet(this, State.NoLedger, State.Open);
              boolean isAsMade = now.version() == 0;
              if (!isAsMade && !imprint.importing() && now.equals(imprint.znode())) {
                return CompletableFuture.completedFuture(null);
              }
              imprint = imprint.with(isAsMade ? now.next() : now);
              CompletableFuture<Void> noted = keeper.setProperties(imprint.properties());
              return isAsMade
                  ? noted.thenCompose(nothing -> super.removeCursorProperty(NO_PROPERTY))
                  : noted;
            },
            executor);
  }

  /**
   * The topic may have gone on with Pulsar's own cursors: from then on the keeper hears of no
   * version of the znode.
   */
  private void checkIsLoading(KeptCursor opened) {
    if (topic.isStock()) {
      opened.close();
      throw new CompletionException(
          new ManagedLedgerException("the topic went on with Pulsar's own cursors"));
    }
  }

  /**
   * The keeper's state is older than what Pulsar itself did: the operator has decided what counts.
   */
  private void stale(Opened opened, Imprint.Znode now) {
    String what =
        "Pulsar itself changed this cursor since the keeper held it (its znode has version "
            + now
            + ", the keeper's state is of "
            + imprint.znode()
            + ")";
    Settings.OnStale policy = topic.settings().onStale();
    topic.counters().stale.increment();
    LOG.warn("[{}][{}] {}. {}={}", topic.getName(), getName(), what, Settings.ON_STALE, policy);
    if (policy == Settings.OnStale.REFUSE) {
      opened.cursor.close();
      throw new CompletionException(
          new ManagedLedgerException(
              what
                  + ". What to do: set "
                  + Settings.ON_STALE
                  + "=import to take Pulsar's state, or keeper to take the keeper's"));
    }
    if (policy == Settings.OnStale.IMPORT) {
      imprint = imprint.whileImporting();
    }
  }

  /** From here on this cursor is the keeper's. Under the write lock. */
  private void takeOver(Opened opened, Position from) {
    keeper = opened.cursor;
    generation = opened.state.generation();
    toldMarkDelete = null;
    toldProperties = opened.state.markDeleteProperties();
    toldLedgers.clear();
    topic.counters().opens.increment();
    opened.state.layout().forEach(each -> toldLedgers.put(each.ledger(), each));
    tellAllLedgers(from);
    opened.opening.use();
  }

  /**
   * The keeper takes over what Pulsar recovered, exactly. Until the imprint says that it is whole,
   * a crash begins it again, from Pulsar's state, which nobody changes meanwhile.
   */
  private CompletableFuture<Void> imported(Opened opened, boolean created) {
    topic.counters().imports.increment();
    LOG.info(
        "[{}][{}] Taking Pulsar's state over to the keeper, mark-delete {}",
        topic.getName(),
        getName(),
        markDeletePosition);
    locked(() -> takeOver(opened, markDeletePosition));
    CompletableFuture<Integer> emptied =
        created
            ? CompletableFuture.completedFuture(generation)
            : keeper
                .setProperties(imprint.properties())
                .thenCompose(nothing -> keeper.reset(told(markDeletePosition)));
    return emptied.thenComposeAsync(
        now ->
            given(
                () -> {
                  if (!created) {
                    isReset(now, markDeletePosition);
                    tellAllLedgers(markDeletePosition);
                  }
                  Change all = new Change(generation, topic);
                  all.markDelete(markDeletePosition);
                  individualDeletedMessages.forEachRawRange(
                      (lowerLedger, lower, ledgerId, upper) -> {
                        Position after = PositionFactory.create(lowerLedger, lower);
                        KeptEntries.between(
                            topic, after, PositionFactory.create(ledgerId, upper), all.acks::range);
                        return true;
                      });
                  addBatches(all);
                  return tell(all, null);
                }),
        executor);
  }

  private void addBatches(Change to) {
    if (batchDeletedIndexes != null) {
      batchDeletedIndexes.forEach(
          (position, left) -> {
            if (position.compareTo(markDeletePosition) > 0
                && !left.isEmpty()
                && KeptEntries.exists(topic, position)) {
              to.batch(position, left.toLongArray());
            }
          });
    }
  }

  /** Puts the keeper's state in the place of what Pulsar recovered. Under the write lock. */
  private void remember(CursorState state) {
    Position last = topic.getLastPosition();
    Position markDelete =
        PositionFactory.create(state.markDelete().ledger(), state.markDelete().entry());
    if (markDelete.getEntryId() == -1 && !topic.ledgerExists(markDelete.getLedgerId())) {
      Long next = topic.getNextValidLedger(markDelete.getLedgerId());
      markDelete = next == null ? markDelete : PositionFactory.create(next, -1);
    }
    if (markDelete.compareTo(last) > 0) {
      markDelete = last;
    } else if (markDelete.getEntryId() >= 0) {
      markDelete = KeptEntries.markDelete(topic, markDelete);
    }
    individualDeletedMessages.clear();
    state
        .acked()
        .forEach(
            (ledgerId, acked) -> {
              if (!topic.ledgerExists(ledgerId)) {
                return;
              }
              if (takesWords && acked.last() < WORDS_ENTRIES_MAX) {
                individualDeletedMessages.build(Map.of(ledgerId, acked.words()));
              } else {
                acked.forEachRange(
                    (first, to) ->
                        individualDeletedMessages.addOpenClosed(ledgerId, first - 1, ledgerId, to));
              }
            });
    individualDeletedMessages.removeAtMost(markDelete.getLedgerId(), markDelete.getEntryId());
    if (batchDeletedIndexes != null) {
      batchDeletedIndexes.clear();
      for (var each : state.partials()) {
        Position position = PositionFactory.create(each.ledger(), each.entry());
        if (position.compareTo(markDelete) > 0 && topic.ledgerExists(each.ledger())) {
          batchDeletedIndexes.put(position, BitSet.valueOf(each.ackSet()));
        }
      }
    }
    markDeletePosition = markDelete;
    persistentMarkDeletePosition = markDelete;
    inProgressMarkDeletePersistPosition = null;
    readPosition = topic.getNextValidPosition(markDelete);
    topic.onCursorReadPositionUpdated(this, readPosition);
    lastMarkDeleteEntry = new MarkDeleteEntry(markDelete, state.markDeleteProperties(), null, null);
    long added = ManagedLedgerImpl.ENTRIES_ADDED_COUNTER_UPDATER.get(topic);
    messagesConsumedCounter =
        markDelete.compareTo(last) == 0
            ? added
            : added - getNumberOfEntries(Range.openClosed(markDelete, last));
  }

  // ---- acks

  @Override
  public void asyncDelete(Iterable<Position> positions, DeleteCallback callback, Object ctx) {
    List<Position> given = new ArrayList<>();
    positions.forEach(given::add);
    Outcome outcome = new Outcome();
    Answer answer =
        failure -> {
          if (failure == null) {
            callback.deleteComplete(ctx);
          } else {
            callback.deleteFailed(failure, ctx);
          }
        };
    if (isOutOfMemory()) {
      receiptWaitsFor(
          refuse(answer, "it is not taken: unconfirmed acks fill the memory that they may have"));
      return;
    }
    writeLock().lock();
    try {
      change = new Change(generation, topic);
      super.asyncDelete(given, outcome, null);
      if (outcome.failure == null) {
        given.forEach(this::noteAck);
        receiptWaitsFor(tell(change, answer));
      } else if (!isClosed()) {
        // Pulsar took those before the one that it refused: the keeper holds what the memory holds
        given.stream().filter(this::isTaken).forEach(this::noteAck);
        tell(change, null);
      }
    } finally {
      change = null;
      writeLock().unlock();
    }
    receiptFails(outcome);
    outcome.tellIfFailed(answer);
  }

  private void noteAck(Position position) {
    long[] left = AckSetStateUtil.getAckSetArrayOrNull(position);
    if (!change.exists(position)) {
      return;
    }
    if (left == null || left.length == 0) {
      change.entry(position);
    } else if (batchDeletedIndexes != null) {
      change.batch(position, left);
    }
  }

  private boolean isTaken(Position position) {
    if (isMessageDeleted(position)) {
      return true;
    }
    long[] left = AckSetStateUtil.getAckSetArrayOrNull(position);
    BitSet now = batchDeletedIndexes == null ? null : batchDeletedIndexes.get(position);
    if (left == null || now == null) {
      return false;
    }
    BitSet beyond = copy(now);
    beyond.andNot(BitSet.valueOf(left));
    return beyond.isEmpty();
  }

  @Override
  public void asyncMarkDelete(
      Position position, Map<String, Long> properties, MarkDeleteCallback callback, Object ctx) {
    Outcome outcome = new Outcome();
    Answer answer = failure -> tellMarkDelete(callback, ctx, failure);
    Position plain = PositionFactory.create(position.getLedgerId(), position.getEntryId());
    long[] left = AckSetStateUtil.getAckSetArrayOrNull(position);
    boolean partial = left != null && !BitSet.valueOf(left).isEmpty();
    if (isOutOfMemory()) {
      receiptWaitsFor(
          refuse(answer, "it is not taken: unconfirmed acks fill the memory that they may have"));
      return;
    }
    boolean isBehind =
        false; // Pulsar refuses what is acked already; before 5.0 the client does not hear of it
    writeLock().lock();
    try {
      change = new Change(generation, topic);
      BitSet before = batchDeletedIndexes == null ? null : copy(batchDeletedIndexes.get(plain));
      super.asyncMarkDelete(partial ? position : plain, properties, outcome, null);
      if (partial && isRefusedAtLedgerStart(plain, outcome)) {
        changed(markDeletePosition, properties, outcome, null);
      }
      if (outcome.failure == null) {
        if (partial) {
          noteAck(position);
          join(plain, before, BitSet.valueOf(left));
        }
        receiptWaitsFor(tell(change, answer));
      } else {
        if (partial) {
          restore(plain, before);
        }
        isBehind = !isClosed() && plain.compareTo(markDeletePosition) <= 0;
        if (isBehind) { // which may be not durable, and never become so: the keeper says
          Change again = new Change(generation, topic);
          again.markDelete(markDeletePosition);
          receiptWaitsFor(tell(again, null));
        }
      }
    } finally {
      change = null;
      writeLock().unlock();
    }
    if (!isBehind) {
      receiptFails(outcome);
    }
    outcome.tellIfFailed(answer);
  }

  /**
   * Whether Pulsar refused a cumulative ack of a part of a ledger's first batch because everything
   * before it is acked: mark-delete then stands in front of that ledger's first entry, and the last
   * entry of the ledger before, which Pulsar would mark-delete, is lower.
   */
  private boolean isRefusedAtLedgerStart(Position batch, Outcome outcome) {
    return outcome.failure != null
        && outcome.failure.getCause() instanceof IllegalArgumentException
        && batch.compareTo(markDeletePosition) > 0
        && batch.equals(topic.getNextValidPosition(markDeletePosition));
  }

  /** Where Pulsar does not wait for the answer before it gives the client its receipt. */
  private void receiptWaitsFor(CompletableFuture<Void> durable) {
    if (topic.settings().receipts() == Settings.Receipts.DURABLE) {
      CommandScope.waitsFor(durable, this::hurry);
    }
  }

  /** A client waits for what this cursor has just told the keeper. */
  private void hurry() {
    locked(
        () -> {
          if (waiting != null) {
            waiting.receiptWaits();
          }
        });
    keeper.hurry();
  }

  private void receiptFails(Outcome outcome) {
    if (outcome.failure != null) {
      receiptWaitsFor(CompletableFuture.failedFuture(outcome.failure));
    }
  }

  static void tellMarkDelete(
      MarkDeleteCallback callback, Object ctx, ManagedLedgerException failure) {
    if (failure == null) {
      callback.markDeleteComplete(ctx);
    } else {
      callback.markDeleteFailed(failure, ctx);
    }
  }

  private static BitSet copy(BitSet of) {
    return of == null ? null : (BitSet) of.clone();
  }

  /**
   * Of two acks of parts of a batch Pulsar keeps one, the further; an ack stays, so what both leave
   * is left.
   */
  private void join(Position position, BitSet before, BitSet left) {
    BitSet now = batchDeletedIndexes == null ? null : batchDeletedIndexes.get(position);
    if (now == null) {
      return;
    }
    now.and(left);
    if (before != null) {
      now.and(before);
    }
    if (now.isEmpty()) {
      super.asyncDelete(List.of(position), new Outcome(), null);
    }
  }

  /** Pulsar keeps the part of a batch though it refused the ack. */
  private void restore(Position position, BitSet before) {
    if (batchDeletedIndexes == null) {
      return;
    }
    if (before == null) {
      batchDeletedIndexes.remove(position);
    } else {
      batchDeletedIndexes.put(position, before);
    }
  }

  /** Takes what Pulsar says of a change at once, and holds it for the caller. */
  private static final class Outcome implements DeleteCallback, MarkDeleteCallback {
    private ManagedLedgerException failure;

    @Override
    public void deleteComplete(Object ctx) {}

    @Override
    public void deleteFailed(ManagedLedgerException exception, Object ctx) {
      failure = exception;
    }

    @Override
    public void markDeleteComplete(Object ctx) {
      failure = null;
    }

    @Override
    public void markDeleteFailed(ManagedLedgerException exception, Object ctx) {
      failure = exception;
    }

    void tellIfFailed(Answer answer) {
      if (failure != null) {
        answer.tell(failure);
      }
    }
  }

  /** Within a change it is enough to note it. */
  @Override
  void changed(
      Position position, Map<String, Long> properties, MarkDeleteCallback callback, Object ctx) {
    topic.getMbean().addMarkDeleteOp();
    change.markDelete(position);
    LAST_MARK_DELETE_ENTRY_UPDATER.updateAndGet(
        this,
        last ->
            last != null && last.newPosition.compareTo(position) > 0
                ? last
                : new MarkDeleteEntry(
                    position, properties != null ? properties : getProperties(), null, null));
    if (batchDeletedIndexes != null) {
      batchDeletedIndexes.headMap(position, true).clear();
    }
    callback.markDeleteComplete(ctx);
  }

  /**
   * Hands a change to the link. Under the write lock.
   *
   * @param answer null: nobody waits
   */
  private CompletableFuture<Void> tell(Change of, Answer answer) {
    Acks acks = of.acks;
    if (of.markDelete != null && (acks.isEmpty() || !of.markDelete.equals(toldMarkDelete))) {
      acks.markDelete(told(of.markDelete));
      toldMarkDelete = of.markDelete;
    }
    Map<String, Long> properties = getProperties();
    if (properties != toldProperties && !properties.equals(toldProperties)) {
      acks.properties(properties);
      toldProperties = properties;
    }
    if (acks.isEmpty()) {
      if (answer != null) {
        executor.execute(() -> answer.tell(null));
      }
      return CompletableFuture.completedFuture(null);
    }
    tellNewLedgers(of.highestLedger);
    boolean isInMemory = topic.settings().receipts() == Settings.Receipts.MEMORY;
    boolean isPatient = isInMemory || CommandScope.isPatient();
    boolean isJoined = isInMemory || (isPatient && room.isHalfFree());
    CompletableFuture<Void> durable = keeper.ack(isJoined ? acks.patient() : acks);
    if (waiting == null || waiting.durable != durable) {
      Waiting next = new Waiting(durable, generation);
      waiting = next;
      room.groupBegins();
      durable.whenComplete((nothing, failed) -> executor.execute(() -> answered(next, failed)));
    }
    if (!isPatient) {
      waiting.receiptWaits();
    }
    if (of.markDelete != null) {
      waiting.markDelete = of.markDelete;
    }
    if (answer != null) {
      if (isInMemory) {
        executor.execute(() -> answer.tell(null));
      } else if (room.take()) {
        waiting.answers.add(answer);
      } else {
        return refuse(
            answer, "it is taken, but too many acks wait for the keeper to let this one wait, too");
      }
    }
    return durable;
  }

  private CompletableFuture<Void> refuse(Answer answer, String why) {
    topic.counters().acksWithoutRoom.increment();
    ManagedLedgerException failure = new ManagedLedgerException(why);
    executor.execute(() -> answer.tell(failure));
    return CompletableFuture.failedFuture(failure);
  }

  /**
   * Whether unconfirmed acks take so much memory that not even their content can be taken: the
   * pause came too late, or not at all.
   */
  private boolean isOutOfMemory() {
    return !keeper.persistable()
        && topic.link().status().pendingBytes() > Keeping.MEMORY_BYTES_REFUSED;
  }

  private void answered(Waiting group, Throwable failed) {
    Position durable = null;
    List<Answer> answers;
    long receiptSinceNs;
    writeLock().lock();
    try {
      room.groupEnds(group.answers.size());
      receiptSinceNs = group.receiptSinceNs;
      if (waiting == group) {
        waiting = null;
      }
      answers = group.answers;
      if (failed == null && group.generation == generation && group.markDelete != null) {
        persistentMarkDeletePosition = group.markDelete;
        if (isKnown && !isSeeking) {
          durable = group.markDelete;
          neededFrom = durable;
        }
      } else if (failed != null) {
        toldMarkDelete = null; // it may not be kept: the next change tells it again
      }
    } finally {
      writeLock().unlock();
    }
    mbean.persistToLedger(failed == null);
    if (failed == null && receiptSinceNs != 0) {
      long waitedNs = System.nanoTime() - receiptSinceNs;
      topic.counters().receipts.record(waitedNs);
      topic.keeping().meters().receipt(waitedNs);
    }
    if (durable != null) {
      Position position = durable;
      alone(() -> topic.onCursorMarkDeletePositionUpdated(this, position));
    }
    ManagedLedgerException failure = failed == null ? null : failure(failed);
    answers.forEach(each -> alone(() -> each.tell(failure)));
  }

  /** What the broker does with one answer: if it fails, others are told all the same. */
  private void alone(Runnable work) {
    try {
      work.run();
    } catch (RuntimeException e) {
      LOG.error(
          "[{}][{}] The broker failed at an answer of the keeper", topic.getName(), getName(), e);
    }
  }

  // ---- data ledgers

  /** Before acks of a data ledger that the keeper does not know. Under the write lock. */
  private void tellNewLedgers(long highest) {
    if (toldLedgers.isEmpty()) {
      tellAllLedgers(markDeletePosition);
    } else if (highest > toldLedgers.lastKey()) {
      tellLedgers(List.of(toldLedgers.lastEntry().getValue()), toldLedgers.lastKey());
    }
  }

  private void tellAllLedgers(Position from) {
    tellLedgers(List.copyOf(toldLedgers.values()), told(from).ledger());
  }

  private void tellLedgers(List<DataLedger> known, long from) {
    NavigableMap<Long, Long> entries = topic.dataLedgers();
    long open = entries.isEmpty() || entries.lastEntry().getValue() > 0 ? -1 : entries.lastKey();
    List<DataLedger> run = Layouts.run(known, entries, open, from);
    if (!run.isEmpty() && !run.equals(known)) {
      run.forEach(each -> toldLedgers.put(each.ledger(), each));
      keeper.layout(run);
    }
  }

  // ---- reset

  /**
   * Seek: nothing of the memory changes before the keeper has it durable. But data ledgers that it
   * needs stay from now on, whatever becomes of it: if it fails, the cursor has ended, and its
   * outcome may not be known.
   */
  @Override
  void reset(Position target, Runnable memory, Consumer<ManagedLedgerException> caller) {
    Answer answer = caller::accept;
    CompletableFuture<Integer> done;
    writeLock().lock();
    try {
      if (getName().equals(COMPACTION) || holdsNothingAbove(target)) {
        memory.run();
        tell(asItIs(), answer);
        return;
      }
      tellNewLedgers(target.getLedgerId());
      isSeeking = true;
      if (target.compareTo(neededFrom) < 0) {
        neededFrom = target;
        topic.getCursors().cursorUpdated(this, target);
      }
      done = keeper.reset(words(target));
    } finally {
      writeLock().unlock();
    }
    done.whenComplete(
        (now, failed) ->
            executor.execute(
                () -> {
                  if (failed != null) {
                    answer.tell(failure(failed));
                    return;
                  }
                  locked(
                      () -> {
                        memory.run();
                        persistentMarkDeletePosition = target;
                        isSeeking = false;
                        isReset(now, target);
                        tellAllLedgers(target);
                        tell(asItIs(), answer);
                      });
                }));
  }

  /** Whether a reset to this position would change nothing that the keeper holds. */
  private boolean holdsNothingAbove(Position target) {
    return target.equals(markDeletePosition)
        && individualDeletedMessages.isEmpty()
        && (batchDeletedIndexes == null || batchDeletedIndexes.isEmpty())
        && getProperties().isEmpty();
  }

  /** Mark-delete, and the part of a batch that a seek into one leaves. */
  private Change asItIs() {
    Change all = new Change(generation, topic);
    all.markDelete(markDeletePosition);
    addBatches(all);
    return all;
  }

  /** The keeper forgot all but the target. Under the write lock. */
  private void isReset(int now, Position target) {
    generation = now;
    toldMarkDelete = target;
    toldProperties = Map.of();
  }

  // ---- the znode

  /** The version of the cursor's znode now. */
  private CompletableFuture<Imprint.Znode> znode() {
    return KeptZnodes.version(topic.getStore(), topic.getName(), getName());
  }

  private CompletableFuture<Void> hasNoZnode() {
    return KeptZnodes.absent(
        topic.keeping().metadata(), topic.getStore(), topic.getName(), getName());
  }

  /**
   * Notes at the keeper which version of the znode the state belongs to, then writes the znode. One
   * at a time. Who asks for it waits no longer than a close would; a write whose turn comes later,
   * or of which the keeper does not hear in time, is left out.
   *
   * @param as what is noted, of the znode as it is; called on the executor
   */
  private CompletableFuture<Void> writingZnode(
      Function<Imprint.Znode, Imprint> as, Supplier<CompletableFuture<Void>> write) {
    long limitMs = topic.settings().closeTimeout().toMillis();
    CompletableFuture<Void> asked = new CompletableFuture<>();
    CompletableFuture<Void> inTime =
        asked
            .orTimeout(limitMs, TimeUnit.MILLISECONDS)
            .exceptionallyComposeAsync(
                failed ->
                    CompletableFuture.failedFuture(
                        failure(failed).getCause() instanceof TimeoutException
                            ? late(limitMs)
                            : failed),
                executor);
    synchronized (this) {
      znodeWrites =
          znodeWrites
              .exceptionally(failed -> null)
              .thenCompose(
                  nothing ->
                      asked.isDone() ? CompletableFuture.failedFuture(late(limitMs)) : znode())
              .thenComposeAsync(
                  now -> {
                    imprint = as.apply(now);
                    return keeper
                        .setProperties(imprint.properties())
                        .copy()
                        .orTimeout(limitMs, TimeUnit.MILLISECONDS);
                  },
                  executor)
              .thenCompose(
                  nothing ->
                      asked.isDone() ? CompletableFuture.failedFuture(late(limitMs)) : write.get());
      znodeWrites.whenComplete(
          (nothing, failed) -> {
            if (failed == null) {
              asked.complete(null);
            } else {
              asked.completeExceptionally(failed);
            }
          });
    }
    return inTime;
  }

  private static ManagedLedgerException late(long limitMs) {
    return new ManagedLedgerException(
        "The keeper, or the cursor's znode, did not answer within "
            + limitMs
            + " ms ("
            + Settings.CLOSE_TIMEOUT_MS
            + "). What to do: look at the daemon, and try again");
  }

  private CompletableFuture<Void> noted(Function<Imprint.Znode, Imprint> as) {
    return writingZnode(as, () -> CompletableFuture.completedFuture(null));
  }

  /**
   * Notes what Pulsar's write of a clean stop will make of the znode. From then on nothing of that
   * changes.
   */
  CompletableFuture<Void> noteClose() {
    leaving = true;
    return noted(now -> imprint.closed(now.closed(lastActive()), given(() -> generation)));
  }

  private synchronized long lastActive() {
    return getLastActive();
  }

  /** What a clean stop writes is what the keeper heard of. */
  @Override
  public void updateLastActive() {
    synchronized (this) {
      if (!leaving) {
        super.updateLastActive();
      }
    }
  }

  @Override
  public CompletableFuture<Void> setCursorProperties(Map<String, String> properties) {
    return writingZnode(
        now -> imprint.with(now.next()), () -> super.setCursorProperties(properties));
  }

  @Override
  public CompletableFuture<Void> putCursorProperty(String key, String value) {
    return writingZnode(now -> imprint.with(now.next()), () -> super.putCursorProperty(key, value));
  }

  @Override
  public CompletableFuture<Void> removeCursorProperty(String key) {
    return writingZnode(now -> imprint.with(now.next()), () -> super.removeCursorProperty(key));
  }

  // ---- the end

  /**
   * Everything durable at the keeper, then Pulsar's znode, for the way back. Without the keeper's
   * word the znode stays as it is: another broker may have the cursor already, and a version that
   * the keeper did not hear of would be taken for Pulsar's own work.
   */
  @Override
  void persistPositionWhenClosing(
      Position position, Map<String, Long> properties, CloseCallback callback, Object ctx) {
    noteClose()
        .thenCompose(nothing -> keeper.close())
        .orTimeout(topic.settings().closeTimeout().toMillis(), TimeUnit.MILLISECONDS)
        .whenCompleteAsync(
            (nothing, failed) -> {
              if (failed == null) {
                topic.ended(this);
                locked(
                    () -> { // acks may have come since the given position was read: then the ranges
                      // are of later
                      MarkDeleteEntry last = lastMarkDeleteEntry;
                      super.persistPositionWhenClosing(
                          last.newPosition, last.properties, callback, ctx);
                    });
                return;
              }
              leave();
              topic.counters().closesWithoutWord.increment();
              LOG.warn(
                  "[{}][{}] Closed without the keeper's word, acks that had no receipt may come"
                      + " back: {}",
                  topic.getName(),
                  getName(),
                  failure(failed).toString());
              callback.closeComplete(ctx);
            },
            executor);
  }

  /** The subscription is deleted, and its znode gone. */
  @Override
  void asyncDeleteCursorLedger() {
    leaving = true;
    CompletableFuture<Void> deleted =
        keeper
            .delete()
            .exceptionallyCompose(
                failed ->
                    topic
                        .link()
                        .delete(
                            Names.topic(topic.getName()),
                            Names.subscription(getName()),
                            topic.token()));
    topic.deleting(getName(), deleted);
    deleted.whenComplete(
        (nothing, failed) -> {
          topic.ended(this);
          if (failed != null
              && !(failed instanceof KeeperException e
                  && e.code() == KeeperException.Code.NOT_FOUND)) {
            LOG.warn(
                "[{}][{}] The keeper did not delete the cursor, it is left behind: {}",
                topic.getName(),
                getName(),
                failure(failed).getMessage());
          }
        });
    if (cursorLedger != null) {
      super.asyncDeleteCursorLedger();
    } else {
      closeWaitingCursor();
      state = State.Deleted;
    }
  }

  /** Gives it back without waiting: this load of the topic is over. */
  void leave() {
    leaving = true;
    topic.ended(this);
    KeptCursor known = keeper;
    if (known != null) {
      known.close();
    }
  }

  /**
   * The keeper has ended it. A newer load of the topic has it, or it must be opened anew, which a
   * new load does with a newer token.
   */
  private void lost(KeeperException why) {
    topic.ended(this);
    if (why.code() == KeeperException.Code.FENCED) {
      topic.counters().fenced.increment();
    } else if (why.code() == KeeperException.Code.DEPOSED) {
      topic.counters().deposed.increment();
    }
    if (!leaving && why.code() != KeeperException.Code.LINK_CLOSED) {
      topic.loadIsOver(why.getMessage());
    }
  }

  // ---- what Pulsar does by the clock

  /**
   * False while the keeper cannot promise to keep what is acked next: dispatch pauses, if the
   * topic's policy says so.
   */
  @Override
  public boolean isCursorDataFullyPersistable() {
    KeptCursor known = keeper;
    return known == null || (known.persistable() && !room.isFull());
  }

  WaitingAcks.Share waiting() {
    return room;
  }

  long pendingBytes() {
    KeptCursor known = keeper;
    return known == null ? 0 : known.pendingBytes();
  }

  /** Dispatch may have to pause, or to go on: Pulsar looks only when it answers an ack. */
  void lookAgain() {
    executor.execute(
        () -> {
          if (!isHolding()) {
            replays.goOn(super::asyncReplayEntries);
          }
          Topics.lookAgain(reader);
        });
  }

  /** Of both this cursor hears when they change: so what is held back is looked for again. */
  private boolean isHolding() {
    return room.isFull() || topic.link().status().memoryFull();
  }

  /**
   * Pulsar's own switch pauses reads, and lets replays through: delayed messages that are due, and
   * those of a consumer that is gone. Their acks would wait, too, so they are held back until there
   * is room. What the keeper itself pauses for, more holes than it may keep, is healed by replays:
   * they go on.
   */
  @Override
  public Set<? extends Position> asyncReplayEntries(
      Set<? extends Position> positions, ReadEntriesCallback callback, Object ctx, boolean sorted) {
    if (positions.isEmpty() || !isHolding() || !Topics.pauses(callback)) {
      return super.asyncReplayEntries(positions, callback, ctx, sorted);
    }
    replays.hold(positions, callback, ctx, sorted);
    if (!isHolding()) {
      lookAgain(); // room came meanwhile
    }
    return Set.of();
  }

  /** Every ack is told at once: there is nothing to limit. */
  @Override
  public void setThrottleMarkDelete(double throttleMarkDelete) {}

  @Override
  public double getThrottleMarkDelete() {
    return 0;
  }

  @Override
  public boolean periodicRollover() {
    return false;
  }

  @Override
  void flush() {}

  @Override
  public void asyncReadEntriesWithSkipOrWait(
      int maxEntries,
      long maxSizeBytes,
      ReadEntriesCallback callback,
      Object ctx,
      Position maxPosition,
      Predicate<Position> skip) {
    reader = callback;
    topic.readBy(callback);
    super.asyncReadEntriesWithSkipOrWait(
        maxEntries, maxSizeBytes, callback, ctx, maxPosition, skip);
  }
}
