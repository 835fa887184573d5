package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerCall;
import io.grpc.Status;

/**
 * A call that was let in, and may be ended while it runs because its caller may no longer: then the
 * caller hears why, and the service hears what it hears of any call that was cancelled.
 *
 * <p>Answers come from threads of the service, the end from a timer: all of them take turns here.
 */
final class OpenCall<Q, A> extends SimpleForwardingServerCall<Q, A> {
  private final Runnable onEnd;
  private ServerCall.Listener<Q> service;
  private boolean isClosed;
  private volatile boolean isRevoked;
  private volatile boolean isAsked;

  /** {@code onEnd} may run more than once. */
  OpenCall(ServerCall<Q, A> call, Runnable onEnd) {
    super(call);
    this.onEnd = onEnd;
  }

  /** What the transport tells, until the call is revoked. */
  ServerCall.Listener<Q> heardBy(ServerCall.Listener<Q> listener) {
    synchronized (this) {
      service = listener;
    }
    return new ServerCall.Listener<>() {
      @Override
      public void onMessage(Q message) {
        if (!isRevoked) {
          listener.onMessage(message);
        }
      }

      @Override
      public void onHalfClose() {
        isAsked = true;
        if (!isRevoked) {
          listener.onHalfClose();
        }
      }

      @Override
      public void onReady() {
        if (!isRevoked) {
          listener.onReady();
        }
      }

      @Override
      public void onCancel() {
        onEnd.run();
        if (!isRevoked) {
          listener.onCancel();
        }
      }

      @Override
      public void onComplete() {
        onEnd.run();
        if (!isRevoked) {
          listener.onComplete();
        }
      }
    };
  }

  /**
   * Ends the call, unless it has ended, or is a lone one that has its question already: that is
   * answered, because its work is under way.
   */
  void revoke(LedgerFailure why) {
    ServerCall.Listener<Q> cancelled;
    synchronized (this) {
      boolean isLone = getMethodDescriptor().getType() == MethodDescriptor.MethodType.UNARY;
      if (isClosed || isRevoked || service == null || (isLone && isAsked)) {
        return;
      }
      isRevoked = true;
      cancelled = service;
    }
    // First: who hears that the call has ended may count on what it held being free.
    cancelled.onCancel();
    synchronized (this) {
      super.close(why.status(), why.trailers());
    }
  }

  @Override
  public synchronized void sendHeaders(Metadata headers) {
    if (!isRevoked) {
      super.sendHeaders(headers);
    }
  }

  @Override
  public synchronized void sendMessage(A answer) {
    if (!isRevoked) {
      super.sendMessage(answer);
    }
  }

  @Override
  public synchronized void close(Status status, Metadata trailers) {
    isClosed = true;
    if (!isRevoked) {
      super.close(status, trailers);
    }
  }

  @Override
  public boolean isCancelled() {
    return isRevoked || super.isCancelled();
  }

  @Override
  public boolean isReady() {
    return !isRevoked && super.isReady();
  }
}
