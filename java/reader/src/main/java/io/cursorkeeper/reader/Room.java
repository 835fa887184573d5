package io.cursorkeeper.reader;

/** How much memory one state, or one body, may take: "Memory" in the chapter "Limits". */
final class Room {
  static final long BYTES_MAX = (256L << 20) / 4 * 5;
  static final int LEDGER = 400;
  static final int BATCH = 600;
  static final int LAYOUT_ITEM = 200;
  static final int LAYOUT_ITEMS_MAX = 1_250_000;
  static final int CONTAINER = 78;

  /**
   * Of a run of acked entries, read, joined, settled and told: this reader's own, in place of mixed
   * containers.
   */
  static final int RUN = 512;

  /** Of a field of Pulsar's messages, of a number in a list, of a property. */
  static final int FIELD = 96;

  static final int WORD = 32;
  static final int PROPERTY = 200;

  private long left = BYTES_MAX;

  void take(long bytes) {
    left -= bytes;
    check(BYTES_MAX - left);
  }

  static void check(long bytes) {
    if (bytes > BYTES_MAX) {
      throw Refused.tooLarge(bytes + " bytes of memory: " + BYTES_MAX + " are allowed");
    }
  }
}
