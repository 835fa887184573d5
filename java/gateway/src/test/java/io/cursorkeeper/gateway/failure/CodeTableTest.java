package io.cursorkeeper.gateway.failure;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.ledgers.v1.Outcome;
import io.cursorkeeper.ledgers.v1.Reaction;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import org.apache.bookkeeper.client.api.BKException;
import org.junit.jupiter.api.Test;

class CodeTableTest {
  private static List<Integer> codes() throws IllegalAccessException {
    List<Integer> codes = new ArrayList<>();
    for (Class<?> where :
        List.of(BKException.Code.class, org.apache.bookkeeper.client.BKException.Code.class)) {
      for (Field field : where.getFields()) {
        codes.add(field.getInt(null));
      }
    }
    return codes;
  }

  @Test
  void everyCodeOfTheClientHasARow() throws Exception {
    assertTrue(codes().size() > 35);
    for (int code : codes()) {
      assertTrue(
          CodeTable.has(code), () -> "no row for " + code + " " + BKException.getMessage(code));
    }
  }

  @Test
  void noAppendIsRetried() throws Exception {
    for (int code : codes()) {
      Reaction reaction = CodeTable.row(code).reaction(Operation.APPEND);
      assertTrue(
          reaction == Reaction.ROLL || reaction == Reaction.FENCED,
          () -> code + " says " + reaction);
    }
  }

  @Test
  void aFailedAppendIsUnknownUnlessItsHandleWasClosed() throws Exception {
    for (int code : codes()) {
      Outcome wanted =
          code == BKException.Code.LedgerClosedException ? Outcome.NOT_DONE : Outcome.UNKNOWN;
      assertEquals(wanted, CodeTable.row(code).outcome(Operation.APPEND), () -> "code " + code);
    }
  }

  @Test
  void aReadIsNeverHalfDone() throws Exception {
    for (int code : codes()) {
      assertEquals(Outcome.NOT_DONE, CodeTable.row(code).outcome(Operation.READ));
    }
  }

  @Test
  void tooFewBookiesForACreateIsRetriedAndNotDone() {
    CodeTable.Row row = CodeTable.row(BKException.Code.NotEnoughBookiesException);
    assertEquals(Reaction.RETRY, row.reaction(Operation.CREATE));
    assertEquals(Outcome.NOT_DONE, row.outcome(Operation.CREATE));
    assertEquals(Outcome.UNKNOWN, row.outcome(Operation.FENCE));
    assertEquals("NOT_ENOUGH_BOOKIES", row.reason());
  }

  @Test
  void aCodeOfTheFutureIsUnexpected() {
    assertFalse(CodeTable.has(-4711));
    assertEquals("UNEXPECTED", CodeTable.row(-4711).reason());
  }

  @Test
  void afterAFenceEveryAppendSaysFencedAndNotDone() {
    LedgerFailure first = LedgerFailure.of(Operation.APPEND, 7, new BKException(-101));
    assertEquals(Reaction.FENCED, first.failure().getReaction());
    assertEquals(Outcome.UNKNOWN, first.failure().getOutcome());
    assertEquals(Reaction.FENCED, first.afterwards(7).failure().getReaction());
    assertEquals(Outcome.NOT_DONE, first.afterwards(7).failure().getOutcome());
  }
}
