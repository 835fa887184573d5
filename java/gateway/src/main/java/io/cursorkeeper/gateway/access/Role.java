package io.cursorkeeper.gateway.access;

import java.util.Arrays;
import java.util.Optional;
import java.util.stream.Collectors;

/** What a caller is to the gateway; {@link Access} says what each may do with whose ledger. */
public enum Role {
  /** Reads ours and Pulsar's cursors, changes nothing; who names no role is one. */
  READER("reader"),
  /** A daemon: writes ours, and knows nothing of Pulsar's. */
  WRITER("writer"),
  /**
   * Moves cursors back to Pulsar: writes Pulsar's cursor ledgers. Off unless it was switched on.
   */
  MIGRATOR("migrator");

  private final String word;

  Role(String word) {
    this.word = word;
  }

  /** The role's name, as callers and flags write it. */
  public String word() {
    return word;
  }

  /** The role of this name; empty if a gateway has none such. */
  static Optional<Role> named(String word) {
    return Arrays.stream(values()).filter(one -> one.word.equals(word)).findFirst();
  }

  /** All of them, for people. */
  static String words() {
    return Arrays.stream(values()).map(Role::word).collect(Collectors.joining(", "));
  }
}
