package io.cursorkeeper.gateway.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.Failure;
import org.junit.jupiter.api.Test;

class ReplyQueueTest {
  private final ReplyQueue queue = new ReplyQueue();

  private static Failure failure(String reason) {
    return Failure.newBuilder().setReason(reason).build();
  }

  @Test
  void acknowledgementsOfALedgerBecomeOne() {
    queue.acknowledged(1, 0);
    queue.acknowledged(2, 5);
    queue.acknowledged(1, 3);
    AppendReply reply = queue.take();
    assertEquals(2, reply.getAppendedCount());
    assertEquals(3, reply.getAppended(0).getLastEntryId());
    assertTrue(queue.isEmpty());
  }

  @Test
  void aFailureStandsForLaterOnesWithTheSameReasonUntilItIsSent() {
    queue.failed(1, 4, failure("FENCED"));
    queue.failed(1, 9, failure("FENCED"));
    queue.failed(1, 10, failure("CLOSING"));
    queue.failed(2, 9, failure("FENCED"));
    assertEquals(3, queue.take().getFailuresCount());
    queue.failed(1, 11, failure("FENCED"));
    assertEquals(1, queue.take().getFailuresCount());
  }

  @Test
  void failuresCrowdAndMessagesAreCut() {
    for (int ledger = 0; ledger < 1_500; ledger++) {
      queue.failed(ledger, 0, failure("X"));
    }
    assertTrue(queue.crowded());
    assertEquals(1_024, queue.take().getFailuresCount());
    assertFalse(queue.crowded());
    assertEquals(476, queue.take().getFailuresCount());
  }
}
