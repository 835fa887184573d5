package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class AuditLogTest {
  private static final Caller WHO = new Caller(Role.WRITER, "here");

  @Test
  void nobodyWaitsForASlowDiskAndWhatIsLostIsCounted(@TempDir Path folder) throws Exception {
    // A pipe that nobody reads from stands for a disk that does not answer.
    Path pipe = folder.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    AtomicLong lost = new AtomicLong();
    Process reader = new ProcessBuilder("sh", "-c", "exec 3<> " + pipe + "; exec sleep 60").start();
    try {
      AuditLog log = new AuditLog(pipe.toString(), lost::addAndGet);
      long began = System.nanoTime();
      for (int at = 0; at < 50_000; at++) {
        log.ended(new Audited(WHO, "Create", at), true, null);
      }
      assertTrue(TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began) < 30);
      assertTrue(lost.get() > 30_000, "lost " + lost);
    } finally {
      reader.destroyForcibly().waitFor();
    }
  }

  @Test
  void whatCannotBeWrittenEndsTheStartAndLaterIsCounted(@TempDir Path folder) throws Exception {
    assertTrue(
        assertThrows(
                IllegalArgumentException.class,
                () -> new AuditLog(folder.resolve("none/audit.log").toString(), lost -> {}))
            .getMessage()
            .contains("--audit-log-file"));
    Path own = Files.createDirectory(folder.resolve("own"));
    AtomicLong lost = new AtomicLong();
    CountDownLatch counted = new CountDownLatch(1);
    AuditLog log =
        new AuditLog(
            own.resolve("audit.log").toString(),
            lines -> {
              lost.addAndGet(lines);
              counted.countDown();
            });
    Files.delete(own.resolve("audit.log"));
    Files.delete(own);
    log.ended(new Audited(WHO, "Create", 1), true, null);
    assertTrue(counted.await(30, TimeUnit.SECONDS));
    assertEquals(1, lost.get());
    Files.createDirectory(own);
    log.ended(new Audited(WHO, "Delete", 2), true, null);
    log.stop();
    assertTrue(Files.readString(own.resolve("audit.log")).contains("\"ledger\":2"));
  }

  @Test
  void fewOfManyAreToldAndTheOthersAreCounted() {
    AuditRates rates = new AuditRates();
    for (int at = 0; at < AuditRates.LINES_MAX; at++) {
      assertEquals(0, rates.take("one", 5));
    }
    assertEquals(-1, rates.take("one", 6));
    assertEquals(-1, rates.take("one", 7));
    assertEquals(0, rates.take("two", 7));
    long later = 6 + AuditRates.WINDOW_NANOS;
    assertEquals(2, rates.take("one", later));
    for (int at = 0; at < AuditRates.LINES_MAX; at++) {
      rates.take("one", later);
    }
    assertEquals(Map.of(), rates.over(later));
    assertEquals(Map.of("one", 1L), rates.over(later + AuditRates.WINDOW_NANOS + 1));
    assertEquals(Map.of(), rates.over(later + AuditRates.WINDOW_NANOS + 1));
    // However many there are, what is kept of them is bounded.
    for (int at = 0; at < 10 * AuditRates.KEYS_MAX; at++) {
      rates.take("peer-" + at, 0);
    }
    assertEquals(-1, rates.take("yet another", 0));
  }
}
