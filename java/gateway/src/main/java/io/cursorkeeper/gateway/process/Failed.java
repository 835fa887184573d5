package io.cursorkeeper.gateway.process;

import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Reads causes: the real one behind the wrappers of futures, and a chain of causes as one line. */
public final class Failed {
  private static final int CAUSES_MAX = 5;

  private Failed() {}

  /** The failure without the wrappers that futures put around it. */
  public static Throwable cause(Throwable failure) {
    Throwable inner = failure;
    while ((inner instanceof CompletionException || inner instanceof ExecutionException) && inner.getCause() != null) {
      inner = inner.getCause();
    }
    return inner;
  }

  /** Message and causes, without a stack. */
  public static String inOneLine(Throwable failure) {
    StringBuilder line = new StringBuilder();
    Throwable at = cause(failure);
    for (int depth = 0; at != null && depth < CAUSES_MAX; depth++, at = at.getCause()) {
      String text = at.getMessage() == null ? at.getClass().getSimpleName() : at.getMessage();
      if (line.indexOf(text) < 0) {
        line.append(line.length() == 0 ? "" : ": ").append(text);
      }
    }
    return line.toString().replace('\n', ' ');
  }
}
