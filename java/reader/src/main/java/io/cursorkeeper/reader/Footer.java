package io.cursorkeeper.reader;

import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The footer, checked in the order that the page gives. */
final class Footer {
  /**
   * Exactly one of {@code markDelete} (an empty base), {@code inline}, {@code pulsar} and {@code
   * snapshot}.
   */
  record Base(Position markDelete, Record inline, PulsarState.Inline pulsar, Snapshot snapshot) {}

  record Snapshot(
      long ledger, long firstEntry, long lastEntry, long numParts, long length, long crc) {}

  /** {@code lastEntry} null: nobody has closed or recovered it yet. */
  record Ledger(long ledger, Long lastEntry, boolean isPulsar) {}

  record Part(Base base, List<Ledger> chain) {
    boolean isPulsar() {
      return base.pulsar() != null || chain.stream().anyMatch(Ledger::isPulsar);
    }
  }

  /** Of what is a u32 in a record, and of entry ids. */
  private static final long NUMBER_MAX = (1L << 32) - 1;

  private static final Set<String> FORMATS = Set.of("native", "pulsar");
  private static final Pattern TAIL = Pattern.compile(",\"crc32c\":\"([0-9a-f]{8})\"}");
  private static final int TAIL_BYTES = 21;

  final String canonical;
  final byte[] cursor;
  final String state;
  final long epoch;
  final long generation;
  final Position markDelete;
  final Part current;
  final Part previous;
  final Set<Position> damaged = new HashSet<>();
  final Properties cursorProperties;

  /** {@code znodeVersion} null: the bytes were not read from their znode. */
  Footer(byte[] data, Long znodeVersion, String topic, String subscription) {
    Map<String, Object> body = object(Json.parse(Input.utf8(data)), "the footer");
    long version = number(body, "version", 0);
    if (version > 2) {
      throw Refused.tooNew("version " + version);
    }
    if (version < 1) {
      throw Refused.damage("version " + version);
    }
    String format = format(body);
    int end = data.length - TAIL_BYTES;
    Matcher tail =
        TAIL.matcher(end < 0 ? "" : new String(data, end, TAIL_BYTES, StandardCharsets.ISO_8859_1));
    if (!tail.matches() || Record.crcOf(data, end) != Long.parseLong(tail.group(1), 16)) {
      throw Refused.damage("the checksum of the footer");
    }
    canonical = canonical(text(body, "topic"), text(body, "subscription"));
    if (!text(body, "cursor").equals(canonical)
        || !text(body, "topic").equals(topic)
        || !text(body, "subscription").equals(subscription)) {
      throw Refused.damage("the footer of another cursor");
    }
    cursor = Arrays.copyOf(sha256(canonical), 8);
    state = text(body, "state");
    if (!Set.of("open", "closed", "deleted").contains(state)) {
      throw Refused.damage("state " + state);
    }
    epoch = number(body, "epoch", 0, NUMBER_MAX);
    text(body, "writer");
    number(body, "write", 0);
    generation = number(body, "generation", 0, NUMBER_MAX);
    markDelete = position(body.get("markDelete"));
    current = part(body);
    previous = body.get("previous") == null ? null : part(object(body.get("previous"), "previous"));
    Map<String, Object> stats = object(body.get("stats"), "stats");
    for (String name :
        List.of("ledgers", "span", "holes", "runs", "partialBatches", "deltaBytes")) {
      number(stats, name, 0);
    }
    if (body.containsKey("damaged")) {
      list(body.get("damaged"), "damaged").forEach(place -> damaged.add(position(place)));
    }
    Object own = body.get("cursorProperties");
    cursorProperties =
        body.containsKey("cursorProperties") ? properties(object(own, "cursorProperties")) : null;
    if (body.containsKey("truncated")) {
      Map<String, Object> told = object(body.get("truncated"), "truncated");
      List.of("acks", "batches", "properties").forEach(name -> number(told, name, 0));
      text(told, "limit");
    }
    boolean isPulsar =
        current.isPulsar()
            || (previous != null && previous.isPulsar())
            || cursorProperties != null
            || body.containsKey("truncated");
    if (!format.equals(isPulsar ? "pulsar" : "native")) {
      throw Refused.damage("format " + format + ", which its parts are not");
    }
    if (body.containsKey("fencingToken") != (version == 2)) {
      throw Refused.damage("version " + version + ", and a fencing token or none");
    }
    if (version == 2) {
      number(body, "fencingToken", 1);
    }
    if (body.containsKey("znode")) {
      Map<String, Object> told = object(body.get("znode"), "znode");
      long made = number(told, "version", 0);
      boolean isEpoch = number(told, "epoch", 0, NUMBER_MAX) == epoch;
      boolean isWrite = number(told, "write", 0) == number(body, "write", 0);
      boolean counts = isEpoch && isWrite;
      if (counts && znodeVersion != null && znodeVersion != made) {
        throw Refused.replaced("written as version " + made + ", found as " + znodeVersion);
      }
    }
  }

