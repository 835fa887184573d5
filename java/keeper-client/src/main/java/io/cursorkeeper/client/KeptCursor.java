package io.cursorkeeper.client;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * One open cursor of a link. For any number of threads; no method waits, none throws because of the
 * stream.
 *
 * <p>It outlives broken streams and restarts of the daemon: it is opened again by itself, and what
 * has no confirmation is sent again. Acks that wait are joined, so what they take in memory is
 * bounded by the distinct state that they describe, not by the number of calls: 8 KiB for every
 * 65,536 entries of a data ledger in which one is acked, and a batch's words for each partly acked
 * one.
 *
 * <p>Futures fail with a {@link KeeperException}, and complete on the executor of the settings, in
 * order. Those of acks and other changes that wait together are one object: to complete or to
 * cancel one does nothing.
 */
public interface KeptCursor {

  String topic();

  String subscription();

  /** The fencing token that it was opened with. */
  long fencingToken();

  /** As of the newest opening. */
  long epoch();

  /** As the keeper said last. A reset's is told by its future first. */
  int generation();

  /**
   * Hands acks over. Completes when they are durable, or decided because their generation is over;
   * fails if the cursor ends before: then whether they were kept is not known, and a later opening
   * tells. Fails with POSITION_OUT_OF_RANGE, BATCH_CONTRADICTS or TOO_LARGE if the keeper refuses
   * them, or others that were sent with them as one message: then the cursor goes on.
   * IllegalArgumentException if their generation is above {@link #generation}.
   */
  CompletableFuture<Void> ack(Acks acks);

  /**
   * Somebody waits for the patient acks that were handed over so far: they are sent as soon as
   * others.
   */
  void hurry();

  /**
   * Replaces the cursor's own properties; completes when they are durable. Of several that wait the
   * last counts.
   */
  CompletableFuture<Void> setProperties(Map<String, String> properties);

  /**
   * Tells a consecutive run of the topic's data ledgers, ascending, none left out; completes when
   * it is durable. One that begins at a ledger of the run before continues it.
   */
  CompletableFuture<Void> layout(List<DataLedger> run);

  /**
   * Seek: forgets all acks; mark-delete becomes the target. Completes with the new generation when
   * that is durable. Acks of the old generation that wait, or are handed over from now on, are
   * dropped and complete behind it. Of several resets that wait the last counts, and all get its
   * generation. It holds over broken streams: it is sent until it is confirmed.
   */
  CompletableFuture<Integer> reset(Position target);

  /**
   * Sends what waits, then gives the cursor back, with everything durable. Fails with TIMED_OUT
   * after the settings' {@code answerTimeout}; the cursor has ended here in any case.
   */
  CompletableFuture<Void> close();

  /**
   * Deletes the cursor; acks that wait fail with DELETED. As {@link #close} it fails with
   * TIMED_OUT, and ends the cursor in any case.
   */
  CompletableFuture<Void> delete();

  /** False while the keeper asks to pause, while the link's memory is full, and after the end. */
  boolean persistable();

  /** What waits for its confirmation, in bytes of memory; about. */
  long pendingBytes();

  /**
   * So many acks the daemon was allowed to leave out of what it keeps, as of the newest
   * confirmation.
   */
  long truncatedAcks();
}
