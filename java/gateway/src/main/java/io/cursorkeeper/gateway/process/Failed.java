package io.cursorkeeper.gateway.process;

import java.nio.file.FileSystemException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/** Reads causes: the real one behind the wrappers of futures, and a chain of causes as one line. */
public final class Failed {
  private static final int CAUSES_MAX = 5;

  private Failed() {}

  /** The failure without the wrappers that futures put around it. */
  public static Throwable cause(Throwable failure) {
    Throwable inner = failure;
    while ((inner instanceof CompletionException || inner instanceof ExecutionException)
        && inner.getCause() != null) {
      inner = inner.getCause();
    }
    return inner;
  }

  /** Message and causes, without a stack. */
  public static String inOneLine(Throwable failure) {
    StringBuilder line = new StringBuilder();
    Throwable at = cause(failure);
    for (int depth = 0; at != null && depth < CAUSES_MAX; depth++, at = at.getCause()) {
      String text = text(at);
      if (line.indexOf(text) < 0) {
        line.append(line.length() == 0 ? "" : ": ").append(text);
      }
    }
    return line.toString().replace('\n', ' ');
  }

  private static String text(Throwable failure) {
    String name = failure.getClass().getSimpleName();
    // Of a file system's failures the message is often the path alone.
    boolean onlyPath = failure instanceof FileSystemException file && file.getReason() == null;
    return failure.getMessage() == null
        ? name
        : onlyPath ? name + " " + failure.getMessage() : failure.getMessage();
  }
}
