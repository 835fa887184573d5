package io.cursorkeeper.client;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * Acks to be handed over in one call, of any data ledgers of a topic. All of it joins: the order
 * means nothing, and to say something twice changes nothing. Not for several threads; may not be
 * changed once handed over.
 *
 * <p>They belong to a generation. After a reset, those of the generation before it are dropped, and
 * that counts as decided. So who resets a cursor reads its generation under the same lock that
 * guards its own memory of acks.
 */
public final class Acks {

  static final long ENTRY_MAX = 0xFFFFFFFFL;

  final int generation;

  /** Ledger, first, last, ledger, first, last, ... */
  long[] ranges = new long[3];

  int used;
  List<PartialBatch> batches = List.of();
  Position markDelete;
  Map<String, Long> properties;
  boolean patient;

  /**
   * Of the generation of {@link CursorState#generation} or of the newest {@link KeptCursor#reset}.
   */
  public Acks(int generation) {
    this.generation = generation;
  }

  public Acks entry(long ledger, long entry) {
    return range(ledger, entry, entry);
  }

  /** Both ends are inclusive. */
  public Acks range(long ledger, long first, long last) {
    if (ledger < 0 || first < 0 || last < first || last > ENTRY_MAX) {
      throw new IllegalArgumentException(
          "no range of entries: " + ledger + ":" + first + " to " + last);
    }
    if (used > 0
        && ranges[used - 3] == ledger
        && ranges[used - 1] + 1 == first) { // clients ack about in order
      ranges[used - 1] = last;
      return this;
    }
    if (used == ranges.length) {
      ranges = Arrays.copyOf(ranges, used * 2);
    }
    ranges[used++] = ledger;
    ranges[used++] = first;
    ranges[used++] = last;
    return this;
  }

  /**
   * A batch of which some messages are acked. One that leaves nothing un-acked is an acked entry.
   *
   * @param batchSize 0: not known
   * @param ackSet Pulsar's words: bit 1 = still un-acked; bits beyond the words are acked. Is
   *     copied
   */
  public Acks batch(long ledger, long entry, int batchSize, long[] ackSet) {
    if (ledger < 0 || entry < 0 || entry > ENTRY_MAX || batchSize < 0) {
      throw new IllegalArgumentException("no batch: " + ledger + ":" + entry + " of " + batchSize);
    }
    int words = ackSet.length;
    while (words > 0 && ackSet[words - 1] == 0) {
      words--;
    }
    if (words == 0) {
      return entry(ledger, entry);
    }
    if (batches.isEmpty()) {
      batches = new ArrayList<>();
    }
    batches.add(new PartialBatch(ledger, entry, batchSize, Arrays.copyOf(ackSet, words)));
    return this;
  }

  /** Cumulative: everything up to it is acked. Of several the highest counts. */
  public Acks markDelete(Position position) {
    if (position.ledger() < 0 || position.entry() < -1) {
      throw new IllegalArgumentException("no mark-delete position: " + position);
    }
    if (markDelete == null || markDelete.compareTo(position) < 0) {
      markDelete = position;
    }
    return this;
  }

  /** Replaces all properties of the mark-delete; empty: clears them. Of several the last counts. */
  public Acks properties(Map<String, Long> values) {
    properties = Map.copyOf(values);
    return this;
  }

  /**
   * Nobody waits for them: they are joined with what comes within the settings' {@code patience}.
   * {@link KeptCursor#hurry} takes that back.
   */
  public Acks patient() {
    patient = true;
    return this;
  }

  public boolean isEmpty() {
    return used == 0 && batches.isEmpty() && markDelete == null && properties == null;
  }
}
