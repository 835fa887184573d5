package io.cursorkeeper.reader;

import java.util.BitSet;

/** A portable Roaring bitmap of 32-bit values, by its format specification. */
final class Roaring {
  private static final int WITHOUT_RUNS = 12346;
  private static final int WITH_RUNS = 12347;
  private static final int ARRAY_MAX = 4096;

  private Roaring() {}

  static Runs read(byte[] raw, Room room) {
    Input in = new Input(raw);
    long cookie = in.u32();
    boolean hasRuns = (cookie & 0xffff) == WITH_RUNS;
    if (!hasRuns && cookie != WITHOUT_RUNS) {
      throw Refused.damage("no Roaring bitmap");
    }
    long size = hasRuns ? (cookie >>> 16) + 1 : in.u32();
    if (size > 1 << 16) {
      throw Refused.damage("a Roaring bitmap of " + size + " containers");
    }
    BitSet isRun = hasRuns ? BitSet.valueOf(in.bytes((size + 7) / 8)) : new BitSet();
    int[] keys = new int[(int) size];
    int[] counts = new int[(int) size];
    for (int i = 0; i < size; i++) {
      keys[i] = in.u16();
      counts[i] = in.u16() + 1;
      if (i > 0 && keys[i] <= keys[i - 1]) {
        throw Refused.damage("Roaring containers that do not ascend");
      }
    }
    if (!hasRuns || size >= 4) {
      in.bytes(4 * size); // offsets: the containers stand in their order
    }
    Runs.Growing found = new Runs.Growing(room);
    for (int i = 0; i < size; i++) {
      long base = (long) keys[i] << 16;
      long count =
          isRun.get(i)
              ? runs(in, base, found)
              : counts[i] <= ARRAY_MAX ? array(in, base, counts[i], found) : bits(in, base, found);
      if (count != counts[i]) {
        throw Refused.damage(
            "a Roaring container of " + count + " values where " + counts[i] + " are announced");
      }
    }
    in.end("a Roaring bitmap");
    return found.done();
  }

  private static long runs(Input in, long base, Runs.Growing found) {
    long count = 0;
    int from = 0;
    for (int left = in.u16(); left > 0; left--) {
      int first = in.u16();
      int last = first + in.u16();
      if (first < from || last > 0xffff) {
        throw Refused.damage("Roaring runs that do not ascend");
      }
      found.add(base + first, base + last);
      count += last - first + 1;
      from = last + 1;
    }
    return count;
  }

  private static long array(Input in, long base, int count, Runs.Growing found) {
    int before = -1;
    for (int i = 0; i < count; i++) {
      int value = in.u16();
      if (value <= before) {
        throw Refused.damage("Roaring values that do not ascend");
      }
      found.add(base + value, base + value);
      before = value;
    }
    return count;
  }

  private static long bits(Input in, long base, Runs.Growing found) {
    BitSet bits = BitSet.valueOf(in.bytes(8192));
    addBits(bits, base, found);
    return bits.cardinality();
  }

  static void addBits(BitSet bits, long base, Runs.Growing found) {
    for (int first = bits.nextSetBit(0), end; first >= 0; first = bits.nextSetBit(end)) {
      end = bits.nextClearBit(first);
      found.add(base + first, base + end - 1);
    }
  }
}