  private Part part(Map<String, Object> body) {
    List<Ledger> chain = new ArrayList<>();
    for (Object item : list(body.get("chain"), "chain")) {
      Map<String, Object> told = object(item, "a ledger of the chain");
      boolean isPulsar = told.containsKey("format") && format(told).equals("pulsar");
      Long last =
          told.get("lastEntry") == null ? null : (Long) number(told, "lastEntry", -1, NUMBER_MAX);
      chain.add(new Ledger(number(told, "ledger", 0), last, isPulsar));
    }
    if (chain.stream().map(Ledger::ledger).distinct().count() != chain.size()) {
      throw Refused.damage("a chain that names a ledger twice");
    }
    Base base = base(object(body.get("base"), "base"));
    if (base.snapshot() != null
        && chain.stream()
            .noneMatch(item -> item.ledger() == base.snapshot().ledger() && !item.isPulsar())) {
      throw Refused.damage("a snapshot whose ledger is not in its chain");
    }
    return new Part(base, chain);
  }

  private Base base(Map<String, Object> told) {
    if (told.size() != 1) {
      throw Refused.damage("a base of " + told.size() + " kinds");
    }
    if (told.containsKey("empty")) {
      return new Base(position(told.get("empty")), null, null, null);
    }
    if (told.containsKey("inline")) {
      Record inline = Record.read(base64(text(told, "inline")), cursor);
      if (inline.kind() != Record.SEGMENT) {
        throw Refused.damage("an inline record of kind " + inline.kind());
      }
      Body.of(inline);
      return new Base(null, inline, null, null);
    }
    if (told.containsKey("pulsar")) {
      Map<String, Object> inner = object(told.get("pulsar"), "pulsar");
      byte[] info = base64(text(inner, "managedCursorInfo"));
      return new Base(
          null, null, new PulsarState.Inline(info, number(inner, "epoch", 0, NUMBER_MAX)), null);
    }
    Map<String, Object> inner = object(told.get("snapshot"), "a base of a known kind");
    if (!text(inner, "crc32c").matches("[0-9a-f]{8}")) {
      throw Refused.damage("the checksum of a snapshot");
    }
    return new Base(
        null,
        null,
        null,
        new Snapshot(
            number(inner, "ledger", 0),
            number(inner, "firstEntry", 0, NUMBER_MAX),
            number(inner, "lastEntry", 0, NUMBER_MAX),
            number(inner, "numParts", 1, NUMBER_MAX),
            number(inner, "length", 0),
            Long.parseLong(text(inner, "crc32c"), 16)));
  }

  private static Properties properties(Map<String, Object> told) {
    List<?> stamp = list(told.get("stamp"), "stamp");
    TreeMap<String, Object> values = Properties.sorted();
    Map<String, Object> texts = object(told.get("values"), "values");
    texts.keySet().forEach(key -> values.put(key, text(texts, key)));
    values.keySet().forEach(Footer::utf8);
    if (stamp.size() != 2) {
      throw Refused.damage("a stamp of " + stamp.size() + " numbers");
    }
    return new Properties(
        number(stamp.get(0), "stamp", 0, Long.MAX_VALUE),
        number(stamp.get(1), "stamp", 0, Long.MAX_VALUE),
        values);
  }

  // ---- names

  static String canonical(String topic, String subscription) {
    return quote(topic) + "|" + quote(subscription);
  }

  private static String quote(String name) {
    StringBuilder out = new StringBuilder();
    for (byte b : utf8(name)) {
      boolean isPlain = b > 0 && (Character.isLetterOrDigit(b) || "-_.~:/".indexOf(b) >= 0);
      out.append(isPlain ? String.valueOf((char) b) : String.format("%%%02X", b & 0xff));
    }
    return out.toString();
  }

  private static byte[] utf8(String name) {
    try {
      java.nio.ByteBuffer raw = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(name));
      byte[] bytes = new byte[raw.remaining()];
      raw.get(bytes);
      return bytes;
    } catch (CharacterCodingException e) {
      throw Refused.damage("a name that is not Unicode text");
    }
  }

  private static byte[] sha256(String text) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }

  // ---- members

  private static String format(Map<String, Object> body) {
    String format = text(body, "format");
    if (!FORMATS.contains(format)) {
      throw Refused.tooNew("format " + format);
    }
    return format;
  }

  private static byte[] base64(String text) {
    try {
      return Base64.getDecoder().decode(text);
    } catch (IllegalArgumentException e) {
      throw Refused.damage("not base64");
    }
  }

  private static Position position(Object value) {
    List<?> pair = list(value, "a position");
    if (pair.size() != 2) {
      throw Refused.damage("a position of " + pair.size() + " numbers");
    }
    return new Position(
        number(pair.get(0), "a ledger", 0, Input.LEDGER_MAX),
        number(pair.get(1), "an entry", -1, Input.ENTRY_MAX));
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> object(Object value, String what) {
    if (!(value instanceof Map)) {
      throw Refused.damage(what + " is no object");
    }
    return (Map<String, Object>) value;
  }

  private static List<?> list(Object value, String what) {
    if (!(value instanceof List<?> found)) {
      throw Refused.damage(what + " is no list");
    }
    return found;
  }

  private static String text(Map<String, Object> body, String name) {
    if (!(body.get(name) instanceof String text)) {
      throw Refused.damage(name + " is no text");
    }
    utf8(text);
    return text;
  }

  private static long number(Map<String, Object> body, String name, long least) {
    return number(body.get(name), name, least, Long.MAX_VALUE);
  }

  private static long number(Map<String, Object> body, String name, long least, long most) {
    return number(body.get(name), name, least, most);
  }

  private static long number(Object value, String name, long least, long most) {
    if (!(value instanceof Long number) || number < least || number > most) {
      throw Refused.damage(name + " is no number in its range");
    }
    return number;
  }
}
