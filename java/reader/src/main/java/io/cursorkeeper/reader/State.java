package io.cursorkeeper.reader;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** The chapter "Settling": what counts is collected in any order, and {@link #settled} says what follows from it. */
final class State {
    private static final int CLOSED = 1;
    private static final int TRIMMED = 2;

    private Position markDelete = new Position(0, -1);
    private Properties markDeleteProperties;
    private Properties cursorProperties;
    private final TreeMap<Long, Body.LayoutItem> layout = new TreeMap<>();
    private final Map<Long, List<long[]>> acks = new TreeMap<>();
    private final TreeMap<Position, Body.Batch> batches = new TreeMap<>();
    private final Map<Long, Long> highWaters = new TreeMap<>();

    void join(Body body) {
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
            ack(slice.ledger(), slice.isOfHoles() ? slice.bitmap().absentFrom(slice.first(), slice.last()) : slice.bitmap());
            reach(slice.ledger(), slice.last());
        }
        for (Body.Batch batch : body.batches) {
            batches.merge(batch.entry(), batch,
                    (a, b) -> new Body.Batch(a.entry(), Math.max(a.size(), b.size()), a.missing().and(b.missing())));
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
        List<List<Long>> runs = entries.told();
        runs.forEach(run -> acks.computeIfAbsent(ledger, any -> new ArrayList<>()).add(new long[] {run.get(0), run.get(1)}));
        if (!runs.isEmpty()) {
            reach(ledger, entries.last());
        }
    }

    private void reach(long ledger, long entry) {
        highWaters.merge(ledger, entry + 1, Math::max);
    }

    /** Settles the state and returns it as JSON. */
    Map<String, Object> settled() {
        batches.values().stream().filter(batch -> batch.missing().isEmpty())
                .forEach(batch -> ack(batch.entry().ledger(), Runs.one(batch.entry().entry(), batch.entry().entry())));
        TreeMap<Long, Runs> acked = new TreeMap<>();
        acks.forEach((ledger, runs) -> acked.put(ledger, Runs.of(runs)));
        layout.values().stream().filter(item -> item.state() == TRIMMED).forEach(item -> {
            acked.remove(item.ledger());
            highWaters.remove(item.ledger());
            batches.subMap(new Position(item.ledger(), -1), true, new Position(item.ledger(), Long.MAX_VALUE), true).clear();
        });
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
            boolean isPassed = item != null && (item.state() == TRIMMED || item.state() == CLOSED && item.entries() <= at.entry() + 1);
            Long next = isPassed ? layout.higherKey(at.ledger()) : null;
            if (next == null) {
                return;
            }
            at = new Position(next, -1);
        }
    }

    private Map<String, Object> told(TreeMap<Long, Runs> acked) {
        long from = markDelete.ledger();
        Map<String, Object> entries = new LinkedHashMap<>();
        acked.tailMap(from).forEach((ledger, runs) -> {
            Runs above = runs.and(Runs.one(ledger == from ? markDelete.entry() + 1 : 0, Input.ENTRY_MAX));
            if (!above.isEmpty()) {
                entries.put(ledger.toString(), above.told());
            }
        });
        List<Object> partly = new ArrayList<>();
        batches.tailMap(markDelete, false).forEach((entry, batch) -> {
            if (!acked.getOrDefault(entry.ledger(), Runs.NONE).contains(entry.entry())) {
                partly.add(List.of(entry.ledger(), entry.entry(), batch.size(), batch.missing().told()));
            }
        });
        Map<String, Object> high = new LinkedHashMap<>();
        highWaters.forEach((ledger, water) -> {
            if (ledger >= from) {
                high.put(ledger.toString(), water);
            }
        });
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("markDelete", markDelete.told());
        told.put("acked", entries);
        told.put("batches", partly);
        told.put("layout", layout.tailMap(from).values().stream()
                .map(item -> List.of(item.ledger(), List.of("open", "closed", "trimmed").get(item.state()), item.entries())).toList());
        told.put("markDeleteProperties", markDeleteProperties == null ? null : markDeleteProperties.told());
        told.put("cursorProperties", cursorProperties == null ? null : cursorProperties.told());
        told.put("highWaters", high);
        return told;
    }
}
