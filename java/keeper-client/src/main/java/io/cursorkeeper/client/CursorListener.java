package io.cursorkeeper.client;

/**
 * What happens to a kept cursor. Called on the executor of the settings, one call at a time and in
 * order with the completions of the cursor's futures, and never while a lock of the link is held.
 */
public interface CursorListener {

  /**
   * What is acked from now on may not be kept for long: stop dispatching. Acks may still be handed
   * over. {@code reason} is the keeper's, or says that the link's own memory is full, or both; told
   * again when it changes. See {@link KeptCursor#persistable}.
   */
  default void paused(String reason) {}

  /** The end of {@link #paused}. */
  default void resumed() {}

  /**
   * The cursor was opened again, with a state, in the generation that it had: the daemon was
   * restarted, say. What had no confirmation is sent again by itself, so the state may lack it. A
   * broken stream that is taken up where it broke tells nothing.
   */
  default void reopened(CursorState state) {}

  /**
   * A change was refused for what it says: an entry that its ledger does not have, say. It is not
   * kept, and the cursor goes on. Its futures, and those of what was sent with it as one message,
   * fail with the same reason as soon as this returns.
   */
  default void refused(KeeperException why) {}

  /** There is no stream to a daemon. Acks wait. */
  default void linkDown() {}

  /** The cursor is open again after {@link #linkDown}. */
  default void linkUp() {}

  /**
   * The last call: the cursor is not kept through this object any more; futures that waited have
   * failed with the same reason. Also after {@link KeptCursor#close} and {@link KeptCursor#delete},
   * with CLOSED and DELETED. FENCED: a newer load of the topic has it. DEPOSED: somebody opened it
   * without a token, or set it back; it may be opened again.
   */
  void ended(KeeperException why);
}
