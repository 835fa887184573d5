package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A whole state in Pulsar's form: PositionInfo, or the znode's ManagedCursorInfo, which holds the
 * same under other field numbers.
 */
final class PulsarState {
  /** A base {@code pulsar} of a footer. */
  record Inline(Body body) {
    Inline(byte[] value, long epoch) {
      this(read(unwrapped(value), true, epoch));
    }
  }

  private static final int BATCH_MAX = 65_536;
  private static final int INLINE_MAX = 4 << 20;

  /** Field 1 to 6 of PositionInfo, by their numbers in the znode's message. */
  private static final Map<Integer, Integer> ZNODE_FIELDS = Map.of(2, 1, 3, 2, 4, 3, 5, 4, 7, 5);

  private final Map<String, Long> once = new HashMap<>();
  private final List<long[]> crossing = new ArrayList<>();
  private final Map<Long, Runs.Growing> ranges = new TreeMap<>();
  private final Map<Long, Runs.Growing> arrays = new TreeMap<>();
  private final Room room = new Room();
  private final TreeMap<Position, Runs> batches = new TreeMap<>();
  private final TreeMap<String, Object> properties = Properties.sorted();
  private boolean hasRanges;
  private String newer;

  private PulsarState() {}

  static Body read(byte[] message, boolean isZnode, long epoch) {
    PulsarState state = new PulsarState();
    for (Wire.Field field : Wire.fields(message, state.room)) {
      if (!isZnode) {
        state.take(field.number() == 7 && field.content() == null ? 0 : field.number(), field);
      } else if (field.number() == 1) {
        state.put("cursorsLedgerId", field);
      } else if (field.number() == 6) {
        state.put("lastActive", field);
      } else if (field.number() == 8) {
        state.takeText(field);
      } else {
        state.take(ZNODE_FIELDS.getOrDefault(field.number(), 0), field);
      }
    }
    if (isZnode && state.required("cursorsLedgerId") != -1) {
      throw Refused.damage("an inline state that names a cursor ledger");
    }
    return state.body(epoch);
  }

  private void take(int number, Wire.Field field) {
    switch (number) {
      case 1 -> put("ledgerId", field);
      case 2 -> put("entryId", field);
      case 3 -> takeRange(field);
      case 4 -> takeProperty(field);
      case 5 -> takeBatch(field);
      case 6 -> takeLongArray(field);
      case 7 -> newer = "a chunk of a state";
      default -> {}
    }
  }

  private Body body(long epoch) {
    Body body = Body.ofMarkDelete(position(required("ledgerId"), required("entryId"), -1));
    for (long[] range : crossing) {
      if (new Position(range[2], range[3]).compareTo(body.markDelete) > 0) {
        throw Refused.damage("a range across data ledgers");
      }
    }
    if (newer != null) {
      throw Refused.tooNew(newer);
    }
    (hasRanges ? ranges : arrays)
        .forEach(
            (ledger, runs) -> {
              if (!runs.isEmpty()) {
                ack(body, ledger, runs.done());
              }
            });
    batches.forEach(
        (entry, missing) -> {
          if (missing.isEmpty()) {
            ack(body, entry.ledger(), Runs.one(entry.entry(), entry.entry()));
          } else {
            body.batches.add(new Body.Batch(entry, 0, missing));
          }
        });
    body.markDeleteProperties = properties.isEmpty() ? null : new Properties(epoch, 0, properties);
    return body;
  }

  /** What is at or below mark-delete is acked anyway. */
  private static void ack(Body body, long ledger, Runs entries) {
    body.acks.merge(ledger, entries, Runs::or);
  }

  private void put(String name, Wire.Field field) {
    if (once.put(name, field.signed()) != null) {
      throw Refused.damage(name + " is there twice");
    }
  }

  private long required(String name) {
    if (!once.containsKey(name)) {
      throw Refused.damage(name + " is missing");
    }
    return once.get(name);
  }

  private static Position position(long ledger, long entry, long least) {
    if (ledger < 0 || entry < least || entry > Input.ENTRY_MAX) {
      throw Refused.damage(ledger + ":" + entry + " is no position");
    }
    return new Position(ledger, entry);
  }

  /** A message of which only fields 1 and 2 are known. */
  private Wire.Field[] pair(Wire.Field message) {
    Wire.Field[] found = new Wire.Field[2];
    for (Wire.Field field : Wire.fields(message.message(), room)) {
      if (field.number() > 2) {
        newer = "field " + field.number() + " inside of a state";
      } else if (found[field.number() - 1] != null) {
        throw Refused.damage("a field that is there twice");
      } else {
        found[field.number() - 1] = field;
      }
    }
    if (found[0] == null || found[1] == null) {
      throw Refused.damage("a required field is missing");
    }
    return found;
  }

