package io.cursorkeeper.gateway.service;

/** Who a caller is to the gateway; {@link Access} says what each may do with whose ledger. */
enum Role {
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
  String word() {
    return word;
  }
}
