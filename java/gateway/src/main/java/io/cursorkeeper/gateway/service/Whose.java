package io.cursorkeeper.gateway.service;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

/**
 * Whose a ledger is, by its custom metadata, which nobody can change once the ledger exists. Pure.
 *
 * @param deployment of ours: that whose footers may name it; empty if it names none
 * @param said what it is, for people
 */
record Whose(Kind kind, String deployment, String said) {
  static final String APPLICATION = "application";
  static final String OURS = "cursorkeeper";
  private static final int NAME_CHARS_MAX = 200;

  /** What the gateway tells apart. Whatever is not certainly one of the others is foreign. */
  enum Kind {
    OURS,
    /** Of a cursor of Pulsar's: positions, no messages. */
    PULSAR_CURSOR,
    /** Of a topic of Pulsar's, and of none of its cursors: messages. */
    PULSAR_MESSAGES,
    /** Pulsar's schemas, compacted messages and the like, and what other programs wrote. */
    FOREIGN
  }

  static Whose of(Map<String, byte[]> custom) {
    String application = text(custom, APPLICATION);
    if (application.equals(OURS)) {
      String deployment = text(custom, "deployment");
      return new Whose(
          Kind.OURS,
          deployment,
          deployment.isEmpty()
              ? "a ledger of CursorKeeper that names no deployment"
              : "a ledger of CursorKeeper's deployment " + deployment);
    }
    String component = text(custom, "component");
    String topic = text(custom, "pulsar/managed-ledger");
    if (!application.equals("pulsar") || !component.equals("managed-ledger") || topic.isEmpty()) {
      return new Whose(
          Kind.FOREIGN,
          "",
          application.isEmpty()
              ? "of an unknown program: its metadata names none"
              : application.equals("pulsar")
                  ? "Pulsar's, of the component '" + component + "'"
                  : "of '" + application + "'");
    }
    String cursor = text(custom, "pulsar/cursor");
    return cursor.isEmpty()
        ? new Whose(Kind.PULSAR_MESSAGES, "", "of Pulsar's messages of " + topic)
        : new Whose(Kind.PULSAR_CURSOR, "", "of Pulsar's cursor " + cursor + " of " + topic);
  }

  private static String text(Map<String, byte[]> custom, String key) {
    byte[] value = custom.getOrDefault(key, new byte[0]);
    // Names are only shown and compared: the end of a very long one does not matter.
    return new String(
        Arrays.copyOf(value, Math.min(value.length, NAME_CHARS_MAX)), StandardCharsets.UTF_8);
  }
}