  private void takeRange(Wire.Field field) {
    hasRanges = true;
    Wire.Field[] ends = pair(field);
    Wire.Field[] lower = pair(ends[0]);
    Wire.Field[] upper = pair(ends[1]);
    long[] range = {lower[0].signed(), lower[1].signed(), upper[0].signed(), upper[1].signed()};
    if (position(range[0], range[1], -1).compareTo(position(range[2], range[3], -1)) > 0) {
      throw Refused.damage("a range whose ends are out of order");
    }
    if (range[0] != range[2]) {
      room.take(Room.RUN);
      crossing.add(range);
    } else if (range[1] < range[3]) {
      ranges.computeIfAbsent(range[0], any -> new Runs.Growing(room)).add(range[1] + 1, range[3]);
    }
  }

  private void takeProperty(Wire.Field field) {
    Wire.Field[] pair = pair(field);
    properties.put(Input.utf8(pair[0].message()), pair[1].signed());
  }

  private void takeText(Wire.Field field) {
    Wire.Field[] pair = pair(field);
    Input.utf8(pair[0].message());
    Input.utf8(pair[1].message());
  }

  private void takeLongArray(Wire.Field field) {
    Long key = null;
    List<Long> words = new ArrayList<>();
    for (Wire.Field inner : Wire.fields(field.message(), room)) {
      if (inner.number() == 2) {
        words.addAll(inner.numbers(room));
      } else if (inner.number() == 1 && key == null) {
        key = inner.signed();
      } else if (inner.number() == 1) {
        throw Refused.damage("a key that is there twice");
      } else {
        newer = "field " + inner.number() + " of a long array";
      }
    }
    if (key == null || key < 0) {
      throw Refused.damage("a long array without its ledger");
    }
    Roaring.addBits(bits(words), 0, arrays.computeIfAbsent(key, any -> new Runs.Growing(room)));
  }

  private void takeBatch(Wire.Field field) {
    Wire.Field[] place = null;
    List<Long> words = new ArrayList<>();
    for (Wire.Field inner : Wire.fields(field.message(), room)) {
      if (inner.number() == 2) {
        words.addAll(inner.numbers(room));
      } else if (inner.number() == 1 && place == null) {
        place = pair(inner);
      } else if (inner.number() == 1) {
        throw Refused.damage("a position that is there twice");
      } else {
        newer = "field " + inner.number() + " of a batch";
      }
    }
    if (place == null) {
      throw Refused.damage("a batch without its position");
    }
    Position entry = position(place[0].signed(), place[1].signed(), 0);
    room.take(Room.BATCH);
    Runs.Growing missing = new Runs.Growing(room);
    Roaring.addBits(bits(words), 0, missing);
    Runs found = missing.done();
    if (!found.isEmpty()) {
      if (found.last() >= BATCH_MAX) {
        throw Refused.damage("a batch of more than " + BATCH_MAX);
      }
      batches.merge(entry, found, Runs::and);
    }
  }

  private static BitSet bits(List<Long> words) {
    return BitSet.valueOf(words.stream().mapToLong(Long::longValue).toArray());
  }

  // ---- the compression header of a znode

  private static byte[] unwrapped(byte[] value) {
    if (value.length < 2 || value[0] != 0x47 || value[1] != 0x78) {
      return value;
    }
    Input in = new Input(value);
    in.bytes(2);
    byte[] metadata = in.bytes(bigEndian(in.bytes(4)));
    Map<Integer, Long> told = new HashMap<>();
    boolean isNewer = false;
    for (Wire.Field field : Wire.fields(metadata, new Room())) {
      isNewer |= field.number() > 2;
      if (field.number() <= 2 && told.put(field.number(), field.signed()) != null) {
        throw Refused.damage("a compression header that says something twice");
      }
    }
    if (told.get(1) == null || told.get(2) == null) {
      throw Refused.damage("a compression header without type or size");
    }
    if (isNewer || told.get(1) < 0 || told.get(1) > 4) {
      throw Refused.tooNew("compression type " + told.get(1));
    }
    if (told.get(2) < 0 || told.get(2) > INLINE_MAX) {
      throw Refused.damage("an inline state of " + told.get(2) + " bytes");
    }
    String codec = List.of("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY").get(told.get(1).intValue());
    return Codecs.expand(codec, in.bytes(in.left()), told.get(2).intValue());
  }

  static int bigEndian(byte[] four) {
    return java.nio.ByteBuffer.wrap(four).getInt();
  }

  /** Protobuf's wire format. */
  static final class Wire {
    /** {@code content} null: a number ({@code isNumber}), or of a fixed width. */
    record Field(int number, boolean isNumber, long value, byte[] content) {
      long signed() {
        if (!isNumber) {
          throw Refused.damage("field " + number + " is no number");
        }
        return value;
      }

      byte[] message() {
        if (content == null) {
          throw Refused.damage("field " + number + " has no content");
        }
        return content;
      }

      /** The field's numbers: a single one, or a packed list. */
      List<Long> numbers(Room room) {
        if (content == null) {
          return List.of(signed());
        }
        List<Long> found = new ArrayList<>();
        for (Input in = new Input(content); in.left() > 0; ) {
          room.take(Room.WORD);
          found.add(varint(in));
        }
        return found;
      }
    }

    private Wire() {}

