package io.cursorkeeper.client;

/**
 * What is known of one of a topic's data ledgers; {@code entries} counts only where it is closed.
 */
public record DataLedger(long ledger, State state, long entries) {

  /** TRIMMED counts as wholly acked. Only the last ledger of a run may be OPEN. */
  public enum State {
    CLOSED,
    OPEN,
    TRIMMED
  }

  public static DataLedger closed(long ledger, long entries) {
    return new DataLedger(ledger, State.CLOSED, entries);
  }

  public static DataLedger open(long ledger) {
    return new DataLedger(ledger, State.OPEN, 0);
  }

  public static DataLedger trimmed(long ledger) {
    return new DataLedger(ledger, State.TRIMMED, 0);
  }
}
