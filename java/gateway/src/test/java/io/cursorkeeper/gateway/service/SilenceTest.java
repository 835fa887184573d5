package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SilenceTest {
  @Test
  void silenceIsThatNothingLeavesOfWhatIsToLeave() {
    BookieConnections.Silence silence = new BookieConnections.Silence();
    Object one = new Object();
    Object two = new Object();
    assertEquals(0, silence.look(null, 0, 0));
    assertEquals(0, silence.look(null, 0, 0), "there is nothing to leave");
    assertEquals(0, silence.look(one, 0, 10));
    assertEquals(1, silence.look(one, 0, 10));
    assertEquals(2, silence.look(one, 0, 30), "more came, nothing left");
    assertEquals(0, silence.look(one, 5, 30), "a part left");
    assertEquals(1, silence.look(one, 5, 30));
    assertEquals(0, silence.look(two, 5, 20), "all of the first left");
  }
}
