package io.cursorkeeper.gateway.systems;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;

/** Failures in words for operators: what a file has, and the innermost of several causes. */
final class Failures {
  private static final int CAUSES_MAX = 10;

  private Failures() {}

  /** Why a file cannot be read. */
  static String ofFile(IOException failure) {
    if (failure instanceof NoSuchFileException) {
      return "there is no such file";
    }
    if (failure instanceof AccessDeniedException) {
      return "permission denied";
    }
    return failure.getMessage();
  }

  /** The last cause, which is the one that happened first. */
  static Throwable innermost(Throwable failure) {
    Throwable at = failure;
    for (int depth = 0; depth < CAUSES_MAX && at.getCause() != null; depth++) {
      at = at.getCause();
    }
    return at;
  }

  /** Whether it, or one of its causes, is of a kind. */
  static boolean isOf(Throwable failure, Class<? extends Throwable> kind) {
    Throwable at = failure;
    for (int depth = 0; depth < CAUSES_MAX && at != null; depth++, at = at.getCause()) {
      if (kind.isInstance(at)) {
        return true;
      }
    }
    return false;
  }

  /** Its message in one line, or its name where it has none. */
  static String text(Throwable failure) {
    return failure.getMessage() == null
        ? failure.getClass().getSimpleName()
        : failure.getMessage().replaceAll("\\s+", " ");
  }

  /** A setting that cannot be used: what it is, what is wrong, what to do. */
  static IllegalArgumentException wrong(String said, String what, String remedy) {
    return new IllegalArgumentException(said + ": " + what + ": " + remedy);
  }
}
