package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.process.Flags;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.Map;

/**
 * The tokens of a gateway, read once at the start and checked as a whole: one role without a token
 * would be open to everybody, so either the roles have one each, or none has and nobody from
 * outside may connect.
 */
final class Tokens {
  /** What our own examples hold: everybody knows them. */
  private static final String PLACEHOLDER = "change-me";

  private Tokens() {}

  /** Of every role that has a file; throws IllegalArgumentException with a message for people. */
  static Map<Role, String> of(Flags flags) {
    Map<Role, String> tokens = new EnumMap<>(Role.class);
    for (Role role : Role.values()) {
      String file = flags.text(flag(role));
      if (!file.isEmpty()) {
        Secrets.warnIfOthersRead("--" + flag(role), Path.of(file));
        tokens.put(role, read(file));
      }
    }
    for (Role role : new Role[] {Role.WRITER, Role.READER}) {
      require(
          tokens.isEmpty() || tokens.containsKey(role),
          "--"
              + flag(role)
              + " is missing: where one role needs a"
              + " token, the role "
              + role.word()
              + " without one would be open to everybody");
    }
    require(
        new HashSet<>(tokens.values()).size() == tokens.size(),
        "two roles have the same token, so each of them could do what the other may; write one"
            + " token for each role");
    return tokens;
  }

  private static String read(String file) {
    String token;
    try {
      token = Files.readString(Path.of(file), StandardCharsets.UTF_8).trim();
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          "token file " + file + " cannot be read: " + unreadable.getMessage());
    }
    require(!token.isEmpty(), file + " holds no token");
    require(
        !token.endsWith(PLACEHOLDER),
        file
            + " holds the placeholder '"
            + token
            + "', which everybody can read in our examples: write a token of your own into it, for"
            + " example with `openssl rand -hex 32`");
    require(
        token.chars().allMatch(c -> c > ' ' && c < 127),
        file + " must hold one line of printable ASCII characters");
    return token;
  }

  static String flag(Role role) {
    return role.word() + "-token-file";
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
