package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.process.Failed;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The identities file of a gateway, for whoever runs it: read at the start, where anything wrong in
 * it ends the start, and again when it has changed, where anything wrong leaves what was read
 * before in use and is said once.
 */
public final class IdentitiesFile {
  private static final Logger LOG = LoggerFactory.getLogger(IdentitiesFile.class);
  private static final int BYTES_MAX = 1 << 20;

  private final Path path;
  private volatile Identities current;
  private String stamp;

  /** Throws IllegalArgumentException with a message for people. */
  IdentitiesFile(String file) {
    path = Path.of(file);
    Secrets.warnIfOthersWrite("--" + AccessSettings.IDENTITIES_FILE, path);
    try {
      stamp = stamp();
      current = read();
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          "--"
              + AccessSettings.IDENTITIES_FILE
              + " "
              + path
              + " cannot be read: "
              + unreadable
              + "; make it readable for this user, or name another",
          unreadable);
    }
  }

  Identities current() {
    return current;
  }

  /** Whether it was read anew. Never throws, because its timer would end with it. */
  boolean look() {
    try {
      String now = stamp();
      if (now.equals(stamp)) {
        return false;
      }
      // Kept also if the content is wrong: it is said once, and read again when it changes again.
      stamp = now;
      current = read();
      LOG.info("{} was read again: {} identities", path, current.all().size());
      return true;
    } catch (IOException | RuntimeException wrong) {
      String said = Failed.inOneLine(wrong);
      if (!said.equals(stamp)) {
        LOG.warn("{} is not used, what it said before stays in use: {}", path, said);
      }
      if (wrong instanceof IOException) {
        // A file that is away is looked for again, and said once.
        stamp = said;
      }
      return false;
    }
  }

  private Identities read() throws IOException {
    byte[] bytes;
    try (InputStream file = Files.newInputStream(path)) {
      bytes = file.readNBytes(BYTES_MAX + 1);
    }
    if (bytes.length > BYTES_MAX) {
      throw new IllegalArgumentException(
          "--"
              + AccessSettings.IDENTITIES_FILE
              + " "
              + path
              + " has more than "
              + BYTES_MAX
              + " bytes: name fewer");
    }
    try {
      return Identities.of(bytes);
    } catch (IllegalArgumentException wrong) {
      throw new IllegalArgumentException(
          "--" + AccessSettings.IDENTITIES_FILE + " " + path + ": " + wrong.getMessage(), wrong);
    }
  }

  /** It differs when the file was changed or replaced. */
  private String stamp() throws IOException {
    return Files.getAttribute(path, "unix:ino")
        + " "
        + Files.getLastModifiedTime(path)
        + " "
        + Files.size(path);
  }
}
