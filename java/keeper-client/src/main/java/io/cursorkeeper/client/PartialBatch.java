package io.cursorkeeper.client;

import java.util.Arrays;

/**
 * A batch of which some messages are acked.
 *
 * @param batchSize 0: not known
 * @param ackSet Pulsar's words: bit 1 = still un-acked; bits beyond the words are acked. Not to be
 *     changed
 */
public record PartialBatch(long ledger, long entry, int batchSize, long[] ackSet) {

  @Override
  public boolean equals(Object other) {
    return other instanceof PartialBatch that
        && ledger == that.ledger
        && entry == that.entry
        && batchSize == that.batchSize
        && Arrays.equals(ackSet, that.ackSet);
  }

  @Override
  public int hashCode() {
    return Long.hashCode(ledger) * 31 + Long.hashCode(entry);
  }

  @Override
  public String toString() {
    return ledger + ":" + entry + " of " + batchSize + " " + Arrays.toString(ackSet);
  }
}
