package io.cursorkeeper.client;

import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** Which worker of a daemon a cursor belongs to, for a source that opens it there. */
final class Workers {

  private Workers() {}

  /**
   * The first 8 bytes of the SHA-256 of the canonical name, as an unsigned little-endian number,
   * modulo the number of workers.
   */
  static int of(String topic, String subscription, int workers) {
    byte[] digest =
        sha256()
            .digest((quoted(topic) + "|" + quoted(subscription)).getBytes(StandardCharsets.UTF_8));
    long hash = ByteBuffer.wrap(digest).order(ByteOrder.LITTLE_ENDIAN).getLong();
    return (int) Long.remainderUnsigned(hash, workers);
  }

  /** All but {@code A-Za-z0-9-_.~:/} is percent-encoded in upper case. */
  private static String quoted(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8)
        .replace("+", "%20")
        .replace("*", "%2A")
        .replace("%7E", "~")
        .replace("%3A", ":")
        .replace("%2F", "/");
  }

  private static MessageDigest sha256() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException("every Java has SHA-256", missing);
    }
  }
}
