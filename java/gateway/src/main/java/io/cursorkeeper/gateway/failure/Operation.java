package io.cursorkeeper.gateway.failure;

/** What was being done when it failed: decides whether the outcome can be unknown. */
public enum Operation {
  CREATE(true),
  APPEND(true),
  FENCE(true),
  CLOSE(true),
  DELETE(true),
  READ(false),
  METADATA(false),
  LIST(false);

  private final boolean changes;

  Operation(boolean changes) {
    this.changes = changes;
  }

  /** Whether it changes anything: what only reads is never half done. */
  public boolean changes() {
    return changes;
  }
}
