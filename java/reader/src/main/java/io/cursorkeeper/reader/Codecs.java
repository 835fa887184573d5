package io.cursorkeeper.reader;

import io.airlift.compress.Decompressor;
import io.airlift.compress.MalformedInputException;
import io.airlift.compress.lz4.Lz4Decompressor;
import io.airlift.compress.snappy.SnappyDecompressor;
import io.airlift.compress.zstd.ZstdDecompressor;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;

/** Expands to exactly the length that is announced. */
final class Codecs {
  /** Of one state in Pulsar's form; a record's body has a limit of its own. */
  private static final int EXPANDED_MAX = 32 << 20;

  private Codecs() {}

  static byte[] expand(String codec, byte[] stored, int length) {
    int made;
    byte[] out;
    try {
      if (length > expandedMax(codec, stored)) {
        throw Refused.damage(codec + ": " + length + " bytes are announced in " + stored.length);
      }
      if (length > EXPANDED_MAX) {
        throw Refused.tooLarge("a state of " + length + " bytes: " + EXPANDED_MAX + " are allowed");
      }
      out = new byte[length];
      made =
          switch (codec) {
            case "NONE" -> copy(stored, out);
            case "ZSTD" -> with(new ZstdDecompressor(), stored, out);
            case "LZ4" -> with(new Lz4Decompressor(), stored, out);
            case "SNAPPY" -> with(new SnappyDecompressor(), stored, out);
            case "ZLIB" -> inflate(stored, out);
            default -> throw Refused.tooNew("codec " + codec);
          };
    } catch (MalformedInputException
        | IndexOutOfBoundsException
        | IllegalArgumentException
        | DataFormatException e) {
      throw Refused.damage(codec + ": " + e.getMessage());
    }
    if (made != length) {
      throw Refused.damage(codec + ": " + made + " bytes where " + length + " are announced");
    }
    return out;
  }

  /** What these bytes can become at most, so that a wrong announcement takes no memory. */
  private static long expandedMax(String codec, byte[] stored) {
    return switch (codec) {
      case "ZSTD" -> {
        long told =
            stored.length < 5 ? 0 : ZstdDecompressor.getDecompressedSize(stored, 0, stored.length);
        yield told < 0 ? Integer.MAX_VALUE : told;
      }
      case "SNAPPY" -> SnappyDecompressor.getUncompressedLength(stored, 0);
      case "NONE" -> stored.length;
      default -> 1032L * stored.length + 64; // LZ4: 255, ZLIB: 1032
    };
  }

  private static int copy(byte[] stored, byte[] out) {
    if (stored.length == out.length) {
      System.arraycopy(stored, 0, out, 0, out.length);
    }
    return stored.length;
  }

  private static int with(Decompressor codec, byte[] stored, byte[] out) {
    return codec.decompress(stored, 0, stored.length, out, 0, out.length);
  }

  /** An ended stream, or one that was only flushed. */
  private static int inflate(byte[] stored, byte[] out) throws DataFormatException {
    Inflater inflater = new Inflater();
    try {
      inflater.setInput(stored);
      int made = 0;
      for (int step = 1; step > 0; made += step) {
        step = inflater.inflate(out, made, out.length - made);
      }
      return made + inflater.inflate(new byte[1]) + inflater.getRemaining();
    } finally {
      inflater.end();
    }
  }
}
