package io.cursorkeeper.gateway.systems;

import io.cursorkeeper.gateway.process.Flags;
import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Files of `key=value` lines with `#` comments, as Pulsar's and BookKeeper's are; the last of
 * several lines counts. For operators, whose files they are.
 */
public final class SettingsFile {
  private static final long BYTES_MAX = 16L << 20;

  private SettingsFile() {}

  /** What the file of a flag says; nothing if none is named. */
  public static Map<String, String> ofFlag(Flags flags, String flag) {
    String file = flags.text(flag);
    return file.isEmpty() ? Map.of() : lines("--" + flag, file);
  }

  /** Throws IllegalArgumentException with a message for people; {@code named} is who named it. */
  static Map<String, String> lines(String named, String file) {
    return lines(named, file, "is it a file of key=value lines? Save it as UTF-8");
  }

  static Map<String, String> lines(String named, String file, String whatIsNoText) {
    String text;
    try {
      Path path = Path.of(file);
      if (Files.size(path) > BYTES_MAX) {
        throw new IllegalArgumentException(
            named + " " + file + " has more than " + BYTES_MAX + " bytes: name a file of settings");
      }
      text = Files.readString(path);
    } catch (CharacterCodingException binary) {
      throw new IllegalArgumentException(
          named + " " + file + " is not UTF-8: " + whatIsNoText + " text");
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          named
              + " "
              + file
              + " cannot be read ("
              + Failures.ofFile(unreadable)
              + "): make it readable for this user, or name another");
    }
    Map<String, String> found = new LinkedHashMap<>();
    text.lines()
        .map(String::strip)
        .filter(line -> !line.isEmpty() && line.charAt(0) != '#' && line.charAt(0) != '!')
        .forEach(
            line -> {
              int equals = line.indexOf('=');
              String key = equals < 0 ? line : line.substring(0, equals).strip();
              found.put(key, equals < 0 ? "" : line.substring(equals + 1).strip());
            });
    return found;
  }
}
