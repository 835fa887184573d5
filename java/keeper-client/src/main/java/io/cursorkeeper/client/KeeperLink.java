package io.cursorkeeper.client;

import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/**
 * A connection to one daemon, over time, or one to each of its workers: it dials, says Hello, dials
 * again when a stream breaks, and opens its cursors again. One per process and daemon is enough:
 * the messages of many cursors travel together. For any number of threads; no method waits.
 */
public interface KeeperLink extends AutoCloseable {

  /** Begins to dial and returns at once. It keeps on until {@link #close}. */
  static KeeperLink connect(LinkSettings settings) {
    return connect(settings, problem -> {});
  }

  /**
   * {@code told} hears on the link's own thread why there is no stream, once for each reason, and
   * an empty text when there is one.
   */
  static KeeperLink connect(LinkSettings settings, Consumer<String> told) {
    return new DaemonLink(settings, told);
  }

  /**
   * Opens a cursor and gives its state. What a pause may cure (no daemon yet, UNAVAILABLE) is tried
   * again until the settings' {@code openTimeout}; every other refusal fails the future at once. A
   * future that failed has ended all of it: the listener hears nothing. Cancelling it does nothing.
   */
  CompletableFuture<OpenedCursor> open(OpenRequest request, CursorListener listener);

  /**
   * Deletes a cursor that is not open on this link. NOT_FOUND if there is none. Waits for a daemon
   * as {@link #open} does, and is sent again over broken streams.
   *
   * @param fencingToken as that of an opening; 0: none
   */
  CompletableFuture<Void> delete(String topic, String subscription, long fencingToken);

  /**
   * What the keeper has of a cursor that somebody has open there, without opening it; acks that are
   * accepted and not durable yet are in it. NOT_FOUND: nobody has it open. Is asked once: AWAY if
   * there is no stream, UNAVAILABLE and TIMED_OUT may be asked again.
   */
  CompletableFuture<CursorState> read(String topic, String subscription);

  LinkStatus status();

  /**
   * Ends the stream; cursors end with LINK_CLOSED and stay open at the daemon for a while: close
   * them first to give them back. Futures that wait fail. Returns at once.
   */
  @Override
  void close();
}
