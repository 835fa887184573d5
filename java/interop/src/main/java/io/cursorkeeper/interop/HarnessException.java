package io.cursorkeeper.interop;

/** A request that makes no sense here; the message says what to do. */
final class HarnessException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  HarnessException(String message) {
    super(message);
  }
}
