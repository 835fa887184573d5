package io.cursorkeeper.reader;

import java.util.BitSet;

/** A slice's set in exponential Golomb code: "Sets of slices" in the chapter "Snapshot". */
final class Coded {
  private static final int NUMBERS_MAX = 1 << 20;
  private static final int WIDTH_MAX = 32;

  private Coded() {}

  static Runs read(byte[] raw, long first, long last, Room room) {
    Input in = new Input(raw);
    long head = in.leb();
    boolean hasRuns = (head & 1) == 1;
    int columns = hasRuns ? 2 : 1;
    int[] orders = new int[columns];
    for (int i = 0; i < columns; i++) {
      orders[i] = in.u8();
    }
    byte[] bytes = in.bytes(head >>> 1);
    if (bytes.length == 0 || bytes[bytes.length - 1] == 0) {
      throw Refused.damage("high bits that do not end in a byte with one of them");
    }
    BitSet high = BitSet.valueOf(bytes);
    int count = high.cardinality();
    if (count > NUMBERS_MAX || count % columns != 0) {
      throw Refused.damage("a set of " + count + " numbers");
    }
    long[] numbers = numbers(high, count, orders, in.bytes(in.left()));
    Runs.Growing found = new Runs.Growing(room);
    int runs = count / columns;
    long at = first - columns;
    for (int i = 0; i < runs; i++) {
      long start = at + numbers[i] + columns;
      at = hasRuns ? start + numbers[runs + i] : start;
      if (at > last) {
        throw Refused.damage("a set that reaches outside of its slice");
      }
      found.add(start, at);
    }
    return found.done();
  }

  private static long[] numbers(BitSet high, int count, int[] orders, byte[] bytes) {
    BitSet low = BitSet.valueOf(bytes);
    long[] numbers = new long[count];
    long bits = 0;
    int at = 0;
    for (int i = 0; i < count; i++) {
      int one = high.nextSetBit(at);
      int order = orders[i / (count / orders.length)];
      int width = one - at + order;
      if (width > WIDTH_MAX || bits + width > 8L * bytes.length) {
        throw Refused.damage("a number of " + width + " bits");
      }
      numbers[i] = (bits(low, (int) bits, width) | 1L << width) - (1L << order);
      bits += width;
      at = one + 1;
    }
    if (bytes.length != (bits + 7) / 8 || low.length() > bits) {
      throw Refused.damage("bits behind the numbers of a set");
    }
    return numbers;
  }

  private static long bits(BitSet from, int at, int count) {
    long value = 0;
    for (int i = 0; i < count; i++) {
      value |= (from.get(at + i) ? 1L : 0) << i;
    }
    return value;
  }
}
