package io.cursorkeeper.pulsar;

import java.util.concurrent.CompletableFuture;

/**
 * Serves a client's ack receipts: one command of a client while the broker's I/O thread works on
 * it. Pulsar before 5.0 calls the cursor within it and does not wait for the cursor's answer; so
 * the cursor leaves here what the command's receipt has to wait for.
 *
 * <p>One thread uses it. Scopes nest: Pulsar reads the next command within one, when a connection
 * may be read again.
 */
public final class CommandScope {

  private static final ThreadLocal<CommandScope> CURRENT = new ThreadLocal<>();

  private CommandScope outer;
  private boolean isOpen;
  private boolean expectsReceipt;
  private CompletableFuture<Void> durable;
  private Runnable hurry;
  private boolean hasReceipt;

  /**
   * Begins on this thread, and ends by {@link #close}. One scope serves one command after the
   * other; a command within it gets another one.
   *
   * @param expectsReceipt a guess: if the command has a receipt all the same, {@link #expect} says
   *     so
   */
  public CommandScope open(boolean expectsReceipt) {
    if (isOpen) {
      return new CommandScope().open(expectsReceipt);
    }
    isOpen = true;
    outer = CURRENT.get();
    CURRENT.set(this);
    this.expectsReceipt = expectsReceipt;
    durable = null;
    hurry = null;
    hasReceipt = false;
    return this;
  }

  /**
   * Whether this thread is at a command that has no receipt, about: then nobody waits for what it
   * changes.
   */
  public static boolean isPatient() {
    CommandScope now = CURRENT.get();
    return now != null && !now.expectsReceipt;
  }

  public void close() {
    CURRENT.set(outer);
    outer = null;
    isOpen = false;
  }

  /**
   * The command that this thread is at is not done before this is. Of no effect outside of one.
   *
   * @param hurry what to do if somebody waits for it though {@link #isPatient} said otherwise
   */
  public static void waitsFor(CompletableFuture<Void> change, Runnable hurry) {
    CommandScope now = CURRENT.get();
    if (now != null) {
      if (!now.expectsReceipt) {
        Runnable before = now.hurry;
        now.hurry =
            before == null
                ? hurry
                : () -> {
                  before.run();
                  hurry.run();
                };
      }
      now.durable =
          now.durable == null || now.durable == change
              ? change
              : CompletableFuture.allOf(now.durable, change);
    }
  }

  /** The command has a receipt. */
  public void expect() {
    hasReceipt = true;
    if (hurry != null) {
      hurry.run();
      hurry = null;
    }
  }

  public boolean hasReceipt() {
    return hasReceipt;
  }

  /** Null: the command has changed no cursor. Until the next one begins. */
  public CompletableFuture<Void> durable() {
    return durable;
  }
}
