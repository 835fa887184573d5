package io.cursorkeeper.pulsar;

import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What the plugin writes into a kept cursor's own properties, at the keeper: whose opening made it,
 * whether Pulsar's state was taken over wholly, and which version of Pulsar's znode the keeper's
 * state belongs to. Pulsar's own string properties stay in the znode.
 *
 * <p>Before the plugin lets Pulsar write the znode it imprints the version that the write will
 * make, and what tells its writer. So at a load the znode is in that version and by that writer, or
 * in the one before it if the write did not come; any other was written while the keeper did not
 * hold the cursor.
 *
 * @param created the nonce of the opening that made the cursor
 * @param importing whether Pulsar's state is the truth: it may be here in part only, or as a copy
 * @param znode that the state belongs to; null: not known
 * @param closedIn the generation in which a clean stop began to write that znode; null: it is of
 *     another write
 */
public record Imprint(String created, boolean importing, Znode znode, Integer closedIn) {

  public Imprint(String created, boolean importing, Znode znode) {
    this(created, importing, znode, null);
  }

  /**
   * A version of the cursor's znode. One that was deleted and made again has another time of
   * creation. Its writer is told by two fields that Pulsar writes with every change of a cursor's
   * acks: Pulsar's own cursor names a cursor ledger that it has just made, and was last in use
   * after its load.
   *
   * @param cursorLedger -1: none, the znode holds the acks
   * @param activeAtMs when the cursor that wrote it was last in use
   */
  public record Znode(long createdAtMs, long version, long cursorLedger, long activeAtMs) {

    private static final Pattern TEXT =
        Pattern.compile("(\\d{1,18})@(\\d{1,18})/(-?\\d{1,18})/(\\d{1,18})");

    static Znode parse(String text) {
      Matcher found = TEXT.matcher(text);
      return found.matches()
          ? new Znode(parsed(found, 2), parsed(found, 1), parsed(found, 3), parsed(found, 4))
          : null;
    }

    private static long parsed(Matcher found, int group) {
      return Long.parseLong(found.group(group));
    }

    /** As a write of string properties makes it, whoever writes them. */
    public Znode next() {
      return new Znode(createdAtMs, version + 1, cursorLedger, activeAtMs);
    }

    /** As a clean stop makes it. */
    public Znode closed(long lastActiveAtMs) {
      return new Znode(createdAtMs, version + 1, -1, lastActiveAtMs);
    }

    boolean isJustBefore(Znode noted) {
      return createdAtMs == noted.createdAtMs && version + 1 == noted.version;
    }

    @Override
    public String toString() {
      return version + "@" + createdAtMs + "/" + cursorLedger + "/" + activeAtMs;
    }
  }

  static final String CREATED = "pulsar.created";
  static final String IMPORTING = "pulsar.importing";
  static final String COPY = "shadow";
  static final String ZNODE = "pulsar.znode";
  static final String CLOSED = "pulsar.closed";
  private static final Pattern GENERATION = Pattern.compile("\\d{1,9}");

  public static Imprint of(Map<String, String> properties) {
    String znode = properties.getOrDefault(ZNODE, "");
    String closed = properties.getOrDefault(CLOSED, "");
    return new Imprint(
        properties.getOrDefault(CREATED, ""),
        properties.containsKey(IMPORTING),
        Znode.parse(znode),
        GENERATION.matcher(closed).matches() ? Integer.valueOf(closed) : null);
  }

  /**
   * Of a copy that follows Pulsar's cursor: Pulsar's state is the truth, and is taken over whenever
   * the keeper shall hold the cursor.
   */
  public static Map<String, String> ofCopy(String created) {
    return Map.of(CREATED, created, IMPORTING, COPY);
  }

  public Map<String, String> properties() {
    Map<String, String> properties = new TreeMap<>();
    properties.put(CREATED, created);
    if (importing) {
      properties.put(IMPORTING, "true");
    }
    if (znode != null) {
      properties.put(ZNODE, znode.toString());
    }
    if (closedIn != null) {
      properties.put(CLOSED, closedIn.toString());
    }
    return properties;
  }

  /** Whether the state is of this znode as it is now. */
  public boolean belongsTo(Znode now) {
    return znode != null && (znode.equals(now) || now.isJustBefore(znode));
  }

  /**
   * Whether Pulsar's cursor, with this znode, began as a clean stop left it, and no seek came
   * since.
   */
  public boolean isLeftWith(Znode now, int generation) {
    return closedIn != null && closedIn == generation && znode != null && znode.equals(now);
  }

  public Imprint with(Znode of) {
    return new Imprint(created, false, of);
  }

  /** Of a clean stop. */
  public Imprint closed(Znode of, int generation) {
    return new Imprint(created, false, of, generation);
  }

  public Imprint whileImporting() {
    return new Imprint(created, true, znode);
  }
}
