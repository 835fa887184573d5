package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * The chapter "Settling": what counts is collected in any order, and {@link #settled} says what
 * follows from it.
 */
final class State {
  private static final int CLOSED = 1;
  private static final int TRIMMED = 2;

  private Position markDelete = new Position(0, -1);
  private Properties markDeleteProperties;
  private Properties cursorProperties;
  private final TreeMap<Long, Body.LayoutItem> layout = new TreeMap<>();
  private final TreeMap<Long, List<long[]>> acks = new TreeMap<>();
  private final TreeMap<Position, Body.Batch> batches = new TreeMap<>();
  private final TreeMap<Long, Long> highWaters = new TreeMap<>();
  private long runs;

  /** Multiples of 65,536 below the high waters. */
  private long containers;

  /** Joins, and refuses what takes too much memory. */
  void join(Body body) {
    joinAll(body);
    if (bytes() > 2 * Room.BYTES_MAX || layout.size() > Room.LAYOUT_ITEMS_MAX) {
      compact();
    }
  }

  private long bytes() {
    return runs * Room.RUN
        + containers * Room.CONTAINER
        + (long) highWaters.size() * Room.LEDGER
        + (long) batches.size() * Room.BATCH
        + (long) layout.size() * Room.LAYOUT_ITEM;
  }

  /** Forgets what is behind mark-delete or in trimmed ledgers, and makes one of runs that touch. */
  private void compact() {
    long from = markDelete.ledger();
    List.of(acks, highWaters, layout).forEach(told -> told.headMap(from).clear());
    batches.headMap(markDelete, true).clear();
    forgetTrimmed();
    runs = containers = 0;
    acks.replaceAll((ledger, told) -> Runs.of(told).copies());
    highWaters.forEach(
        (ledger, water) -> {
          Runs acked = Runs.of(acks.getOrDefault(ledger, List.of()));
          runs += acked.size();
          Runs all = ledger == from ? acked.or(Runs.one(0, markDelete.entry())) : acked;
          containers += Math.max(0, containersBelow(water) - all.wholeContainers());
        });
    Room.check(bytes());
    if (layout.size() > Room.LAYOUT_ITEMS_MAX) {
      throw Refused.tooLarge(
          "a layout of " + layout.size() + " ledgers: " + Room.LAYOUT_ITEMS_MAX + " are allowed");
    }
  }

  private static long containersBelow(long highWater) {
    return (highWater + 0xffff) >> 16;
  }

  private void forgetTrimmed() {
    layout.values().stream()
        .filter(item -> item.state() == TRIMMED)
        .forEach(
            item -> {
              acks.remove(item.ledger());
              highWaters.remove(item.ledger());
              batches
                  .subMap(
                      new Position(item.ledger(), -1),
                      true,
                      new Position(item.ledger(), Long.MAX_VALUE),
                      true)
                  .clear();
            });
  }

  private void joinAll(Body body) {
    if (body.markDelete != null && body.markDelete.compareTo(markDelete) > 0) {
      markDelete = body.markDelete;
    }
    markDeleteProperties = Properties.later(markDeleteProperties, body.markDeleteProperties);
    joinCursorProperties(body.cursorProperties);
    for (Body.LayoutItem item : body.layout) {
      layout.merge(item.ledger(), item, (a, b) -> rank(b) > rank(a) ? b : a);
    }
    body.acks.forEach(this::ack);
    for (Body.Slice slice : body.slices) {
      ack(
          slice.ledger(),
          slice.isOfHoles()
              ? slice.bitmap().absentFrom(slice.first(), slice.last())
              : slice.bitmap());
      reach(slice.ledger(), slice.last());
    }
    for (Body.Batch batch : body.batches) {
      batches.merge(
          batch.entry(),
          batch,
          (a, b) ->
              new Body.Batch(
                  a.entry(), Math.max(a.size(), b.size()), a.missing().and(b.missing())));
      reach(batch.entry().ledger(), batch.entry().entry());
    }
  }

  void joinCursorProperties(Properties properties) {
    cursorProperties = Properties.later(cursorProperties, properties);
  }

  private static long rank(Body.LayoutItem item) {
    return ((long) item.state() << 33) + item.entries();
  }

  private void ack(long ledger, Runs entries) {
    if (!entries.isEmpty()) {
      acks.computeIfAbsent(ledger, any -> new ArrayList<>()).addAll(entries.copies());
      runs += entries.size();
      reach(ledger, entries.last());
    }
  }

  private void reach(long ledger, long entry) {
    long before = highWaters.getOrDefault(ledger, 0L);
    if (entry + 1 > before) {
      containers += containersBelow(entry + 1) - containersBelow(before);
      highWaters.put(ledger, entry + 1);
    }
  }

  /** Settles the state and returns it as JSON. */
  Map<String, Object> settled() {
    batches.values().stream()
        .filter(batch -> batch.missing().isEmpty())
        .forEach(
            batch ->
                ack(
                    batch.entry().ledger(),
                    Runs.one(batch.entry().entry(), batch.entry().entry())));
    compact();
    TreeMap<Long, Runs> acked = new TreeMap<>();
    acks.forEach((ledger, told) -> acked.put(ledger, Runs.of(told)));
    if (markDelete.entry() >= 0) {
      acked.merge(markDelete.ledger(), Runs.one(0, markDelete.entry()), Runs::or);
      reach(markDelete.ledger(), markDelete.entry());
    }
    takeAckedPrefix(acked);
    return told(acked);
  }

  private void takeAckedPrefix(Map<Long, Runs> acked) {
    Position at = markDelete;
    while (true) {
      long prefix = acked.getOrDefault(at.ledger(), Runs.NONE).prefix();
      if (prefix > at.entry()) {
        at = markDelete = new Position(at.ledger(), prefix);
      }
      Body.LayoutItem item = layout.get(at.ledger());
      boolean isPassed =
          item != null
              && (item.state() == TRIMMED
                  || (item.state() == CLOSED && item.entries() <= at.entry() + 1));
      Long next = isPassed ? layout.higherKey(at.ledger()) : null;
      if (next == null) {
        return;
      }
      at = new Position(next, -1);
    }
  }

  private Map<String, Object> told(SortedMap<Long, Runs> acked) {
    long from = markDelete.ledger();
    Map<String, Object> entries = new LinkedHashMap<>();
    acked
        .tailMap(from)
        .forEach(
            (ledger, runs) -> {
              Runs above =
                  runs.and(Runs.one(ledger == from ? markDelete.entry() + 1 : 0, Input.ENTRY_MAX));
              if (!above.isEmpty()) {
                entries.put(ledger.toString(), above.told());
              }
            });
    List<Object> partly = new ArrayList<>();
    batches
        .tailMap(markDelete, false)
        .forEach(
            (entry, batch) -> {
              if (!acked.getOrDefault(entry.ledger(), Runs.NONE).contains(entry.entry())) {
                partly.add(
                    List.of(entry.ledger(), entry.entry(), batch.size(), batch.missing().told()));
              }
            });
    Map<String, Object> high = new LinkedHashMap<>();
    highWaters.forEach(
        (ledger, water) -> {
          if (ledger >= from) {
            high.put(ledger.toString(), water);
          }
        });
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("markDelete", markDelete.told());
    told.put("acked", entries);
    told.put("batches", partly);
    told.put(
        "layout",
        layout.tailMap(from).values().stream()
            .map(
                item ->
                    List.of(
                        item.ledger(),
                        List.of("open", "closed", "trimmed").get(item.state()),
                        item.entries()))
            .toList());
    told.put(
        "markDeleteProperties", markDeleteProperties == null ? null : markDeleteProperties.told());
    told.put("cursorProperties", cursorProperties == null ? null : cursorProperties.told());
    told.put("highWaters", high);
    return told;
  }
}
