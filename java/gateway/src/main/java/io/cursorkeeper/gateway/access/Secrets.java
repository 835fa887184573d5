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
  private static final Set<PosixFilePermission> ANYTHING =
      Set.of(
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE,
          PosixFilePermission.OTHERS_EXECUTE);
  private static final Set<PosixFilePermission> WRITING = Set.of(PosixFilePermission.OTHERS_WRITE);

  private Secrets() {}

  /** Of a file with a secret: says so if every user of this machine may read or write it. */
  static void warnIfOthersRead(String flag, Path file) {
    warn(flag, file, othersRead(file));
  }

  /** Of a file that only says who may what: says so if every user of this machine may write it. */
  static void warnIfOthersWrite(String flag, Path file) {
    warn(flag, file, othersWrite(file));
  }

  private static void warn(String flag, Path file, boolean isOpen) {
    if (isOpen) {
      LOG.warn(
          "--{} {} is open to every user of this machine: `chmod o= {}` closes it",
          flag,
          file,
          file);
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
