package io.cursorkeeper.gateway.access;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Files that say who may do what, and are nobody else's: looked at once, at the start. */
final class Secrets {
  private static final Logger LOG = LoggerFactory.getLogger(Secrets.class);
  private static final Set<PosixFilePermission> OTHERS =
      Set.of(
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE,
          PosixFilePermission.OTHERS_EXECUTE);

  private Secrets() {}

  /** Says so if every user of this machine may read or write the file. */
  static void warnIfOthersRead(String flag, Path file) {
    if (othersMay(file)) {
      LOG.warn(
          "--{} {} is open to every user of this machine: `chmod o= {}` closes it",
          flag,
          file,
          file);
    }
  }

  static boolean othersMay(Path file) {
    try {
      return Files.getPosixFilePermissions(file).stream().anyMatch(OTHERS::contains);
    } catch (IOException | UnsupportedOperationException unknown) {
      // A file that is not there is told where it is read.
      return false;
    }
  }
}
