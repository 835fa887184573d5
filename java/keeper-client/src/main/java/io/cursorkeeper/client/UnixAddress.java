package io.cursorkeeper.client;

import java.nio.charset.StandardCharsets;

/**
 * Serves who names a daemon's address: {@code unix:} and the absolute path of a socket of the file
 * system, as the daemon's own setting {@code listen} has it ({@code unix:///path} is the same).
 * Whether somebody listens there is found by who dials.
 *
 * @param path absolute
 */
public record UnixAddress(String path) {

  private static final String SCHEME = "unix:";
  private static final String WITH_HOST = "//";

  /** What an address of the kernel has room for, its last byte apart. */
  private static final int PATH_BYTES_MAX = 107;

  /** IllegalArgumentException, with what is wrong, if nothing can listen there. */
  public UnixAddress {
    if (!path.startsWith("/")) {
      throw new IllegalArgumentException("the path \"" + path + "\" is not absolute");
    }
    if (path.startsWith(WITH_HOST)) {
      throw new IllegalArgumentException(
          "the path \"" + path + "\" begins with a host, which a socket has not");
    }
    int bytes = path.getBytes(StandardCharsets.UTF_8).length;
    if (bytes > PATH_BYTES_MAX) {
      throw new IllegalArgumentException(
          "the path has " + bytes + " bytes, a socket's has at most " + PATH_BYTES_MAX);
    }
    if (path.indexOf('\0') >= 0) {
      throw new IllegalArgumentException("a byte of the path is 0");
    }
  }

  /** Whether it is such an address, right or wrong. */
  public static boolean is(String address) {
    return address.startsWith(SCHEME);
  }

  /** IllegalArgumentException as the record's. */
  public static UnixAddress of(String address) {
    String rest = address.substring(SCHEME.length());
    return new UnixAddress(rest.startsWith(WITH_HOST + "/") ? rest.substring(2) : rest);
  }

  @Override
  public String toString() {
    return SCHEME + path;
  }
}
