package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.Acks;
import io.cursorkeeper.client.CursorListener;
import io.cursorkeeper.client.CursorState;
import io.cursorkeeper.client.KeeperException;
import io.cursorkeeper.client.KeptCursor;
import io.cursorkeeper.client.OpenRequest;
import io.cursorkeeper.client.OpenedCursor;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Difference;
import io.cursorkeeper.pulsar.Imprint;
import io.cursorkeeper.pulsar.Names;
import io.cursorkeeper.pulsar.Picture;
import io.cursorkeeper.pulsar.Settings;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.apache.bookkeeper.mledger.Position;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the operator who looks before he leaps: the copy of one of Pulsar's cursors at the keeper.
 * It is made equal to what Pulsar holds, follows it, and is compared with it.
 *
 * <p>Invariants. The keeper's note says that it is a copy, before anything of it is changed: nobody
 * takes it for the truth. Acks of Pulsar only grow within an era, which a seek ends, so they may be
 * told in any order, after Pulsar took them; those of an era that is over are not told, and the
 * copy begins anew. The whole is told under Pulsar's read lock, from whose start on every change is
 * told, too. Locks: Pulsar's, then this monitor, then the link's. Nothing here waits, and what
 * waits for the keeper is bounded: beyond it the copy is given up, and begins anew later.
 */
final class ShadowedCopy {

  private static final Logger LOG = LoggerFactory.getLogger(ShadowedCopy.class);

  /** Acks that Pulsar has taken may be told a moment later: a difference is one that stays. */
  private static final int LOOKS = 3;

  private static final long LOOK_AGAIN_MS = 300;

  private enum Phase {
    /** Nothing is at the keeper, or nothing that follows. */
    AWAY,
    OPENING,
    /** The keeper forgets what it had. */
    EMPTYING,
    FOLLOWING,
    /** Of this load there will be no copy any more. */
    OVER
  }

  private final ShadowedManagedCursor cursor;
  private final ShadowedLedger topic;
  private final ShadowedRounds rounds;
  private final String keeperTopic;
  private final String keeperSubscription;
  private final KeptLayout layout;

  // Guarded by the monitor.
  private volatile Phase phase = Phase.AWAY;
  private volatile long era;
  private int attempt;
  private boolean again;
  private boolean toldWhy;
  private boolean isDeleted;
  private long notBeforeNs = System.nanoTime();
  private KeptCursor keeper;
  private int generation;
  private Position toldMarkDelete;
  private Map<String, Long> toldProperties;
  private CompletableFuture<Void> durable = CompletableFuture.completedFuture(null);

  /** Of the rounds' thread. */
  private long atRisk;

  ShadowedCopy(ShadowedManagedCursor cursor, ShadowedLedger topic) {
    this.cursor = cursor;
    this.topic = topic;
    rounds = topic.rounds();
    keeperTopic = named(topic.getName(), Names::topic);
    keeperSubscription = named(cursor.getName(), Names::subscription);
    layout = new KeptLayout(topic);
  }

  /** Not even an odd name fails the load. */
  private static String named(String name, UnaryOperator<String> as) {
    try {
      return as.apply(name);
    } catch (IllegalArgumentException odd) {
      return name;
    }
  }

  private Counters counters() {
    return rounds.counters();
  }

  // ---- what Pulsar did

  /** To be asked before Pulsar is let to change anything, and given to {@link #follow}. */
  long era() {
    return era;
  }

  /** The broker has the cursor. */
  void begin() {
    rounds.add(this);
  }

  /** Pulsar has changed it; these entries perhaps. */
  void follow(long since, List<Position> given) {
    if (phase != Phase.FOLLOWING) {
      return; // what begins to follow takes all of it
    }
    try {
      if (given.isEmpty()) {
        tell(since, given);
      } else {
        cursor.reading(() -> tell(since, given));
      }
    } catch (RuntimeException bug) {
      LOG.error(
          "[{}][{}] bug: the copy at the keeper does not follow; it begins anew",
          topic.getName(),
          cursor.getName(),
          bug);
      beginAnew();
    }
  }

  /** What the memory has of these entries; gives the highest ledger. */
  private long read(List<Position> given, Acks acks) {
    long highest = -1;
    for (Position each : given) {
      if (!KeptEntries.exists(topic, each)) {
        continue;
      }
      if (cursor.holds(each)) {
        acks.entry(each.getLedgerId(), each.getEntryId());
      } else {
        BitSet left = cursor.leftOf(each);
        if (left == null) {
          continue;
        }
        acks.batch(each.getLedgerId(), each.getEntryId(), 0, left.toLongArray());
      }
      highest = Math.max(highest, each.getLedgerId());
    }
    return highest;
  }

