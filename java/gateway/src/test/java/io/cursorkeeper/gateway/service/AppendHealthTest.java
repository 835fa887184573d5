package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BKException.Code;
import org.junit.jupiter.api.Test;

class AppendHealthTest {
  private final AppendHealth appends = new AppendHealth((bytes, nanos, thrown) -> {});

  private void answered(int code) {
    appends.answered(1, 1, code == Code.OK ? null : new BKException(code));
  }

  private String whyNotInTenSeconds() {
    return appends.whyNot(System.nanoTime() + TimeUnit.SECONDS.toNanos(10));
  }

  @Test
  void failuresThatGoOnAreToldUntilOneComesThrough() {
    for (int failed = 0; failed < 3; failed++) {
      assertEquals("", whyNotInTenSeconds());
      answered(Code.AddEntryQuorumTimeoutException);
    }
    assertEquals("", appends.whyNot(System.nanoTime()), "not yet: it may be a blip");
    assertTrue(whyNotInTenSeconds().contains("the last: WRITE_TIMEOUT"), whyNotInTenSeconds());
    answered(Code.OK);
    assertEquals("", whyNotInTenSeconds());
  }

  @Test
  void aFenceAndWhatFollowsAFailureSayNothingOfTheBookies() {
    for (int answers = 0; answers < 10; answers++) {
      answered(Code.LedgerFencedException);
      answered(Code.LedgerClosedException);
    }
    assertEquals("", whyNotInTenSeconds());
  }
}
