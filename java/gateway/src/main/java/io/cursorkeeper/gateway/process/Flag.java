package io.cursorkeeper.gateway.process;

import java.util.List;

/**
 * One flag of a command: its name without dashes, the value when absent, and a line for people.
 *
 * @param fallback null: the flag must be given
 */
public record Flag(String name, String fallback, String about) {

  /** A flag that must be given. */
  public static Flag required(String name, String about) {
    return new Flag(name, null, about);
  }

  /** A flag with a number as default. */
  public static Flag number(String name, long fallback, String about) {
    return new Flag(name, Long.toString(fallback), about);
  }

  /**
   * A flag that is {@code true} or {@code false}, false if absent; alone, without a value, it means
   * true.
   */
  public static Flag yesNo(String name, String about) {
    return new Flag(name, "false", about);
  }

  boolean isYesNo() {
    return "false".equals(fallback) || "true".equals(fallback);
  }

  /** A flag that may stay empty. */
  public static Flag text(String name, String fallback, String about) {
    return new Flag(name, fallback, about);
  }

  /** The help page of a command. */
  public static String help(String command, List<Flag> flags) {
    StringBuilder page =
        new StringBuilder("Usage: java -jar cursorkeeper-gateway.jar " + command + " [flags]\n");
    for (Flag flag : flags) {
      String value =
          flag.fallback == null ? "required" : flag.fallback.isEmpty() ? "empty" : flag.fallback;
      page.append(String.format("  --%-28s %s (%s)%n", flag.name, flag.about, value));
    }
    return page.toString();
  }
}
