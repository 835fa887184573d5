package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The chapter "Reading a cursor": base, chain, what counts, what damage means, and the way back to
 * the snapshot before.
 */
final class CursorReader {
  /** A ledger as BookKeeper has it; an entry is null where there is no copy that it trusts. */
  record Ledger(long id, Map<String, String> metadata, List<byte[]> entries) {
    byte[] entry(long at) {
      if (at >= entries.size()) {
        throw Refused.damage("ledger " + id + " ends before entry " + at);
      }
      if (entries.get((int) at) == null) {
        throw Refused.damage("ledger " + id + ": no copy of entry " + at + " is trusted");
      }
      return entries.get((int) at);
    }
  }

  /** A snapshot that cannot be trusted: fall back. */
  private static final class SnapshotDamaged extends Exception {
    private static final long serialVersionUID = 1L;

    SnapshotDamaged(String why) {
      super(why);
    }
  }

  private final Footer footer;
  private final Map<Long, Ledger> ledgers;

  /** Damage there is skipped: see the page's table. */
  private final Set<Position> skippable;

  private State state;

  private CursorReader(Footer footer, Map<Long, Ledger> ledgers) {
    this.footer = footer;
    this.ledgers = ledgers;
    this.skippable = new HashSet<>(footer.damaged);
  }

  /** The settled state as JSON. */
  static Map<String, Object> read(Footer footer, Map<Long, Ledger> ledgers) {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("state", footer.state);
    if (footer.state.equals("deleted")) {
      return told;
    }
    told.put("epoch", footer.epoch);
    told.put("generation", footer.generation);
    CursorReader reader = new CursorReader(footer, ledgers);
    told.put("fellBack", reader.readWithFallBack());
    told.putAll(reader.state.settled());
    return told;
  }

  private boolean readWithFallBack() {
    try {
      read(footer.current);
      return false;
    } catch (SnapshotDamaged damage) {
      if (footer.previous == null) {
        throw Refused.damage(damage.getMessage() + "; there is nothing to fall back to");
      }
    }
    List<Footer.Ledger> chain = new ArrayList<>(footer.previous.chain());
    for (Footer.Ledger item : footer.current.chain()) {
      if (footer.previous.chain().stream().noneMatch(known -> known.ledger() == item.ledger())) {
        chain.add(item);
      }
    }
    try {
      read(new Footer.Part(footer.previous.base(), chain));
      return true;
    } catch (SnapshotDamaged damage) {
      throw Refused.damage("both snapshots: " + damage.getMessage());
    }
  }

  private void read(Footer.Part part) throws SnapshotDamaged {
    state = new State();
    state.join(Body.ofMarkDelete(footer.markDelete));
    state.joinCursorProperties(footer.cursorProperties);
    Footer.Base base = part.base();
    Body end = null;
    if (base.markDelete() != null) {
      state.join(Body.ofMarkDelete(base.markDelete()));
    } else if (base.inline() != null) {
      if (base.inline().generation() != footer.generation || base.inline().epoch() > footer.epoch) {
        throw Refused.damage("an inline state of another generation, or of a later epoch");
      }
      state.join(Body.of(base.inline()));
    } else if (base.pulsar() != null) {
      state.join(base.pulsar().body());
    } else {
      end = readEnd(base.snapshot());
    }
    for (Footer.Ledger item : part.chain()) {
      if (!item.isPulsar() && item.lastEntry() != null && item.lastEntry() < 0) {
        continue;
      }
      Ledger ledger = ledger(item.ledger());
      long last = item.lastEntry() == null ? ledger.entries().size() - 1 : item.lastEntry();
      if (item.isPulsar()) {
        state.join(PulsarState.newest(ledger, last, footer));
      } else {
        boolean isBase = end != null && item.ledger() == base.snapshot().ledger();
        readRecords(ledger, last, isBase ? base.snapshot() : null, isBase ? end : null);
      }
    }
  }

  private Ledger ledger(long id) {
    if (!ledgers.containsKey(id)) {
      throw Refused.missing("ledger " + id + " does not exist");
    }
    return ledgers.get(id);
  }

