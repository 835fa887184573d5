package io.cursorkeeper.gateway.systems;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Who the gateway is to another system, from a file of an operator: `digest:USER:PASSWORD` or
 * `sasl:USER:PASSWORD`.
 *
 * @param said how messages name the file; never its content
 */
record Secret(String said, String scheme, String user, String password) {
  static final String DIGEST = "digest";
  static final String SASL = "sasl";
  private static final String PLACEHOLDER = "change-me";

  /** Throws IllegalArgumentException with a message for people. */
  static Secret read(String flag, String file, boolean takesDigest) {
    String said = "--" + flag + " " + file;
    String schemes =
        takesDigest ? "digest:USER:PASSWORD or sasl:USER:PASSWORD" : "sasl:USER:PASSWORD";
    String text;
    try {
      text = Files.readString(Path.of(file)).strip();
    } catch (IOException unreadable) {
      throw Failures.wrong(
          said, Failures.ofFile(unreadable), "make it readable for this user, or name another");
    }
    if (text.isEmpty()) {
      throw Failures.wrong(said, "it holds no user", "write " + schemes + " into it");
    }
    String[] parts = text.split(":", 3);
    boolean isKnown = parts[0].equals(SASL) || takesDigest && parts[0].equals(DIGEST);
    if (!isKnown || parts.length < 3 || parts[1].isEmpty() || parts[2].isEmpty()) {
      throw Failures.wrong(said, "it is no user", "write " + schemes + " into it");
    }
    if (parts[2].endsWith(PLACEHOLDER)) {
      throw Failures.wrong(
          said,
          "it holds the placeholder of our examples, which everybody knows",
          "write a password of your own into it");
    }
    return new Secret(said, parts[0], parts[1], parts[2]);
  }

  boolean isSasl() {
    return scheme.equals(SASL);
  }
}
