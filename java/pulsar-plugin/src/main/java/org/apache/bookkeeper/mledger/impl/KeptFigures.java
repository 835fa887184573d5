package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.LinkStatus;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Figures;
import io.cursorkeeper.pulsar.Figures.OfCursor;
import io.cursorkeeper.pulsar.Figures.State;
import io.cursorkeeper.pulsar.WaitingAcks;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedger;

/**
 * Serves the broker's operator: gathers what the metrics pages show, from all loaded topics, when a
 * page is asked for.
 */
final class KeptFigures {

  private KeptFigures() {}

  static Figures of(
      Collection<ManagedLedger> ledgers,
      LinkStatus link,
      WaitingAcks waitingAcks,
      Counters counters,
      int longestMax) {
    Map<State, Long> cursors = Figures.noCursors();
    List<OfCursor> all = new ArrayList<>();
    double oldest = 0;
    long stockTopics = 0;
    for (ManagedLedger each : ledgers) {
      if (!(each instanceof KeptLedger topic)) {
        continue;
      }
      stockTopics += topic.isStock() ? 1 : 0;
      for (ManagedCursor cursor : topic.getCursors()) {
        if (cursor instanceof KeptManagedCursor kept) {
          cursors.merge(
              kept.isCursorDataFullyPersistable() ? State.KEPT : State.PAUSED, 1L, Long::sum);
          OfCursor of = of(topic, kept);
          oldest = Math.max(oldest, of.oldestSeconds());
          if (longestMax > 0) {
            all.add(of);
          }
        } else if (topic.isStock() && cursor.isDurable()) {
          cursors.merge(State.STOCK, 1L, Long::sum);
        }
      }
    }
    all.sort(
        Comparator.comparingLong(OfCursor::waitingAcks)
            .thenComparingDouble(OfCursor::oldestSeconds)
            .reversed());
    List<OfCursor> longest = List.copyOf(all.subList(0, Math.min(longestMax, all.size())));
    double ratio =
        Math.max(waitingAcks.ratio(), (double) link.pendingBytes() / Keeping.MEMORY_BYTES_MAX);
    return new Figures(
        link.up(),
        link.connects(),
        cursors,
        waitingAcks.count(),
        link.pendingBytes(),
        ratio,
        oldest,
        stockTopics,
        longest,
        counters);
  }

  private static OfCursor of(KeptLedger topic, KeptManagedCursor cursor) {
    String ledger = topic.getName();
    int domain = ledger.indexOf("/persistent/");
    return new OfCursor(
        domain < 0 ? ledger : ledger.substring(0, domain),
        ledger,
        cursor.getName(),
        cursor.waiting().count(),
        cursor.pendingBytes(),
        cursor.waiting().oldestSeconds());
  }
}
