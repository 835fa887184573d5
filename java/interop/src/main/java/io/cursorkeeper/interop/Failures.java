package io.cursorkeeper.interop;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Waiting with a limit, and what really went wrong. */
final class Failures {
  /**
   * No single step of the managed ledger may take longer; deleting ten million entries takes
   * seconds.
   */
  static final int STEP_MAX_S = 120;

  /** The package of the managed ledger's messages. */
  private static final String MESSAGES = "org.apache.bookkeeper.mledger.proto.";

  private Failures() {}

  static <T> T await(CompletableFuture<T> future) throws Exception {
    return future.get(STEP_MAX_S, TimeUnit.SECONDS);
  }

  /**
   * Whether one of Pulsar's messages was refused by its own serializer, because it was not filled.
   * Since 5.0 a {@code ManagedCursorImpl} has one {@code PositionInfo} that every flush clears,
   * fills and writes: two flushes at once write a torn one, or fail so. By type and place, the text
   * is no one's promise.
   */
  static boolean isTorn(Throwable thrown) {
    for (Throwable at = thrown; at != null; at = at.getCause()) {
      StackTraceElement[] stack = at.getStackTrace();
      if (at instanceof IllegalStateException
          && stack.length > 0
          && stack[0].getClassName().startsWith(MESSAGES)) {
        return true;
      }
    }
    return false;
  }

  static Throwable cause(Throwable thrown) {
    Throwable found = thrown;
    while ((found instanceof CompletionException || found instanceof ExecutionException)
        && found.getCause() != null) {
      found = found.getCause();
    }
    return found;
  }
}
