package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.pulsar.Imprint.Znode;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ImprintTest {

  private static Imprint of(long version) {
    return new Imprint("nonce", false, new Znode(1_000, version, 7, 500));
  }

  @Test
  void isReadAsWritten() {
    Imprint whole =
        new Imprint("nonce", true, new Znode(1_700_000_000_000L, 12, -1, 1_700_000_000_001L));
    assertEquals(whole, Imprint.of(whole.properties()));
    assertEquals(
        whole.closed(whole.znode(), 3), Imprint.of(whole.closed(whole.znode(), 3).properties()));
    assertEquals(new Imprint("", false, null), Imprint.of(Map.of()));
    assertEquals(new Imprint("", false, null), Imprint.of(Map.of("pulsar.closed", "-1")));
    assertEquals(new Imprint("", false, null), Imprint.of(Map.of("pulsar.znode", "what@ever")));
    assertEquals(
        new Imprint("nonce", false, null),
        Imprint.of(new Imprint("nonce", false, null).properties()));
  }

  @Test
  void theVersionThatWasNotedOrTheOneBeforeItIsOurs() {
    assertTrue(of(5).belongsTo(new Znode(1_000, 5, 7, 500)));
    assertTrue(
        of(5).belongsTo(new Znode(1_000, 4, 7, 500)), "the write that was noted did not come");
    assertFalse(of(5).belongsTo(new Znode(1_000, 6, 7, 500)), "somebody else wrote");
    assertFalse(of(5).belongsTo(new Znode(1_000, 3, 7, 500)));
    assertFalse(of(5).belongsTo(new Znode(1_001, 5, 7, 500)), "deleted and made again");
  }

  @Test
  void aVersionThatSomebodyElseMadeIsNotOurs() {
    Imprint closed = of(4).with(new Znode(1_000, 4, 7, 500).closed(600));
    assertTrue(closed.belongsTo(new Znode(1_000, 5, -1, 600)));
    assertTrue(
        closed.belongsTo(new Znode(1_000, 4, 7, 500)), "the write that was noted did not come");
    assertFalse(closed.belongsTo(new Znode(1_000, 5, 8, 700)), "Pulsar's own cursor has a ledger");
    assertFalse(closed.belongsTo(new Znode(1_000, 5, -1, 700)), "it stopped without one");
    Imprint properties = of(4).with(new Znode(1_000, 4, 7, 500).next());
    assertTrue(properties.belongsTo(new Znode(1_000, 5, 7, 500)));
    assertFalse(properties.belongsTo(new Znode(1_000, 5, 8, 500)));
  }

  @Test
  void whatACleanStopLeftIsKnownUntilASeekOrAnotherWrite() {
    Znode now = new Znode(1_000, 5, -1, 600);
    Imprint closed = of(4).closed(now, 3);
    assertTrue(closed.isLeftWith(now, 3));
    assertFalse(closed.isLeftWith(now, 4), "a seek came");
    assertFalse(closed.isLeftWith(now.next(), 3));
    assertFalse(
        closed.isLeftWith(new Znode(1_000, 4, 7, 500), 3), "the write that was noted did not come");
    assertFalse(closed.with(now).isLeftWith(now, 3));
  }

  @Test
  void aStateThatBelongsToNoZnodeIsNotOurs() {
    Imprint fresh = new Imprint("nonce", false, null);
    assertFalse(fresh.belongsTo(new Znode(1_000, 0, -1, 500)));
    assertFalse(fresh.belongsTo(new Znode(1_000, 1, -1, 500)));
  }
}
