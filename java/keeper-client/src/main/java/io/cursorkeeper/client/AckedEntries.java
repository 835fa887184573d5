package io.cursorkeeper.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.roaringbitmap.BitSetUtil;
import org.roaringbitmap.RoaringBitmap;

/** The acked entries of one data ledger, above mark-delete. Does not change. */
public final class AckedEntries {

  /** Takes ranges of entries, both ends inclusive. */
  @FunctionalInterface
  public interface Ranges {
    void range(long first, long last);
  }

  private final RoaringBitmap acked;

  AckedEntries(RoaringBitmap acked) {
    this.acked = acked;
  }

  public boolean contains(long entry) {
    return entry >= 0 && entry <= 0xFFFFFFFFL && acked.contains((int) entry);
  }

  public long count() {
    return acked.getLongCardinality();
  }

  /** -1: none. */
  public long last() {
    return acked.isEmpty() ? -1 : Integer.toUnsignedLong(acked.last());
  }

  /** Tells maximal ranges, ascending. */
  public void forEachRange(Ranges to) {
    if (acked.isEmpty()) {
      return;
    }
    long first = Integer.toUnsignedLong(acked.first());
    while (first >= 0) {
      long hole = acked.nextAbsentValue((int) first);
      if (hole < 0) {
        to.range(first, 0xFFFFFFFFL);
        return;
      }
      to.range(first, hole - 1);
      first = acked.nextValue((int) hole);
    }
  }

  /**
   * As words of 64 bits, bit 1 = acked: entry {@code 64 w + b} is bit {@code b} of word {@code w}.
   * IllegalArgumentException if one is above 2^31.
   */
  public long[] words() {
    return BitSetUtil.toLongArray(acked);
  }

  /** In the portable roaring format. */
  public byte[] roaring() {
    ByteBuffer bytes =
        ByteBuffer.allocate(acked.serializedSizeInBytes()).order(ByteOrder.LITTLE_ENDIAN);
    acked.serialize(bytes);
    return bytes.array();
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof AckedEntries that && acked.equals(that.acked);
  }

  @Override
  public int hashCode() {
    return acked.hashCode();
  }

  @Override
  public String toString() {
    return acked.toString();
  }
}
