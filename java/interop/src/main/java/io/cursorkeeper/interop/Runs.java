package io.cursorkeeper.interop;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Base64;

/**
 * Entry ids of one ledger as runs {@code [first, last]}, ascending and apart. On the wire: base64
 * of little-endian 32-bit pairs, so that a million holes stay a few megabytes.
 */
final class Runs {
  private int[] bounds = new int[16];
  private int size;

  static int[] decode(String text) {
    ByteBuffer bytes =
        ByteBuffer.wrap(Base64.getDecoder().decode(text)).order(ByteOrder.LITTLE_ENDIAN);
    int[] bounds = new int[bytes.remaining() / 4];
    bytes.asIntBuffer().get(bounds);
    return bounds;
  }

  /** {@code first} is above everything so far; a run that touches the last one joins it. */
  void add(long first, long last) {
    if (size > 0 && first <= bounds[size - 1] + 1L) {
      bounds[size - 1] = Math.max(bounds[size - 1], Math.toIntExact(last));
      return;
    }
    if (size + 2 > bounds.length) {
      bounds = Arrays.copyOf(bounds, bounds.length * 2);
    }
    bounds[size++] = Math.toIntExact(first);
    bounds[size++] = Math.toIntExact(last);
  }

  boolean isEmpty() {
    return size == 0;
  }

  String encode() {
    ByteBuffer bytes = ByteBuffer.allocate(size * 4).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asIntBuffer().put(bounds, 0, size);
    return Base64.getEncoder().encodeToString(bytes.array());
  }
}
