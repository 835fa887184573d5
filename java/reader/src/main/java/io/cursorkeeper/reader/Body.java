package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.TreeMap;

/** What a delta, a segment, an end record or a whole state says: the parts that join. */
final class Body {
  /** State 0 open, 1 closed, 2 trimmed. */
  record LayoutItem(long ledger, int state, long entries) {}

  record Batch(Position entry, long size, Runs missing) {}

  record Slice(long ledger, long first, long last, boolean isOfHoles, Runs bitmap) {}

  private static final long SETS_MAX = 1L << 32;
  private static final long CONTAINERS_MAX = 1 << 18;
  private static final int SEGMENTS_MAX = 1 << 18;

  Position markDelete;
  Properties markDeleteProperties;
  Properties cursorProperties;
  final List<LayoutItem> layout = new ArrayList<>();
  final TreeMap<Long, Runs> acks = new TreeMap<>();
  final List<Batch> batches = new ArrayList<>();
  final List<Slice> slices = new ArrayList<>();

  /** Entry ids of an end record's segments. */
  final List<Long> segments = new ArrayList<>();

  long length;
  long checksum;
  private long members = SETS_MAX;
  private long containers = CONTAINERS_MAX;
  private final Room room = new Room();

  static Body ofMarkDelete(Position position) {
    Body body = new Body();
    body.markDelete = position;
    return body;
  }

  /** Of a delta, a segment or an end record. */
  static Body of(Record record) {
    int kind = record.kind();
    Input in = new Input(record.body());
    Body body = new Body();
    if (kind == Record.END) {
      body.readSegments(in);
    }
    body.readFields(in, kind == Record.DELTA ? 0x3f : kind == Record.SEGMENT ? 0x2f : 0x07);
    if (kind == Record.SEGMENT) {
      for (int count = in.count("slices", 0); count > 0; count--) {
        body.addSlice(body.readSlice(in, record.version()));
      }
    }
    if (kind == Record.END && body.markDelete == null) {
      throw Refused.damage("an end record without mark-delete");
    }
    in.end("a body");
    return body;
  }

  private void readFields(Input in, long allowed) {
    long bits = in.leb();
    if ((bits & ~allowed) != 0) {
      throw Refused.damage("field bits " + bits);
    }
    if ((bits & 1) != 0) {
      long ledger = in.leb(Input.LEDGER_MAX, "a ledger");
      markDelete = new Position(ledger, in.leb(Input.ENTRY_MAX + 1, "mark-delete's entry") - 1);
    }
    if ((bits & 2) != 0) {
      markDeleteProperties = readProperties(in, true);
    }
    if ((bits & 4) != 0) {
      cursorProperties = readProperties(in, false);
    }
    if ((bits & 8) != 0) {
      readLayout(in);
    }
    if ((bits & 16) != 0) {
      long ledger = 0;
      int count = in.count("acks", 1);
      for (int i = 0; i < count; i++) {
        ledger = in.ascending(ledger, i == 0, Input.LEDGER_MAX, "ledgers");
        room.take(Room.LEDGER);
        acks.put(ledger, readSet(in));
      }
    }
    if ((bits & 32) != 0) {
      readBatches(in);
    }
  }

  private Properties readProperties(Input in, boolean areNumbers) {
    int count = in.count("properties", 0);
    long epoch = in.leb();
    long sequence = in.leb();
    TreeMap<String, Object> values = Properties.sorted();
    for (int i = 0; i < count; i++) {
      room.take(Room.PROPERTY);
      String key = Input.utf8(in.block());
      if (!values.isEmpty() && values.comparator().compare(key, values.lastKey()) <= 0) {
        throw Refused.damage("keys that do not ascend");
      }
      if (areNumbers) {
        long zigzag = in.leb();
        values.put(key, zigzag >>> 1 ^ -(zigzag & 1));
      } else {
        values.put(key, Input.utf8(in.block()));
      }
    }
    return new Properties(epoch, sequence, values);
  }

  private void readLayout(Input in) {
    long ledger = 0;
    int count = in.count("layout items", 1);
    for (int i = 0; i < count; i++) {
      ledger = in.ascending(ledger, i == 0, Input.LEDGER_MAX, "ledgers");
      room.take(Room.LAYOUT_ITEM);
      int state = (int) in.leb(2, "a layout state");
      layout.add(
          new LayoutItem(
              ledger,
              state,
              in.leb(state == 1 ? Input.ENTRY_MAX + 1 : 0, "the entries of a ledger")));
    }
  }

