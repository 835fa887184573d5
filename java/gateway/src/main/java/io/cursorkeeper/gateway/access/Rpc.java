package io.cursorkeeper.gateway.access;

import java.util.Arrays;
import java.util.Optional;
import java.util.Set;

/**
 * The calls of the contract, and the roles that may make them at all. A call without a row is
 * nobody's: what the contract gets later is denied until it has one.
 */
enum Rpc {
  CREATE("Create", Role.WRITER, Role.MIGRATOR),
  APPEND("Append", Role.WRITER, Role.MIGRATOR),
  FENCE("Fence", Role.WRITER, Role.MIGRATOR),
  CLOSE("Close", Role.WRITER, Role.MIGRATOR),
  DELETE("Delete", Role.WRITER, Role.MIGRATOR),
  READ("Read", Role.values()),
  METADATA("Metadata", Role.values()),
  END("End", Role.values()),
  LIST("List", Role.values()),
  /** Tells what the gateway is, and of no ledger: for everybody who is known, of whatever role. */
  DESCRIBE("Describe", Role.values());

  private final String word;
  private final Set<Role> roles;

  Rpc(String word, Role... roles) {
    this.word = word;
    this.roles = Set.of(roles);
  }

  /** As in the contract. */
  String word() {
    return word;
  }

  boolean isFor(Role role) {
    return roles.contains(role);
  }

  static Optional<Rpc> named(String word) {
    return Arrays.stream(values()).filter(one -> one.word.equals(word)).findFirst();
  }
}
