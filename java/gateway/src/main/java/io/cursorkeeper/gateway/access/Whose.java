package io.cursorkeeper.gateway.access;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

/**
 * Whose a ledger is, by its custom metadata, which nobody can change once the ledger exists. Pure.
 *
 * @param deployment of ours: that whose footers may name it; empty if it names none
 * @param topic of Pulsar's: the topic's whole name; empty if it cannot be told
 * @param said what it is, for people
 */
public record Whose(Kind kind, String deployment, String topic, String said) {
  public static final String APPLICATION = "application";
  public static final String OURS = "cursorkeeper";
  private static final int SAID_CHARS_MAX = 200;

  /** What the gateway tells apart. Whatever is not certainly one of the others is foreign. */
  public enum Kind {
    OURS,
    /** Of a cursor of Pulsar's: positions, no messages. */
    PULSAR_CURSOR,
    /** Of a topic of Pulsar's, and of none of its cursors: messages. */
    PULSAR_MESSAGES,
    /** Pulsar's schemas, compacted messages and the like, and what other programs wrote. */
    FOREIGN
  }

  public static Whose of(Map<String, byte[]> custom) {
    String application = text(custom, APPLICATION);
    if (application.equals(OURS)) {
      String deployment = text(custom, "deployment");
      return new Whose(
          Kind.OURS,
          deployment,
          "",
          deployment.isEmpty()
              ? "a ledger of CursorKeeper that names no deployment"
              : "a ledger of CursorKeeper's deployment " + shown(deployment));
    }
    String component = text(custom, "component");
    String managedLedger = text(custom, "pulsar/managed-ledger");
    if (!application.equals("pulsar")
        || !component.equals("managed-ledger")
        || managedLedger.isEmpty()) {
      return new Whose(
          Kind.FOREIGN,
          "",
          "",
          application.isEmpty()
              ? "of an unknown program: its metadata names none"
              : application.equals("pulsar")
                  ? "Pulsar's, of the component '" + shown(component) + "'"
                  : "of '" + shown(application) + "'");
    }
    String topic = topic(managedLedger);
    String cursor = text(custom, "pulsar/cursor");
    return cursor.isEmpty()
        ? new Whose(
            Kind.PULSAR_MESSAGES, "", topic, "of Pulsar's messages of " + shown(managedLedger))
        : new Whose(
            Kind.PULSAR_CURSOR,
            "",
            topic,
            "of Pulsar's cursor " + shown(cursor) + " of " + shown(managedLedger));
  }

  /**
   * The name of the topic that a managed ledger is of, {@code persistent://tenant/namespace/topic}
   * (or with a cluster, as topics of Pulsar 1 have); empty if it is no such name.
   */
  static String topic(String managedLedger) {
    String[] parts = managedLedger.split("/", -1);
    int domain = parts.length - 2;
    if ((parts.length != 4 && parts.length != 5)
        || Arrays.stream(parts).anyMatch(String::isEmpty)) {
      return "";
    }
    try {
      return parts[domain]
          + "://"
          + String.join("/", Arrays.copyOf(parts, domain))
          + "/"
          + URLDecoder.decode(parts[domain + 1], StandardCharsets.UTF_8);
    } catch (IllegalArgumentException notEncoded) {
      return "";
    }
  }

  private static String text(Map<String, byte[]> custom, String key) {
    return new String(custom.getOrDefault(key, new byte[0]), StandardCharsets.UTF_8);
  }

  // Whole names are compared; of a very long one people need no more than its beginning.
  private static String shown(String name) {
    return name.length() <= SAID_CHARS_MAX ? name : name.substring(0, SAID_CHARS_MAX);
  }
}