  private synchronized void tell(long since, List<Position> given) {
    if (phase != Phase.FOLLOWING) {
      return;
    }
    if (since != era) {
      beginAnew();
      return;
    }
    Acks acks = new Acks(generation);
    tell(acks, read(given, acks));
  }

  /** Under the monitor. */
  private void tell(Acks acks, long highest) {
    Position markDelete = cursor.markDelete();
    if (!markDelete.equals(toldMarkDelete)) {
      acks.markDelete(ShadowedManagedCursor.words(markDelete));
      toldMarkDelete = markDelete;
    }
    Map<String, Long> properties = cursor.getProperties();
    if (properties != toldProperties && !properties.equals(toldProperties)) {
      acks.properties(properties);
      toldProperties = properties;
    }
    if (acks.isEmpty()) {
      return;
    }
    layout.tellNew(keeper, Math.max(highest, markDelete.getLedgerId()), markDelete.getLedgerId());
    durable = keeper.ack(acks);
    if (rounds.isFull(keeper)) {
      counters().shadowsGivenUp.increment();
      LOG.warn(
          "[{}][{}] The keeper does not keep up: its copy of this cursor is given up, and begins"
              + " anew later",
          topic.getName(),
          cursor.getName());
      leave(Phase.AWAY);
      notBeforeNs = rounds.laterNs();
    }
  }

  // ---- making it equal

  /** Whether there is something to begin. */
  synchronized boolean isWaiting() {
    return phase == Phase.AWAY && System.nanoTime() - notBeforeNs >= 0;
  }

  boolean isFollowing() {
    return phase == Phase.FOLLOWING;
  }

  /**
   * Opens it at the keeper. Completes normally when it follows and all of it is durable, or when
   * that failed.
   */
  CompletableFuture<Void> open() {
    String created = UUID.randomUUID().toString();
    int mine;
    synchronized (this) {
      if (phase != Phase.AWAY) {
        return CompletableFuture.completedFuture(null);
      }
      phase = Phase.OPENING;
      mine = ++attempt;
    }
    OpenRequest request =
        OpenRequest.of(keeperTopic, keeperSubscription)
            .withFencingToken(topic.token())
            .withStart(ShadowedManagedCursor.words(cursor.markDelete()))
            .withCursorProperties(Imprint.ofCopy(created));
    return rounds
        .link()
        .open(request, new Ending(mine))
        .thenComposeAsync(opened -> opened(mine, opened, created), rounds.executor())
        .handle(
            (nothing, failed) -> {
              if (failed != null) {
                Throwable why = failed.getCause() == null ? failed : failed.getCause();
                ended(mine, why instanceof KeeperException said ? said : null, why);
              }
              return null;
            });
  }

  private CompletableFuture<Void> opened(int mine, OpenedCursor opened, String created) {
    CursorState state = opened.state();
    Imprint found = Imprint.of(state.cursorProperties());
    boolean isNew = found.created().equals(created);
    if (!found.importing() && !mayReplace(found, state)) {
      synchronized (this) {
        leave(Phase.OVER);
      }
      opened.cursor().close();
      rounds.remove(this);
      return CompletableFuture.completedFuture(null);
    }
    synchronized (this) {
      if (phase != Phase.OPENING || attempt != mine) {
        if (isDeleted) {
          opened.cursor().delete();
        } else {
          opened.cursor().close();
        }
        return CompletableFuture.completedFuture(null);
      }
      keeper = opened.cursor();
      layout.begin(state.layout());
      layout.tellAll(keeper, ShadowedManagedCursor.words(cursor.markDelete()).ledger());
      phase = Phase.EMPTYING;
    }
    return isNew
        ? replaced(mine, state.generation())
        : opened
            .cursor()
            .setProperties(Imprint.ofCopy(found.created()))
            .thenCompose(nothing -> emptied(mine));
  }

