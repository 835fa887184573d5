package org.apache.bookkeeper.mledger.impl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.cursorkeeper.client.KeeperException;
import io.cursorkeeper.client.KeeperException.Code;
import java.util.EnumSet;
import java.util.Set;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.junit.jupiter.api.Test;

class KeptLoadTest {

  @Test
  void onlySilenceIsAnOutage() {
    Set<Code> outages = EnumSet.noneOf(Code.class);
    for (Code code : Code.values()) {
      if (KeptLoad.isUnanswered(failure(new KeeperException(code, "t|s", "it failed", "look")))) {
        outages.add(code);
      }
    }
    assertEquals(
        EnumSet.of(Code.AWAY, Code.TIMED_OUT, Code.UNAVAILABLE, Code.SHUTTING_DOWN), outages);
    assertFalse(KeptLoad.isUnanswered(failure(new IllegalStateException("a bug"))));
  }

  private static ManagedLedgerException failure(Exception why) {
    return new ManagedLedgerException(why);
  }
}
