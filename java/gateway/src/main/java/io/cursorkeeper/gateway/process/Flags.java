package io.cursorkeeper.gateway.process;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;

/**
 * The values of a command's flags. The command line wins over {@code --config FILE} (properties,
 * names without dashes), which wins over the defaults. An unknown or repeated name is an error,
 * never ignored.
 */
public final class Flags {
  /** A flag's value in another file, and its name there. */
  public record Other(String name, String value) {}

  /** Understood by every command. */
  public static final Flag CONFIG = Flag.text("config", "", "properties file with the same names");

  private final Map<String, String> values = new HashMap<>();
  private final Set<String> given = new HashSet<>();

  /** Flags whose values are of another file, and how it names them. */
  private final Map<String, String> elsewhere = new HashMap<>();

  /** Flags whose values are of a file, and which. */
  private final Map<String, Path> files = new HashMap<>();

  private Flags() {}

  /** Values for these flags; throws IllegalArgumentException with a message for people. */
  public static Flags parse(List<Flag> known, String... args) {
    Map<String, String> given = commandLine(known, args);
    String config = given.get(CONFIG.name());
    Map<String, String> file = properties(config);
    Flags flags = new Flags();
    for (Flag flag : known) {
      String fromFile = file.remove(flag.name());
      String fromLine = given.remove(flag.name());
      String value = fromLine != null ? fromLine : fromFile != null ? fromFile : flag.fallback();
      if (value == null) {
        throw new IllegalArgumentException("--" + flag.name() + " is missing: " + flag.about());
      }
      flags.values.put(flag.name(), value);
      if (fromLine != null || fromFile != null) {
        flags.given.add(flag.name());
      }
      if (fromLine == null && fromFile != null) {
        flags.files.put(flag.name(), Path.of(config));
      }
    }
    given.putAll(file);
    if (!given.isEmpty()) {
      throw new IllegalArgumentException(
          "unknown flag --" + given.keySet().iterator().next() + "; see --help");
    }
    return flags;
  }

  /** Whether somebody gave it, on the command line or in the file. */
  public boolean isGiven(String name) {
    return given.contains(name);
  }

  /** The file that says its value; empty: the command line does, or nobody. */
  public Optional<Path> file(String name) {
    return Optional.ofNullable(files.get(name));
  }

  /** The same, with values of another file. */
  public Flags with(Map<String, Other> others, String file) {
    Flags flags = new Flags();
    flags.values.putAll(values);
    flags.given.addAll(given);
    flags.elsewhere.putAll(elsewhere);
    flags.files.putAll(files);
    others.forEach(
        (name, other) -> {
          flags.values.put(name, other.value());
          flags.elsewhere.put(name, file + ": " + other.name());
          flags.files.put(name, Path.of(file));
        });
    return flags;
  }

  /** How a message names it: the flag, or the line of the file that it comes from. */
  public String said(String name) {
    return elsewhere.getOrDefault(name, "--" + name);
  }

  /** The value as it was given. */
  public String text(String name) {
    String value = values.get(name);
    if (value == null) {
      throw new IllegalStateException("not a flag of this command: " + name);
    }
    return value;
  }

  /** A whole number within bounds, both inclusive. */
  public long number(String name, long min, long max) {
    String value = text(name);
    try {
      long number = Long.parseLong(value.trim());
      if (number >= min && number <= max) {
        return number;
      }
    } catch (NumberFormatException notANumber) {
      // Falls through to the same message: both say what is allowed.
    }
    throw new IllegalArgumentException(
        "--" + name + " is " + value + ", allowed is " + min + " to " + max);
  }

  /** Whether it is {@code true}; only {@code true} and {@code false} are allowed. */
  public boolean yes(String name) {
    String value = text(name).trim();
    if (!value.equals("true") && !value.equals("false")) {
      throw new IllegalArgumentException(
          "--" + name + " is " + value + ", allowed is true or false");
    }
    return value.equals("true");
  }

  /** A whole number within bounds, both inclusive. */
  public int integer(String name, int min, int max) {
    return (int) number(name, min, max);
  }

  private static Map<String, String> commandLine(List<Flag> known, String... args) {
    Map<String, String> given = new HashMap<>();
    for (int at = 0; at < args.length; at++) {
      String arg = args[at];
      if (!arg.startsWith("--") || arg.length() == 2) {
        throw new IllegalArgumentException("expected --flag value, found " + arg);
      }
      int equals = arg.indexOf('=');
      String name = equals < 0 ? arg.substring(2) : arg.substring(2, equals);
      boolean alone = equals < 0 && (at + 1 == args.length || args[at + 1].startsWith("--"));
      boolean means = known.stream().anyMatch(flag -> flag.name().equals(name) && flag.isYesNo());
      if (equals < 0 && at + 1 == args.length && !means) {
        throw new IllegalArgumentException("--" + name + " has no value");
      }
      String value = alone && means ? "true" : equals < 0 ? args[++at] : arg.substring(equals + 1);
      if (given.put(name, value) != null) {
        throw new IllegalArgumentException("--" + name + " is given twice");
      }
    }
    return given;
  }

  private static Map<String, String> properties(String file) {
    Map<String, String> values = new HashMap<>();
    if (file == null || file.isEmpty()) {
      return values;
    }
    Properties properties = new Properties();
    try (Reader reader = Files.newBufferedReader(Path.of(file))) {
      properties.load(reader);
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          "--config " + file + " cannot be read: " + unreadable.getMessage());
    }
    properties
        .stringPropertyNames()
        .forEach(name -> values.put(name, properties.getProperty(name).trim()));
    return values;
  }
}
