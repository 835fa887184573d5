package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.client.Position;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class DifferenceTest {

  private static final NavigableMap<Long, Long> LEDGERS =
      new TreeMap<>(Map.of(3L, 10L, 5L, 10L, 8L, 4L));

  private static BitSet bits(int... set) {
    BitSet bits = new BitSet();
    for (int each : set) {
      bits.set(each);
    }
    return bits;
  }

  private static Picture picture(long ledger, long entry, Map<Long, BitSet> acked) {
    return new Picture(
        new Position(ledger, entry), new TreeMap<>(acked), new HashMap<>(), Map.of());
  }

  private static Picture with(Picture of, Position batch, BitSet left) {
    of.left().put(batch, left);
    return of;
  }

  private static Difference at(Picture pulsar, Picture kept) {
    return Difference.between(pulsar, kept, pulsar, LEDGERS);
  }

  @Test
  void theSameAcksAreTheSameInEveryForm() {
    Picture ends = picture(3, 9, Map.of(8L, bits(1)));
    Picture begins = picture(5, -1, Map.of(8L, bits(1)));
    assertTrue(at(ends, begins).isNone());
    assertTrue(at(begins, ends).isNone());
    BitSet all = new BitSet();
    all.set(0, 10);
    assertTrue(at(picture(3, 9, Map.of(5L, all)), picture(8, -1, Map.of())).isNone());
  }

  @Test
  void whatDiffersIsCountedAndTheLowestIsNamed() {
    Difference found =
        at(
            picture(3, 9, Map.of(5L, bits(2, 3), 8L, bits(1))),
            picture(3, 7, Map.of(5L, bits(3, 6))));
    assertEquals(new Difference(4, 1, 0, "", new Position(3, 8)), found);
    assertTrue(
        found.toString().contains("4 acked entries are missing")
            && found.toString().contains("first at 3:8"),
        found.toString());
  }

  @Test
  void whatPulsarAckedMeanwhileMayBeThereOrNot() {
    Picture before = picture(3, 1, Map.of());
    Picture after = picture(5, 4, Map.of(8L, bits(2)));
    assertTrue(Difference.between(before, picture(3, 1, Map.of()), after, LEDGERS).isNone());
    assertTrue(
        Difference.between(before, picture(5, 0, Map.of(8L, bits(2))), after, LEDGERS).isNone());
    assertEquals(
        1, Difference.between(before, picture(5, 4, Map.of(8L, bits(3))), after, LEDGERS).extra());
    assertEquals(1, Difference.between(before, picture(3, 0, Map.of()), after, LEDGERS).missing());
  }

  @Test
  void batchesAreWhatTheyLeave() {
    Position batch = new Position(5, 2);
    Picture pulsar = with(picture(3, 9, Map.of()), batch, bits(1, 2));
    assertTrue(at(pulsar, with(picture(3, 9, Map.of()), batch, bits(1, 2))).isNone());
    assertEquals(1, at(pulsar, with(picture(3, 9, Map.of()), batch, bits(1, 2, 3))).batches());
    assertEquals(1, at(pulsar, with(picture(3, 9, Map.of()), batch, bits(1))).batches());
    assertEquals(1, at(pulsar, picture(3, 9, Map.of())).batches());
    assertEquals(1, at(picture(3, 9, Map.of()), pulsar).batches());
    assertEquals(1, at(pulsar, picture(3, 9, Map.of(5L, bits(2)))).extra());
    assertTrue(
        at(pulsar, with(picture(3, 9, Map.of()), new Position(4, 0), bits(7))).batches() == 1,
        "a ledger that is gone counts");
  }

  @Test
  void propertiesThatChangeAreNotCompared() {
    Picture none = picture(3, 1, Map.of());
    Picture one = new Picture(none.markDelete(), none.acked(), none.left(), Map.of("n", 1L));
    assertFalse(at(one, none).isNone());
    assertTrue(Difference.between(none, one, one, LEDGERS).isNone());
  }

  @Test
  void beyondAreEntriesThatTheOtherLacks() {
    Picture here = picture(5, 3, Map.of(5L, bits(6, 7), 8L, bits(0)));
    assertEquals(0, here.beyond(here, LEDGERS));
    assertEquals(8 + 4 + 3, here.beyond(picture(3, 1, Map.of()), LEDGERS));
    assertEquals(2, here.beyond(picture(5, 3, Map.of(5L, bits(6, 9))), LEDGERS));
  }
}
