package io.cursorkeeper.pulsar;

import static io.cursorkeeper.client.DataLedger.closed;
import static io.cursorkeeper.client.DataLedger.open;
import static io.cursorkeeper.client.DataLedger.trimmed;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class LayoutsTest {

  private static NavigableMap<Long, Long> entries(long... pairs) {
    TreeMap<Long, Long> entries = new TreeMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      entries.put(pairs[i], pairs[i + 1]);
    }
    return entries;
  }

  @Test
  void aKeeperThatKnowsNothingHearsFromMarkDeleteOn() {
    assertEquals(
        List.of(closed(5, 10), open(7)), Layouts.run(List.of(), entries(3, 10, 5, 10, 7, 0), 7, 5));
  }

  @Test
  void whatTheKeeperKnowsIsGoneThrough() {
    assertEquals(
        List.of(closed(5, 10), closed(7, 4), open(9)),
        Layouts.run(List.of(closed(5, 10), open(7)), entries(5, 10, 7, 4, 9, 0), 9, 5));
  }

  @Test
  void anEmptyLedgerThatPulsarLeftOutIsTrimmed() {
    assertEquals(
        List.of(closed(5, 10), trimmed(7), open(9)),
        Layouts.run(List.of(closed(5, 10), open(7)), entries(5, 10, 9, 0), 9, 5));
  }

  @Test
  void trimmedLedgersAreTold() {
    assertEquals(
        List.of(trimmed(3), trimmed(5), closed(7, 4), open(9)),
        Layouts.run(List.of(closed(3, 1), closed(5, 10), open(7)), entries(7, 4, 9, 0), 9, 7));
  }

  @Test
  void aTerminatedTopicHasNoOpenLedger() {
    assertEquals(List.of(closed(5, 10)), Layouts.run(List.of(open(5)), entries(5, 10), -1, 5));
  }

  @Test
  void ledgersBelowWhatTheKeeperKnowsAreTold() {
    assertEquals(
        List.of(closed(3, 2), closed(5, 10), open(7)),
        Layouts.run(List.of(closed(5, 10)), entries(3, 2, 5, 10, 7, 0), 7, 3));
  }
}
