package io.grpc;

/**
 * The context of a call that can be cancelled. An interceptor is given a stand-in that cannot, and
 * grpc has no other way by which a server resets a call: an ordinary end waits behind everything
 * that the peer does not read.
 */
public final class CallContext {
  private CallContext() {}

  /** The context of the call that this thread serves; null outside of calls. */
  public static Context.CancellableContext current() {
    return Context.current().cancellableAncestor;
  }
}
