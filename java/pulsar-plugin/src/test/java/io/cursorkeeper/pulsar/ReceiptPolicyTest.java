package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class ReceiptPolicyTest {

  private static boolean nobodyWaits(
      String receipts, Set<String> interceptors, boolean pulsarWaits) {
    Properties conf = new Properties();
    conf.setProperty("cursorKeeperAddress", "a:1");
    conf.setProperty("cursorKeeperReceipts", receipts);
    return ReceiptPolicy.nobodyWaits(Settings.read(conf), interceptors, pulsarWaits);
  }

  @Test
  void beforePulsar5TheInterceptorIsMissedIfReceiptsShallWait() {
    assertEquals(true, nobodyWaits("durable", Set.of(), false));
    assertEquals(true, nobodyWaits("durable", Set.of("another"), false));
    assertEquals(false, nobodyWaits("durable", Set.of("another", "cursorkeeper-receipts"), false));
    assertEquals(false, nobodyWaits("memory", Set.of(), false));
    assertEquals(false, nobodyWaits("durable", Set.of(), true));
  }

  @Test
  void whatDoesNotFitIsNamedWithARemedy() {
    String said = ReceiptPolicy.unfit("it is wrong").getMessage();
    assertTrue(
        said.startsWith(
            "broker.conf: brokerInterceptors=cursorkeeper-receipts: it is wrong. What to do: "),
        said);
  }

  @Test
  void aScopeHearsOfItsOwnThreadAndOfNoOtherScope() {
    CompletableFuture<Void> change = new CompletableFuture<>();
    CommandScope.waitsFor(change, () -> {});
    CommandScope outer = new CommandScope().open(true);
    CommandScope inner = new CommandScope().open(true);
    CommandScope.waitsFor(change, () -> {});
    CommandScope.waitsFor(change, () -> {});
    inner.close();
    assertSame(change, inner.durable());
    assertNull(outer.durable());
    outer.close();
    CommandScope.waitsFor(change, () -> {});
    assertNull(outer.durable());
  }
}