    static List<Field> fields(byte[] message, Room room) {
      List<Field> found = new ArrayList<>();
      for (Input in = new Input(message); in.left() > 0; ) {
        room.take(Room.FIELD);
        long tag = varint(in);
        long number = tag >>> 3;
        if (number == 0 || number >= 1 << 29) {
          throw Refused.damage("field number " + number);
        }
        found.add(
            switch ((int) (tag & 7)) {
              case 0 -> new Field((int) number, true, varint(in), null);
              case 1 -> new Field((int) number, false, in.u64(), null);
              case 2 -> new Field((int) number, false, 0, in.bytes(varint(in)));
              case 5 -> new Field((int) number, false, in.u32(), null);
              default -> throw Refused.damage("wire type " + (tag & 7));
            });
      }
      return found;
    }

    /** At most ten bytes, need not be minimal. */
    private static long varint(Input in) {
      long value = 0;
      for (int shift = 0; shift < 70; shift += 7) {
        int next = in.u8();
        if (shift == 63 && (next & 0x7f) > 1) {
          break;
        }
        value |= (long) (next & 0x7f) << shift;
        if (next < 0x80) {
          return value;
        }
      }
      throw Refused.damage("a varint of more than 64 bits");
    }
  }

  // ---- a ledger of whole states

  /** The newest complete state of one of our own ledgers, from its end. */
  static Body newest(CursorReader.Ledger ledger, long lastEntry, Footer footer) {
    Map<String, String> metadata = ledger.metadata();
    if (!footer.canonical.equals(metadata.get("cursor"))
        || !"pulsar".equals(metadata.get("format"))) {
      throw Refused.damage("a ledger of another cursor, or of another format");
    }
    long epoch = number(metadata, "epoch");
    long size = number(metadata, "entry-bytes-max");
    String codec = metadata.get("pulsar/cursor-compressionType");
    if (codec != null && !List.of("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY").contains(codec)) {
      throw Refused.tooNew("codec " + codec);
    }
    if (epoch > footer.epoch || number(metadata, "generation") != footer.generation) {
      throw Refused.damage("a ledger of a later epoch, or of another generation");
    }
    for (long at = lastEntry; at >= 0; at--) {
      byte[] entry = ledger.entry(at);
      long before = at == 0 ? 0 : ledger.entry(at - 1).length;
      if (entry.length > size) {
        throw Refused.damage("entry " + at + " is longer than a slice");
      }
      long[] parts = footer(entry);
      if (entry.length == size || before == size) {
        if (parts != null && parts[0] > 1 && parts[0] == 1 + parts[1] / size) {
          throw Refused.damage("entry " + at + ": a footer whose last slice is missing");
        }
        continue; // a slice of a state that was never complete
      }
      byte[] buffer = parts == null ? entry : joined(ledger, at, parts, size);
      return read(codec == null ? buffer : expanded(buffer, codec), false, epoch);
    }
    throw Refused.damage("a ledger without a state");
  }

  private static long number(Map<String, String> metadata, String name) {
    try {
      return Long.parseLong(metadata.getOrDefault(name, ""));
    } catch (NumberFormatException e) {
      throw Refused.damage("custom metadata without " + name);
    }
  }

  /** {numParts, length}, if the entry has that form. */
  private static long[] footer(byte[] entry) {
    if (entry.length == 0 || entry.length > 256 || entry[0] != '{') {
      return null;
    }
    try {
      Map<?, ?> told = (Map<?, ?>) Json.parse(Input.utf8(entry));
      boolean isFooter = told.get("numParts") instanceof Long && told.get("length") instanceof Long;
      return isFooter ? new long[] {(Long) told.get("numParts"), (Long) told.get("length")} : null;
    } catch (Refused e) {
      return null;
    }
  }

  private static byte[] joined(CursorReader.Ledger ledger, long at, long[] parts, long size) {
    long first = at - parts[0];
    if (parts[0] < 1
        || first < 0
        || parts[1] < 0
        || parts[1] > Integer.MAX_VALUE
        || parts[0] != 1 + parts[1] / size) {
      throw Refused.damage(
          "entry " + at + ": a footer of " + parts[0] + " parts and " + parts[1] + " bytes");
    }
    long stored = 0;
    for (long slice = first; slice < at; slice++) {
      stored += ledger.entry(slice).length;
    }
    if (stored != parts[1]) {
      throw Refused.damage(
          "entry " + at + ": " + stored + " bytes where the footer says " + parts[1]);
    }
    byte[] buffer = new byte[(int) stored];
    int filled = 0;
    for (long slice = first; slice < at; slice++) {
      byte[] part = ledger.entry(slice);
      if (slice < at - 1 && part.length != size) {
        throw Refused.damage("entry " + slice + " is not the slice that its footer counts");
      }
      System.arraycopy(part, 0, buffer, filled, part.length);
      filled += part.length;
    }
    return buffer;
  }

  private static byte[] expanded(byte[] buffer, String codec) {
    Input in = new Input(buffer);
    int length = bigEndian(in.bytes(4));
    if (length < 0) {
      throw Refused.damage("an expanded length of " + length);
    }
    return Codecs.expand(codec, in.bytes(in.left()), length);
  }
}
