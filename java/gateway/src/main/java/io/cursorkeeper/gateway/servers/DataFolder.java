package io.cursorkeeper.gateway.servers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.stream.Stream;

/**
 * Folders of data: what is in them is for the user who runs the server, and for nobody else on the
 * machine.
 */
final class DataFolder {
  /** What says that a folder is one of ours: names that a server of this jar puts there. */
  private static final Set<String> OUR_NAMES =
      Set.of("ports.properties", "lock", "zookeeper", "data", "journal", "ledgers");

  private DataFolder() {}

  /** One that a server names itself, made if it is not there. */
  static Path of(Path folder) throws IOException {
    Files.createDirectories(folder);
    try {
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx------"));
    } catch (IOException | UnsupportedOperationException notOurs) {
      // A volume that belongs to somebody else, or a file system without modes: its owner has
      // decided.
    }
    return folder;
  }

  /** One that a person named: left as it is if it holds anything of others. */
  static Path named(Path folder) throws IOException {
    return isOurs(folder) ? of(folder) : folder;
  }

  private static boolean isOurs(Path folder) throws IOException {
    if (!Files.isDirectory(folder)) {
      return true;
    }
    try (Stream<Path> inside = Files.list(folder)) {
      var names = inside.map(path -> path.getFileName().toString()).toList();
      return names.isEmpty() || names.stream().anyMatch(OUR_NAMES::contains);
    }
  }
}
