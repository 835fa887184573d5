package io.cursorkeeper.pulsar;

import io.cursorkeeper.client.DataLedger;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;

/** What the keeper is told of a topic's data ledgers. */
public final class Layouts {

  private Layouts() {}

  /**
   * The run that tells everything new: it touches what the keeper knows and leaves none of that
   * out. A ledger that the keeper knows and the topic has no more was trimmed, or was empty and
   * left out at a load: TRIMMED.
   *
   * @param known to the keeper, ascending
   * @param entries of the topic's ledgers by id; that of the open one does not count
   * @param open id of the ledger that is written now, or -1
   * @param first ledgers below it are of no interest: all of theirs is acked
   */
  public static List<DataLedger> run(
      List<DataLedger> known, NavigableMap<Long, Long> entries, long open, long first) {
    TreeMap<Long, DataLedger> run = new TreeMap<>();
    for (DataLedger each : known) {
      run.put(each.ledger(), DataLedger.trimmed(each.ledger()));
    }
    long from = run.isEmpty() ? first : Math.min(first, run.firstKey());
    entries
        .tailMap(from, true)
        .forEach(
            (ledger, count) ->
                run.put(
                    ledger,
                    ledger == open ? DataLedger.open(ledger) : DataLedger.closed(ledger, count)));
    return new ArrayList<>(run.values());
  }
}
