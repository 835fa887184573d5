package io.cursorkeeper.reader;

import java.util.Arrays;
import java.util.zip.CRC32C;

/** A BookKeeper entry after the checks that come before its body is believed. */
@SuppressWarnings("JavaLangClash") // The format's own word.
record Record(
    int version, int kind, long epoch, long generation, long crc, int stored, byte[] body) {
  static final int DELTA = 2;
  static final int SEGMENT = 3;
  static final int END = 4;

  /** Of a segment whose slices may be sets; everything else is of version 1. */
  static final int WITH_SETS = 2;

  private static final int HEADER = 40;
  private static final int CRC_AT = 36;
  private static final int BODY_MAX = 4 << 20;

  /** {@code entry} is null where BookKeeper has no copy that it trusts. */
  static Record read(byte[] entry, byte[] cursor) {
    if (entry == null || entry.length < 2 || entry[0] != 'C' || entry[1] != 'K') {
      throw Refused.damage("no record");
    }
    int newest = entry.length > 3 && entry[3] == SEGMENT ? WITH_SETS : 1;
    if (entry.length > 2 && (entry[2] & 0xff) > newest) {
      throw Refused.tooNew("a record of version " + (entry[2] & 0xff));
    }
    Input in = new Input(entry);
    if (in.left() < HEADER) {
      throw Refused.damage("a record of " + entry.length + " bytes");
    }
    in.bytes(2);
    int version = in.u8();
    int kind = in.u8();
    int codec = in.u8();
    if (version < 1 || kind < 1 || kind > END || codec > 2) {
      throw Refused.damage(
          "a record of version " + version + ", kind " + kind + ", flags " + codec);
    }
    in.bytes(3);
    if (!Arrays.equals(in.bytes(8), cursor)) {
      throw Refused.foreign("a record of another cursor");
    }
    long epoch = in.u32();
    long generation = in.u32();
    in.u64(); // the sequence is for people
    long length = in.u32();
    long crc = in.u32();
    byte[] zeroed = entry.clone();
    Arrays.fill(zeroed, CRC_AT, HEADER, (byte) 0);
    if (crcOf(zeroed, zeroed.length) != crc) {
      throw Refused.damage("the checksum of a record");
    }
    if (length > BODY_MAX) {
      throw Refused.damage("a body of " + length + " bytes");
    }
    byte[] body =
        Codecs.expand(
            new String[] {"NONE", "ZSTD", "LZ4"}[codec], in.bytes(in.left()), (int) length);
    return new Record(version, kind, epoch, generation, crc, entry.length, body);
  }

  static long crcOf(byte[] data, int length) {
    CRC32C crc = new CRC32C();
    crc.update(data, 0, length);
    return crc.getValue();
  }
}
