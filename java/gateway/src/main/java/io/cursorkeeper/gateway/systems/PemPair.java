package io.cursorkeeper.gateway.systems;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A key and its certificate in one file, which is how ZooKeeper's client takes them; the operator
 * has two. The file is this user's alone, in the JVM's temporary folder, and goes with the process.
 * It is written again when the two have changed and belong together; every new connection reads it.
 */
final class PemPair {
  private static final Logger LOG = LoggerFactory.getLogger(PemPair.class);
  private final Path certificate;
  private final Path key;
  private final Path both;
  private byte[] written;

  private PemPair(Path certificate, Path key, Path both) {
    this.certificate = certificate;
    this.key = key;
    this.both = both;
  }

  /** Of two files that were found to belong together. */
  static PemPair of(String certificate, String key, int refreshSeconds) {
    try {
      Path both =
          Files.createTempFile(
              "cursorkeeper-zookeeper-",
              ".pem",
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
      both.toFile().deleteOnExit();
      PemPair pair = new PemPair(Path.of(certificate), Path.of(key), both);
      pair.write();
      ScheduledExecutorService timer =
          Executors.newSingleThreadScheduledExecutor(
              work -> {
                Thread thread = new Thread(work, "zookeeper-certificate");
                thread.setDaemon(true);
                return thread;
              });
      timer.scheduleWithFixedDelay(pair::look, refreshSeconds, refreshSeconds, TimeUnit.SECONDS);
      return pair;
    } catch (IOException full) {
      throw new IllegalStateException(
          "key and certificate cannot be written together into "
              + System.getProperty("java.io.tmpdir")
              + ": name a folder that can be written, with -Djava.io.tmpdir",
          full);
    }
  }

  String file() {
    return both.toString();
  }

  // Never throws, because its timer would end with it.
  private void look() {
    try {
      write();
    } catch (IOException | RuntimeException wrong) {
      LOG.warn("the certificate for ZooKeeper is not renewed: {}", Failures.text(wrong));
    }
  }

  private void write() throws IOException {
    KeyFiles.requirePair(
        certificate.toString(), certificate.toString(), key.toString(), key.toString());
    byte[] first = Files.readAllBytes(key);
    byte[] second = Files.readAllBytes(certificate);
    byte[] now = Arrays.copyOf(first, first.length + 1 + second.length);
    now[first.length] = '\n';
    System.arraycopy(second, 0, now, first.length + 1, second.length);
    if (Arrays.equals(now, written)) {
      return;
    }
    Path next = both.resolveSibling(both.getFileName() + ".new");
    Files.deleteIfExists(next);
    Files.createFile(
        next, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    Files.write(next, now);
    Files.move(next, both, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    written = now;
  }
}
