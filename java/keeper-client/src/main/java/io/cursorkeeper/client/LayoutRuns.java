package io.cursorkeeper.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;

/** Cuts a run of data ledgers into runs that a keeper takes. Pure. */
final class LayoutRuns {

  private LayoutRuns() {}

  /** One at least; each begins with the last ledger of the one before. */
  static List<List<DataLedger>> cut(List<DataLedger> run, int ledgersMax) {
    if (run.size() <= ledgersMax) {
      return List.of(run);
    }
    List<List<DataLedger>> runs = new ArrayList<>();
    for (int at = 0; at < run.size() - 1; at += ledgersMax - 1) {
      runs.add(run.subList(at, Math.min(run.size(), at + ledgersMax)));
    }
    return runs;
  }

  /**
   * For an opening: the first names the ledger of {@code start}, where a new cursor begins; those
   * below it follow downwards, because a cursor that exists may not have come so far.
   */
  static List<List<DataLedger>> forOpening(
      List<DataLedger> run, Optional<Position> start, int ledgersMax) {
    List<List<DataLedger>> runs = cut(run, ledgersMax);
    int at = 0;
    while (start.isPresent() && at < run.size() && run.get(at).ledger() != start.get().ledger()) {
      at++;
    }
    if (start.isEmpty() || at == run.size() || at < runs.get(0).size()) {
      return runs;
    }
    List<List<DataLedger>> all = new ArrayList<>(cut(run.subList(at, run.size()), ledgersMax));
    List<List<DataLedger>> below = new ArrayList<>(cut(run.subList(0, at + 1), ledgersMax));
    Collections.reverse(below);
    all.addAll(below);
    return all;
  }
}
