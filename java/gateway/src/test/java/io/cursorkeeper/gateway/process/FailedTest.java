package io.cursorkeeper.gateway.process;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

class FailedTest {
  @Test
  void causesAreOneLineWithoutWrappersAndRepetition() {
    IOException inner = new IOException("no\nroute");
    assertEquals(
        "no route", Failed.inOneLine(new CompletionException(new ExecutionException(inner))));
    assertEquals(
        "cannot start: no route",
        Failed.inOneLine(new IllegalStateException("cannot start", inner)));
    assertEquals(
        "again no\nroute".replace('\n', ' '),
        Failed.inOneLine(new IllegalStateException("again no\nroute", inner)));
    assertEquals("NullPointerException", Failed.inOneLine(new NullPointerException()));
  }

  @Test
  void aPathAloneSaysWhatIsWrongWithIt() {
    assertEquals(
        "AccessDeniedException /data/journal",
        Failed.inOneLine(new AccessDeniedException("/data/journal")));
    assertEquals("/data: gone", Failed.inOneLine(new AccessDeniedException("/data", null, "gone")));
  }
}
