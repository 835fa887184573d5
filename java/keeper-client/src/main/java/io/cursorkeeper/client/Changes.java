package io.cursorkeeper.client;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What one cursor has to tell, joined, and who waits for it. Of one thread at a time. */
final class Changes {

  private static final int DATA_LEDGER_BYTES = 48;
  private static final int PROPERTY_BYTES = 128;

  final AckSet acks = new AckSet();

  /** Null: unchanged. */
  Map<String, String> cursorProperties;

  /** Runs, each to be told in its turn. */
  List<List<DataLedger>> layout = new ArrayList<>();

  List<Answer<?>> answers = new ArrayList<>();

  boolean isEmpty() {
    return acks.isEmpty() && cursorProperties == null && layout.isEmpty();
  }

  long bytes() {
    long bytes =
        acks.bytes()
            + (cursorProperties == null ? 0 : (long) PROPERTY_BYTES * cursorProperties.size());
    for (List<DataLedger> run : layout) {
      bytes += (long) DATA_LEDGER_BYTES * run.size();
    }
    return bytes;
  }

  /** Adds what came later; takes its parts for its own. */
  void join(Changes later) {
    acks.join(later.acks);
    if (later.cursorProperties != null) {
      cursorProperties = later.cursorProperties;
    }
    later.layout.forEach(this::tell);
    answers.addAll(later.answers);
  }

  /** A run that begins within the newest one that waits continues it. */
  void tell(List<DataLedger> run) {
    if (run.isEmpty()) {
      return;
    }
    if (!layout.isEmpty()) {
      List<DataLedger> last = layout.get(layout.size() - 1);
      if (contains(last, run.get(0).ledger())) {
        TreeMap<Long, DataLedger> joined = new TreeMap<>();
        last.forEach(each -> joined.put(each.ledger(), each));
        run.forEach(each -> joined.put(each.ledger(), each));
        layout.set(layout.size() - 1, List.copyOf(joined.values()));
        return;
      }
    }
    layout.add(List.copyOf(run));
  }

  private static boolean contains(List<DataLedger> run, long ledger) {
    for (DataLedger each : run) {
      if (each.ledger() == ledger) {
        return true;
      }
    }
    return false;
  }
}
