package io.cursorkeeper.reader;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Bytes that are read from the front: fixed-width little-endian numbers, minimal LEB128, texts. */
final class Input {
  static final long LEDGER_MAX = Long.MAX_VALUE;
  static final long ENTRY_MAX = (1L << 32) - 1;
  private final byte[] data;
  private int at;

  Input(byte[] data) {
    this.data = data;
  }

  int left() {
    return data.length - at;
  }

  void end(String what) {
    if (left() != 0) {
      throw Refused.damage(left() + " bytes follow " + what);
    }
  }

  byte[] bytes(long count) {
    if (count < 0 || count > left()) {
      throw Refused.damage(
          "cut off: " + Long.toUnsignedString(count) + " bytes where " + left() + " are left");
    }
    at += (int) count;
    return Arrays.copyOfRange(data, at - (int) count, at);
  }

  int u8() {
    return bytes(1)[0] & 0xff;
  }

  int u16() {
    return u8() | u8() << 8;
  }

  long u32() {
    return Integer.toUnsignedLong(
        ByteBuffer.wrap(bytes(4)).order(ByteOrder.LITTLE_ENDIAN).getInt());
  }

  long u64() {
    return ByteBuffer.wrap(bytes(8)).order(ByteOrder.LITTLE_ENDIAN).getLong();
  }

  /** All 64 bits of it, so it may look negative. */
  long leb() {
    long value = 0;
    for (int shift = 0; ; shift += 7) {
      int next = u8();
      if (shift == 63 && next > 1) {
        throw Refused.damage("a number of more than 64 bits");
      }
      value |= (long) (next & 0x7f) << shift;
      if (next < 0x80) {
        if (next == 0 && shift > 0) {
          throw Refused.damage("a number that is not minimal");
        }
        return value;
      }
    }
  }

  long leb(long most, String what) {
    long value = leb();
    if (Long.compareUnsigned(value, most) > 0) {
      throw Refused.damage(what + " is " + Long.toUnsignedString(value));
    }
    return value;
  }

  /** The number of items that follow, each of at least a byte. */
  int count(String what, int least) {
    long count = leb(left(), "the number of " + what);
    if (count < least) {
      throw Refused.damage("no " + what);
    }
    return (int) count;
  }

  /** The next of ascending ids, as its distance from the one before. */
  long ascending(long before, boolean isFirst, long most, String what) {
    long gap = leb();
    long id = before + gap;
    if (gap < 0 || id < 0 || id > most || (gap == 0 && !isFirst)) {
      throw Refused.damage(what + " that do not ascend, or too far");
    }
    return id;
  }

  byte[] block() {
    return bytes(leb(Integer.MAX_VALUE, "the length of a text"));
  }

  static String utf8(byte[] raw) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(raw)).toString();
    } catch (CharacterCodingException e) {
      throw Refused.damage("not UTF-8");
    }
  }
}
