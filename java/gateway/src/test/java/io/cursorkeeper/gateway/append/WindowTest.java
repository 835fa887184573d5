package io.cursorkeeper.gateway.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class WindowTest {
  private final List<String> resumed = new ArrayList<>();

  @Test
  void roomUntilBytesAreUsedUp() {
    Window window = new Window(100, 10);
    window.take(99);
    window.whenRoom(1, 1, () -> resumed.add("a"));
    window.take(1);
    window.whenRoom(1, 1, () -> resumed.add("b"));
    assertEquals(List.of("a"), resumed);
    window.release(1);
    assertEquals(List.of("a", "b"), resumed);
    assertEquals(99, window.bytes());
    assertEquals(1, window.entries());
  }

  @Test
  void roomUntilEntriesAreUsedUp() {
    Window window = new Window(100, 2);
    window.take(1);
    window.take(1);
    window.whenRoom(1, 1, () -> resumed.add("a"));
    assertEquals(1, window.waiting());
    window.release(1);
    assertEquals(List.of("a"), resumed);
    assertEquals(0, window.waiting());
  }

  @Test
  void whoWaitsFirstIsResumedFirstAndOnlyWhileThereIsRoom() {
    Window window = new Window(10, 10);
    window.take(10);
    window.whenRoom(
        10,
        1,
        () -> {
          resumed.add("a");
          window.take(10);
        });
    window.whenRoom(1, 1, () -> resumed.add("b"));
    window.release(10);
    assertEquals(List.of("a"), resumed);
    window.release(10);
    assertEquals(List.of("a", "b"), resumed);
  }

  @Test
  void roomIsPromisedOnce() {
    Window window = new Window(10, 10);
    window.take(9);
    window.whenRoom(
        5,
        1,
        () -> {
          // another stream's message comes before this one has taken what it was promised
          window.whenRoom(5, 1, () -> resumed.add("b"));
          resumed.add("a");
          window.take(5);
        });
    assertEquals(List.of("a"), resumed);
    assertEquals(14, window.bytes());
    window.release(9);
    assertEquals(List.of("a", "b"), resumed);
  }

  @Test
  void aPromiseThatIsNotTakenIsRoomForTheNext() {
    Window window = new Window(10, 10);
    window.take(9);
    window.whenRoom(
        5,
        1,
        () -> {
          window.whenRoom(5, 1, () -> resumed.add("b"));
          resumed.add("a");
        });
    assertEquals(List.of("a", "b"), resumed);
  }

  @Test
  void releasingTooMuchIsADefect() {
    Window window = new Window(10, 10);
    assertThrows(IllegalStateException.class, () -> window.release(1));
  }
}
