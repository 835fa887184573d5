package io.cursorkeeper.gateway.access;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.util.Set;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Files that say who may do what, and are nobody else's: looked at once, at the start. {@code said}
 * is who named the file.
 */
final class Secrets {
  private static final Logger LOG = LoggerFactory.getLogger(Secrets.class);
  private static final Set<PosixFilePermission> ANYTHING =
      Set.of(
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE,
          PosixFilePermission.OTHERS_EXECUTE);
  private static final Set<PosixFilePermission> WRITING = Set.of(PosixFilePermission.OTHERS_WRITE);

  private Secrets() {}

  /** Of a file with a secret: says so if every user of this machine may read or write it. */
  static void warnIfOthersRead(String said, Path file) {
    warn(said, file, othersRead(file));
  }

  /** Of a file that only says who may what: says so if every user of this machine may write it. */
  static void warnIfOthersWrite(String said, Path file) {
    warn(said, file, othersWrite(file));
  }

  private static void warn(String said, Path file, boolean isOpen) {
    if (isOpen) {
      LOG.warn(
          "{} {} is open to every user of this machine: `chmod o= {}` closes it", said, file, file);
    }
  }

  static boolean othersRead(Path file) {
    return othersMay(file, ANYTHING);
  }

  static boolean othersWrite(Path file) {
    return othersMay(file, WRITING);
  }

  private static boolean othersMay(Path file, Set<PosixFilePermission> what) {
    try {
      return Files.getPosixFilePermissions(file).stream().anyMatch(what::contains);
    } catch (IOException | UnsupportedOperationException unknown) {
      // A file that is not there is told where it is read.
      return false;
    }
  }
}