  private void readBatches(Input in) {
    Position before = null;
    for (int count = in.count("batches", 1); count > 0; count--) {
      long ledger =
          in.ascending(before == null ? 0 : before.ledger(), true, Input.LEDGER_MAX, "ledgers");
      Position entry = new Position(ledger, in.leb(Input.ENTRY_MAX, "an entry"));
      if (before != null && entry.compareTo(before) <= 0) {
        throw Refused.damage("batches that do not ascend");
      }
      room.take(Room.BATCH);
      long size = in.leb(Input.ENTRY_MAX + 1, "a batch size");
      long announced = in.leb();
      Runs missing = readSet(in);
      if (missing.count() != announced || (size != 0 && missing.last() >= size)) {
        throw Refused.damage("a batch that is not what it announces");
      }
      batches.add(new Batch(entry, size, missing));
      before = entry;
    }
  }

  private Runs readSet(Input in) {
    long head = in.leb();
    long first = in.leb(Input.ENTRY_MAX, "the first of a set");
    Input body = new Input(in.bytes(head >>> 2));
    Runs.Growing found = new Runs.Growing(room);
    switch ((int) (head & 3)) {
      case 0 -> {
        long at = first;
        found.add(at, at);
        while (body.left() > 0) {
          at += body.leb(Input.ENTRY_MAX, "a gap") + 1;
          found.add(at, at);
        }
      }
      case 1 -> {
        long at = first;
        long last = at + body.leb(Input.ENTRY_MAX, "a run");
        found.add(at, last);
        while (body.left() > 0 && last <= Input.ENTRY_MAX) {
          at = last + body.leb(Input.ENTRY_MAX, "a gap") + 2;
          last = at + body.leb(Input.ENTRY_MAX, "a run");
          found.add(at, last);
        }
      }
      case 2 -> {
        byte[] bits = body.bytes(body.left());
        if (bits.length == 0 || (bits[0] & 1) == 0 || bits[bits.length - 1] == 0) {
          throw Refused.damage("a bitmap that does not begin or end with its bits");
        }
        Roaring.addBits(BitSet.valueOf(bits), first, found);
      }
      default -> throw Refused.damage("a set of mode 3");
    }
    Runs set = found.done();
    members -= set.count();
    if (set.last() > Input.ENTRY_MAX || members < 0) {
      throw Refused.damage("a set with too large members, or too many");
    }
    takeContainers(Math.min(set.count(), containersOf(set.first(), set.last())));
    return set;
  }

  private static long containersOf(long first, long last) {
    return (last >> 16) - (first >> 16) + 1;
  }

  private void takeContainers(long count) {
    containers -= count;
    if (containers < 0) {
      throw Refused.damage("sets in more than " + CONTAINERS_MAX + " containers");
    }
  }

  private void addSlice(Slice slice) {
    room.take(Room.LEDGER);
    Slice before = slices.isEmpty() ? null : slices.get(slices.size() - 1);
    long all = containersOf(slice.first(), slice.last());
    boolean isBehind =
        before == null
            || new Position(slice.ledger(), slice.first())
                    .compareTo(new Position(before.ledger(), before.last()))
                > 0;
    takeContainers(isBehind ? Math.max(1, Math.min(slice.bitmap().count(), all)) : all);
    slices.add(slice);
  }

  private Slice readSlice(Input in, int version) {
    long ledger = in.u64();
    long first = in.u32();
    long last = in.u32();
    int flags = in.u8();
    if (ledger < 0 || first > last || flags > (version == Record.WITH_SETS ? 3 : 1)) {
      throw Refused.damage(
          "a slice of " + ledger + ":" + first + "-" + last + " with flags " + flags);
    }
    byte[] raw = in.bytes(in.u32());
    Runs bitmap = (flags & 2) == 0 ? Roaring.read(raw, room) : Coded.read(raw, first, last, room);
    if (!bitmap.isEmpty() && (bitmap.first() < first || bitmap.last() > last)) {
      throw Refused.damage("a bitmap that reaches outside of its slice");
    }
    return new Slice(ledger, first, last, (flags & 1) == 1, bitmap);
  }

  private void readSegments(Input in) {
    in.u64(); // snapshot id, epoch and generation are for people
    in.u32();
    in.u32();
    length = in.u64();
    checksum = in.u32();
    long entry = 0;
    int count = in.count("segments", 1);
    if (count > SEGMENTS_MAX) {
      throw Refused.damage(count + " segments");
    }
    for (int i = 0; i < count; i++) {
      entry = in.ascending(entry, i == 0, Long.MAX_VALUE, "segments");
      segments.add(entry);
    }
  }
}