  /**
   * Whether what the keeper has as the truth may go: Pulsar has all of it, or the operator has said
   * so. Pulsar has it if both are equal, or if Pulsar began with what a clean stop wrote, and the
   * keeper's has changed since by nothing that Pulsar lacks. Else somebody went from keep to shadow
   * without a clean stop or an export, and nobody else has those acks, or that seek. Of partly
   * acked batches a clean stop leaves what Pulsar's recovery does not read: the broker delivers
   * them again already.
   */
  private boolean mayReplace(Imprint found, CursorState state) {
    Picture kept = Picture.of(state);
    Picture here = cursor.picture();
    long keptOnly = kept.beyond(here, topic.written());
    boolean isLeft =
        found.isLeftWith(
            cursor.znode().exceptionally(unreadable -> null).getNow(null), state.generation());
    long pulsarOnly = isLeft ? 0 : here.beyond(kept, topic.written());
    if (keptOnly + pulsarOnly == 0 || rounds.settings().onStale() == Settings.OnStale.IMPORT) {
      return true;
    }
    LOG.warn(
        "[{}][{}] Not copied to the keeper: what it has of the time when it kept this cursor is not"
            + " what Pulsar has by itself. {} acked entries are at the keeper only, {} in Pulsar"
            + " only. What to do: stop the broker, `cursorkeeper export-pulsar`, start it again; or"
            + " set {}=import to drop what the keeper has",
        topic.getName(),
        cursor.getName(),
        keptOnly,
        pulsarOnly,
        Settings.ON_STALE);
    counters().shadowsRefused.increment();
    return false;
  }

  /** Forgets all at the keeper, then tells all of Pulsar's. */
  private CompletableFuture<Void> emptied(int mine) {
    CompletableFuture<Integer> done;
    synchronized (this) {
      if (phase != Phase.EMPTYING || attempt != mine) {
        return CompletableFuture.completedFuture(null);
      }
      Position target = cursor.markDelete();
      layout.tellNew(keeper, target.getLedgerId(), target.getLedgerId());
      done = keeper.reset(ShadowedManagedCursor.words(target));
    }
    return done.thenComposeAsync(now -> replaced(mine, now), rounds.executor());
  }

  private CompletableFuture<Void> replaced(int mine, int now) {
    cursor.reading(
        () -> {
          synchronized (this) {
            if (phase != Phase.EMPTYING || attempt != mine) {
              return;
            }
            phase = Phase.FOLLOWING;
            counters().shadowsFollowing.increment();
            generation = now;
            toldMarkDelete = null;
            toldProperties = Map.of();
            toldWhy = false;
            layout.tellAll(keeper, ShadowedManagedCursor.words(cursor.markDelete()).ledger());
            Acks all = new Acks(now);
            Picture picture = cursor.picture();
            picture.acked().forEach((ledger, bits) -> ranges(all, ledger, bits));
            picture
                .left()
                .forEach(
                    (batch, left) ->
                        all.batch(batch.ledger(), batch.entry(), 0, left.toLongArray()));
            tell(all, picture.acked().isEmpty() ? -1 : picture.acked().lastKey());
          }
        });
    synchronized (this) {
      if (again && phase == Phase.FOLLOWING) {
        beginAnew();
      }
      return durable;
    }
  }

  private static void ranges(Acks to, long ledger, BitSet bits) {
    for (int first = bits.nextSetBit(0); first >= 0; ) {
      int end = bits.nextClearBit(first);
      to.range(ledger, first, end - 1);
      first = bits.nextSetBit(end);
    }
  }

  /** What the keeper has is not what Pulsar has: a seek, say. */
  synchronized void beginAnew() {
    era++;
    if (phase == Phase.EMPTYING || phase == Phase.OPENING) {
      again = true;
      return;
    }
    if (phase != Phase.FOLLOWING) {
      return;
    }
    again = false;
    phase = Phase.EMPTYING;
    counters().shadowsFollowing.decrement();
    int mine = attempt;
    emptied(mine).whenComplete((nothing, failed) -> {});
  }

  // ---- the end

  private final class Ending implements CursorListener {
    private final int mine;

    Ending(int mine) {
      this.mine = mine;
    }

    @Override
    public void refused(KeeperException why) {
      ended(why); // the copy lacks it
    }

    @Override
    public void ended(KeeperException why) {
      ShadowedCopy.this.ended(mine, why, why);
    }
  }

  /**
   * @param said null: a bug
   */
  private synchronized void ended(int mine, KeeperException said, Throwable why) {
    if (attempt != mine || phase == Phase.AWAY || phase == Phase.OVER) {
      return;
    }
    boolean isOver = said != null && said.code() == KeeperException.Code.FENCED;
    leave(isOver ? Phase.OVER : Phase.AWAY);
    notBeforeNs = rounds.laterNs();
    if (said == null || (!toldWhy && said.code() != KeeperException.Code.LINK_CLOSED)) {
      toldWhy = true;
      LOG.warn(
          "[{}][{}] There is no copy of this cursor at the keeper {}: {}",
          topic.getName(),
          cursor.getName(),
          isOver ? "any more, another load of the topic has it" : "now, it begins anew later",
          why.toString());
    }
  }

