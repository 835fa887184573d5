package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReadBudgetTest {
  private final ReadBudget budget = new ReadBudget(100, 8);
  private final List<String> granted = new ArrayList<>();

  @Test
  void whoFindsNoRoomWaitsInOrderAndNobodyOvertakes() {
    assertTrue(budget.take(90));
    budget.await(50, () -> granted.add("first"));
    budget.await(5, () -> granted.add("second"));
    assertFalse(budget.take(1), "somebody waits");
    assertEquals(2, budget.waiting());
    budget.giveBack(30);
    assertEquals(
        List.of(), granted, "the first does not fit yet, and the second does not overtake it");
    budget.giveBack(20);
    assertEquals(List.of("first", "second"), granted);
    assertEquals(95, budget.bytes());
  }

  @Test
  void whatIsLargerThanAllOfItHasItForItself() {
    assertTrue(budget.take(10));
    budget.await(1_000, () -> granted.add("large"));
    budget.giveBack(10);
    assertEquals(List.of("large"), granted);
    assertFalse(budget.take(1));
    budget.giveBack(1_000);
    assertTrue(budget.take(100));
  }

  @Test
  void whoLeavesIsForgottenAndNothingIsGivenBackTwice() {
    Runnable leaving = () -> granted.add("left");
    assertTrue(budget.take(100));
    budget.await(10, leaving);
    assertTrue(budget.forget(leaving));
    assertFalse(budget.forget(leaving));
    budget.giveBack(100);
    assertEquals(List.of(), granted);
    assertThrows(IllegalStateException.class, () -> budget.giveBack(1));
  }

  @Test
  void guessesAreBoundedAndAWrongOneIsCounted() {
    assertEquals(6, budget.guess(6));
    assertEquals(2, budget.guess(64));
    assertEquals(0, budget.guess(1));
    budget.guessed(8);
    assertEquals(8, budget.guess(64));
    assertTrue(budget.take(10));
    budget.exceed(490);
    assertFalse(budget.take(1), "all wait until what is there is gone");
    budget.giveBack(500);
    assertTrue(budget.take(100));
  }
}