  private Body readEnd(Footer.Snapshot base) throws SnapshotDamaged {
    skippable.add(new Position(base.ledger(), base.lastEntry()));
    Ledger ledger = ledger(base.ledger());
    if (base.lastEntry() >= ledger.entries().size()) {
      throw Refused.damage("ledger " + base.ledger() + " ends before its snapshot does");
    }
    Body end;
    try {
      Record record = Record.read(ledger.entries().get((int) base.lastEntry()), footer.cursor);
      end = record.kind() == Record.END ? Body.of(record) : null;
      if (end == null
          || record.crc() != base.crc()
          || record.generation() != footer.generation
          || end.segments.get(0) != base.firstEntry()) {
        throw Refused.damage("not the end record that the footer names");
      }
    } catch (Refused e) {
      throw orSnapshotDamaged(e);
    }
    if (end.segments.size() != base.numParts() || end.length != base.length()) {
      throw Refused.damage("a snapshot of another size than the footer says");
    }
    end.segments.forEach(entry -> skippable.add(new Position(base.ledger(), entry)));
    state.join(end);
    return end;
  }

  private static SnapshotDamaged orSnapshotDamaged(Refused e) {
    if (e.isFinal()) {
      throw e;
    }
    return new SnapshotDamaged(e.getMessage());
  }

  /** {@code base} and {@code end} only of the ledger that holds the snapshot. */
  private void readRecords(Ledger ledger, long last, Footer.Snapshot base, Body end)
      throws SnapshotDamaged {
    Map<Long, Long> checksums = new TreeMap<>();
    for (long at = 0; at <= last; at++) {
      if (at >= ledger.entries().size()) {
        throw Refused.damage("ledger " + ledger.id() + " ends before entry " + last);
      }
      boolean isListed = end != null && end.segments.contains(at);
      try {
        readRecord(ledger, at, base, isListed, checksums);
      } catch (Refused e) {
        if (!e.isFinal() && (isListed || (base != null && at == base.lastEntry()))) {
          throw new SnapshotDamaged(e.getMessage());
        }
        boolean isInFront = base != null && at > 0 && at < base.firstEntry();
        boolean isOpenRecord = at == 0 && e.kind != Refused.Kind.FOREIGN;
        if (e.isFinal()
            || (!isInFront
                && !skippable.contains(new Position(ledger.id(), at))
                && !isOpenRecord)) {
          throw e;
        }
      }
    }
    if (end != null) {
      java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
      for (long entry : end.segments) {
        if (!checksums.containsKey(entry)) {
          throw new SnapshotDamaged("a segment is missing");
        }
        int told = checksums.get(entry).intValue();
        crc.update(
            new byte[] {(byte) told, (byte) (told >> 8), (byte) (told >> 16), (byte) (told >> 24)});
      }
      if (crc.getValue() != end.checksum) {
        throw new SnapshotDamaged("not the segments that the end record was made of");
      }
    }
  }

  private void readRecord(
      Ledger ledger, long at, Footer.Snapshot base, boolean isListed, Map<Long, Long> checksums) {
    Record record = Record.read(ledger.entries().get((int) at), footer.cursor);
    if (record.epoch() > footer.epoch) {
      throw Refused.foreign("entry " + at + " is of a later epoch");
    }
    if (record.generation() != footer.generation) {
      return;
    }
    if (record.kind() == Record.SEGMENT && isListed) {
      state.join(Body.of(record));
      checksums.put(at, record.crc());
    } else if (record.kind() == Record.DELTA && (base == null || at >= base.firstEntry())) {
      state.join(Body.of(record));
    }
  }

  // ---- what Main passes on

  /** The ledgers of a case, from its JSON. */
  static Map<Long, Ledger> ledgersOf(Map<?, ?> told) {
    Map<Long, Ledger> found = new HashMap<>();
    told.forEach(
        (id, ledger) -> {
          Map<String, String> metadata = new HashMap<>();
          ((Map<?, ?>) ((Map<?, ?>) ledger).get("metadata"))
              .forEach((key, value) -> metadata.put((String) key, (String) value));
          List<byte[]> entries = new ArrayList<>();
          for (Object entry : (List<?>) ((Map<?, ?>) ledger).get("entries")) {
            entries.add(entry == null ? null : java.util.HexFormat.of().parseHex((String) entry));
          }
          found.put(
              Long.parseLong((String) id),
              new Ledger(Long.parseLong((String) id), metadata, entries));
        });
    return found;
  }
}
