package io.cursorkeeper.gateway.service;

/**
 * The room of one read: within what its identity may have, if there is such a limit, and within the
 * budget of all. It is taken of the first before the second, so whoever waits for everybody's room
 * keeps no one from another identity's.
 */
final class ReadRoom {
  /** Null: the identity has no limit of its own. */
  private final ReadBudget own;

  private final ReadBudget shared;
  private Runnable waitingForOwn;
  private long awaited;

  ReadRoom(ReadBudget own, ReadBudget shared) {
    this.own = own;
    this.shared = shared;
  }

  long bytesMax() {
    return own == null ? shared.bytesMax() : Math.min(own.bytesMax(), shared.bytesMax());
  }

  /** Takes room if there is some and nobody waits for it. */
  boolean take(long wanted) {
    if (own != null && !own.take(wanted)) {
      return false;
    }
    if (shared.take(wanted)) {
      return true;
    }
    if (own != null) {
      own.giveBack(wanted);
    }
    return false;
  }

  /** Room will be taken for {@code granted}, which is then run; one at a time. */
  void await(long wanted, Runnable granted) {
    if (own == null) {
      shared.await(wanted, granted);
      return;
    }
    awaited = wanted;
    waitingForOwn = () -> shared.await(wanted, granted);
    own.await(wanted, waitingForOwn);
  }

  /** No longer wanted; false if it was granted meanwhile, or is about to be. */
  boolean forget(Runnable granted) {
    if (own == null) {
      return shared.forget(granted);
    }
    if (own.forget(waitingForOwn)) {
      return true;
    }
    if (shared.forget(granted)) {
      own.giveBack(awaited);
      return true;
    }
    return false;
  }

  int guess(int wanted) {
    return shared.guess(wanted);
  }

  void guessed(int given) {
    shared.guessed(given);
  }

  /** A guess was wrong: what is there already is counted. */
  void exceed(long more) {
    if (own != null) {
      own.exceed(more);
    }
    shared.exceed(more);
  }

  void giveBack(long given) {
    if (own != null) {
      own.giveBack(given);
    }
    shared.giveBack(given);
  }
}
