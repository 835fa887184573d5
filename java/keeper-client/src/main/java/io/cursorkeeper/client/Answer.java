package io.cursorkeeper.client;

import java.util.concurrent.CompletableFuture;

/** A future that only this package settles: several callers may have the same one. */
final class Answer<T> extends CompletableFuture<T> {

  void settle(T value) {
    super.complete(value);
  }

  void fail(KeeperException why) {
    super.completeExceptionally(why);
  }

  @Override
  public <U> CompletableFuture<U> newIncompleteFuture() {
    return new CompletableFuture<>();
  }

  @Override
  public boolean complete(T value) {
    return false;
  }

  @Override
  public boolean completeExceptionally(Throwable why) {
    return false;
  }

  @Override
  public boolean cancel(boolean mayInterrupt) {
    return false;
  }

  @Override
  public void obtrudeValue(T value) {
    throw new UnsupportedOperationException("only the link settles its answers");
  }

  @Override
  public void obtrudeException(Throwable why) {
    throw new UnsupportedOperationException("only the link settles its answers");
  }
}
