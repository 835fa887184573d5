package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ReadRoomTest {
  private final ReadBudget own = new ReadBudget(50, 0);
  private final ReadBudget shared = new ReadBudget(100, 8);
  private final ReadRoom room = new ReadRoom(own, shared);
  private final List<String> granted = new ArrayList<>();

  private void both(long ownBytes, long sharedBytes) {
    assertEquals(List.of(ownBytes, sharedBytes), List.of(own.bytes(), shared.bytes()));
  }

  @Test
  void bothMustHaveRoomAndNoneIsKeptOfOneAlone() {
    assertEquals(50, room.bytesMax());
    assertTrue(room.take(40));
    both(40, 40);
    assertFalse(room.take(20), "the identity has too little left");
    both(40, 40);
    assertTrue(shared.take(60));
    assertFalse(room.take(5), "all have too little left");
    both(40, 100);
    room.giveBack(40);
    both(0, 60);
  }

  @Test
  void whoWaitsForItsOwnRoomKeepsNobodyElseFromWorking() {
    assertTrue(room.take(50));
    room.await(30, () -> granted.add("second"));
    ReadRoom other = new ReadRoom(null, shared);
    assertTrue(other.take(50));
    both(50, 100);
    room.giveBack(50);
    assertEquals(List.of("second"), granted);
    both(30, 80);
    room.giveBack(30);
    other.giveBack(50);
    both(0, 0);
  }

  @Test
  void whoLeavesGivesEverythingBack() {
    Runnable leaving = () -> granted.add("left");
    assertTrue(room.take(50));
    room.await(30, leaving);
    assertTrue(room.forget(leaving));
    room.giveBack(50);
    both(0, 0);
    assertTrue(shared.take(100));
    room.await(30, leaving);
    both(30, 100);
    assertTrue(room.forget(leaving));
    both(0, 100);
    shared.giveBack(100);
    assertEquals(List.of(), granted);
  }
}
