package io.cursorkeeper.gateway.systems;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** ZooKeeper's client finds a renewed certificate, and never half of one. */
class PemPairTest {
  private static final int REFRESH_S = 1;

  @Test
  void itFollowsItsFiles(@TempDir Path folder) throws Exception {
    Certificates first = Certificates.make(folder, "first", "-1H");
    Certificates second = Certificates.make(folder, "second", "-1H");
    Path certificate = Files.copy(first.certificate(), folder.resolve("own.pem"));
    Path key = Files.copy(first.key(), folder.resolve("own-key.pem"));
    PemPair pair = PemPair.of(certificate.toString(), key.toString(), REFRESH_S);
    Path both = Path.of(pair.file());
    assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(both)));
    String before = Files.readString(both);
    assertTrue(before.contains(Files.readString(first.key()).strip()));
    assertTrue(before.contains(Files.readString(first.certificate()).strip()));

    Files.copy(second.certificate(), certificate, StandardCopyOption.REPLACE_EXISTING);
    Thread.sleep(TimeUnit.SECONDS.toMillis(2 * REFRESH_S));
    assertEquals(before, Files.readString(both), "the key is still the other one's");

    Files.copy(second.key(), key, StandardCopyOption.REPLACE_EXISTING);
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (Files.readString(both).equals(before) && System.nanoTime() < until) {
      Thread.sleep(50);
    }
    assertTrue(Files.readString(both).contains(Files.readString(second.certificate()).strip()));
    assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(both)));
  }
}
