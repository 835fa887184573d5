package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class WaitingAcksTest {

  private final AtomicInteger broker = new AtomicInteger();
  private final AtomicInteger cursor = new AtomicInteger();
  private final WaitingAcks all = new WaitingAcks(4, 6, broker::incrementAndGet);

  private WaitingAcks.Share share(int taken) {
    WaitingAcks.Share share = all.share(cursor::incrementAndGet);
    share.groupBegins();
    for (int i = 0; i < taken; i++) {
      assertTrue(share.take());
    }
    return share;
  }

  @Test
  void aCursorIsFullAtItsLimitUntilHalfIsFree() {
    WaitingAcks.Share share = share(3);
    share.groupBegins();
    assertFalse(share.isFull());
    assertTrue(share.take());
    assertTrue(share.isFull());
    assertFalse(share.take());
    assertEquals(4, share.count());
    assertEquals(1, cursor.get());
    share.groupEnds(1);
    assertTrue(share.isFull());
    assertTrue(share.take());
    share.groupEnds(2);
    assertFalse(share.isFull());
    assertEquals(2, cursor.get());
    assertEquals(0, share.oldestSeconds());
    assertEquals(2, all.count());
  }

  @Test
  void halfIsTakenWhereEitherLimitSaysSo() {
    WaitingAcks.Share one = share(1);
    assertTrue(one.isHalfFree());
    WaitingAcks.Share two = share(2);
    assertFalse(two.isHalfFree()); // of four
    assertFalse(one.isHalfFree()); // three of six
    two.groupEnds(2);
    assertTrue(one.isHalfFree() && two.isHalfFree());
    assertFalse(new WaitingAcks(1, 1, () -> {}).share(() -> {}).isHalfFree());
  }

  @Test
  void theBrokersLimitIsEveryCursors() {
    WaitingAcks.Share one = share(3);
    WaitingAcks.Share two = share(3);
    assertTrue(one.isFull() && two.isFull());
    assertFalse(one.take());
    assertEquals(6, all.count());
    assertEquals(1, broker.get());
    one.groupEnds(3);
    assertFalse(two.isFull());
    assertEquals(2, broker.get());
    assertEquals(0, cursor.get());
  }

  @Test
  void whoTakesAndFreesAtOnceLeavesNothingBehind() throws Exception {
    WaitingAcks busy = new WaitingAcks(50, 60, () -> {});
    List<Thread> threads = new ArrayList<>();
    List<WaitingAcks.Share> shares = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      WaitingAcks.Share share = busy.share(() -> {});
      shares.add(share);
      threads.add(
          new Thread(
              () -> {
                for (int round = 0; round < 20_000; round++) {
                  share.groupBegins();
                  int taken = 0;
                  while (taken < 40 && share.take()) {
                    taken++;
                  }
                  share.groupEnds(taken);
                }
              }));
    }
    threads.forEach(Thread::start);
    for (Thread each : threads) {
      each.join();
    }
    assertEquals(0, busy.count());
    assertTrue(shares.stream().noneMatch(WaitingAcks.Share::isFull));
  }
}