  /** Under the monitor. */
  private void leave(Phase next) {
    if (phase == Phase.FOLLOWING) {
      counters().shadowsFollowing.decrement();
    }
    phase = next;
    attempt++;
    again = false;
    if (keeper != null) {
      keeper.close();
      keeper = null;
    }
  }

  /** The cursor is closed. */
  void end() {
    synchronized (this) {
      leave(Phase.OVER);
    }
    rounds.remove(this);
  }

  /** The subscription is deleted. */
  void delete() {
    KeptCursor known;
    synchronized (this) {
      known = keeper;
      keeper = null;
      isDeleted = true;
      leave(Phase.OVER);
    }
    rounds.remove(this);
    CompletableFuture<Void> deleted =
        known == null
            ? rounds.link().delete(keeperTopic, keeperSubscription, topic.token())
            : known.delete();
    deleted.whenComplete(
        (nothing, failed) -> {
          if (failed != null
              && !(failed instanceof KeeperException said
                  && said.code() == KeeperException.Code.NOT_FOUND)) {
            LOG.warn(
                "[{}][{}] The keeper did not delete the copy of this cursor, it is left behind: {}",
                topic.getName(),
                cursor.getName(),
                failed.getMessage());
          }
        });
  }

  // ---- comparing, on the rounds' thread

  /** Completes normally. */
  CompletableFuture<Void> compare() {
    CompletableFuture<Void> told;
    long since;
    synchronized (this) {
      if (phase != Phase.FOLLOWING) {
        return CompletableFuture.completedFuture(null);
      }
      since = era;
      told = durable;
    }
    if (!rounds.link().status().up()) {
      counters().shadowsUnanswered.increment();
      return CompletableFuture.completedFuture(null);
    }
    return look(cursor.picture(), told, since, 1)
        .thenCompose(
            nothing ->
                LineShadow.persisted(cursor, topic)
                    .orTimeout(rounds.settings().closeTimeout().toMillis(), TimeUnit.MILLISECONDS))
        .thenAcceptAsync(this::risk, rounds.executor())
        .exceptionally(
            failed -> {
              counters().shadowsUnanswered.increment();
              LOG.debug(
                  "[{}][{}] The copy at the keeper could not be compared",
                  topic.getName(),
                  cursor.getName(),
                  failed);
              return null;
            });
  }

  private CompletableFuture<Void> look(
      Picture before, CompletableFuture<Void> told, long since, int looks) {
    return told.copy()
        .orTimeout(rounds.settings().closeTimeout().toMillis(), TimeUnit.MILLISECONDS)
        .thenCompose(nothing -> rounds.link().read(keeperTopic, keeperSubscription))
        .thenComposeAsync(
            state -> {
              if (phase != Phase.FOLLOWING || era != since) {
                return CompletableFuture.completedFuture(null);
              }
              Difference found =
                  Difference.between(before, Picture.of(state), cursor.picture(), topic.written());
              if (!found.isNone() && looks < LOOKS) {
                return rounds
                    .after(LOOK_AGAIN_MS)
                    .thenCompose(nothing -> look(before, told, since, looks + 1));
              }
              if (era == since && phase == Phase.FOLLOWING) {
                counters().shadowComparisons.increment();
                if (!found.isNone()) {
                  differs(found);
                }
              }
              return CompletableFuture.completedFuture(null);
            },
            rounds.executor());
  }

  private void differs(Difference found) {
    counters().shadowDifferences.increment();
    LOG.warn(
        "[{}][{}] The copy at the keeper differs from Pulsar's cursor: {}. It begins anew",
        topic.getName(),
        cursor.getName(),
        found);
    beginAnew();
  }

  /**
   * @param persisted what Pulsar would recover now; null: not known
   */
  private void risk(Picture persisted) {
    if (persisted != null) {
      risk(cursor.picture().beyond(persisted, topic.written()));
    }
  }

  private void risk(long entries) {
    counters().shadowEntriesAtRisk.add(entries - atRisk);
    atRisk = entries;
  }

  /** It counts no more. */
  void forget() {
    risk(0);
  }
}
