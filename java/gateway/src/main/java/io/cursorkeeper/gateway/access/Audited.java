package io.cursorkeeper.gateway.access;

/**
 * One call as the audit log will tell it: who makes it, and of which ledger, as far as is known.
 */
public final class Audited {
  private final Caller who;
  private final String call;
  private volatile long ledgerId;
  private volatile Whose whose;

  /** {@code call} as in the contract; {@code ledgerId} -1: none yet. */
  public Audited(Caller who, String call, long ledgerId) {
    this.who = who;
    this.call = call;
    this.ledgerId = ledgerId;
  }

  public Caller who() {
    return who;
  }

  public long ledgerId() {
    return ledgerId;
  }

  /** The ledger was made. */
  public void made(long id) {
    ledgerId = id;
  }

  /** It is known whose the ledger is. */
  public Whose is(Whose found) {
    whose = found;
    return found;
  }

  String call() {
    return call;
  }

  /** Null: not known, or none. */
  Whose whose() {
    return whose;
  }
}
