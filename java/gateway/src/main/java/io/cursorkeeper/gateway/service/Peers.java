package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.CallContext;
import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;
import com.google.protobuf.MessageLite;
import java.util.Comparator;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * What peers may hold of this process without having asked for anything yet: calls, halves of messages, answers that they do
 * not take. Each has its bound, and a peer that stands still is cut off, whoever it is.
 *
 * <p>Cut off means that the call is reset: what lies ready for it is dropped. An ordinary end would wait behind what the peer
 * does not read.
 */
final class Peers extends ServerStreamTracer.Factory implements ServerInterceptor {
  private static final Context.Key<Peer> KEY = Context.key("peer");
  private static final String APPEND = LedgersGrpc.getAppendMethod().getFullMethodName();
  /** Of a request that is not an append: the largest is a create with its metadata. */
  private static final long REQUEST_BYTES_MAX = 1 << 20;

  private final Set<Peer> calls = ConcurrentHashMap.newKeySet();
  private final AtomicLong halfSentBytes = new AtomicLong();
  private final AtomicLong replyBytes = new AtomicLong();
  private final int callsMax;
  private final long halfSentBytesMax;
  private final long replyBytesMax;
  private final long stallMaxNanos;
  private final Consumer<LedgerFailure> failures;

  Peers(int callsMax, long halfSentBytesMax, long replyBytesMax, long stallMaxMs, Consumer<LedgerFailure> failures) {
    this.callsMax = callsMax;
    this.halfSentBytesMax = halfSentBytesMax;
    this.replyBytesMax = replyBytesMax;
    this.stallMaxNanos = TimeUnit.MILLISECONDS.toNanos(stallMaxMs);
    this.failures = failures;
  }

  /** The peer of the call whose thread this is. */
  static Peer current() {
    return KEY.get();
  }

  int calls() {
    return calls.size();
  }

  long halfSentBytes() {
    return halfSentBytes.get();
  }

  @Override
  public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
    return new Peer(method);
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    Peer peer = current();
    peer.call = CallContext.current();
    calls.add(peer);
    if (calls.size() > callsMax || replyBytes.get() > replyBytesMax) {
      LedgerFailure full = LedgerFailure.later("TOO_MANY_CALLS", "this gateway has " + calls.size() + " calls (limit "
          + callsMax + ") and " + replyBytes.get() + " bytes of answers that nobody takes (limit " + replyBytesMax + ")");
      failures.accept(full);
      call.close(full.status(), full.trailers());
      return new ServerCall.Listener<>() {};
    }
    return next.startCall(call.getMethodDescriptor().getType() == MethodDescriptor.MethodType.UNARY
        ? new SimpleForwardingServerCall<Q, A>(call) {
          @Override
          public void sendMessage(A answer) {
            peer.answers(answer instanceof MessageLite sized ? sized.getSerializedSize() : 0);
            super.sendMessage(answer);
          }
        } : call, headers);
  }

  /** Cuts off who stands still in the middle of a message; called every second or so. */
  void look() {
    long now = System.nanoTime();
    for (Peer peer : calls) {
      long since = peer.waitsSinceNanos;
      if (since != 0 && now - since > stallMaxNanos) {
        peer.cut("did not finish its message for " + TimeUnit.NANOSECONDS.toMillis(now - since) + " ms");
      }
    }
  }

  /** One call, from its headers to its very end. */
  final class Peer extends ServerStreamTracer {
    private final String method;
    private final boolean lone;
    private volatile Context.CancellableContext call;
    /** Since when a part of a message is missing; 0: none is. */
    private volatile long waitsSinceNanos;
    private volatile long half;
    private long answered;
    private volatile boolean isCut;

    Peer(String method) {
      this.method = method;
      this.lone = method.startsWith(LedgersGrpc.SERVICE_NAME) && !method.equals(APPEND);
      waitsSinceNanos = lone ? now() : 0;
    }

    /** Ends the call at once; the service hears of it as of any call that was cancelled. */
    void cut(String why) {
      Context.CancellableContext known = call;
      if (isCut || known == null) {
        return;
      }
      isCut = true;
      failures.accept(LedgerFailure.later("PEER_CUT_OFF", why));
      known.cancel(new TimeoutException("the peer " + why));
    }

    @Override
    public Context filterContext(Context context) {
      return context.withValue(KEY, this);
    }

    @Override
    public void inboundMessage(int number) {
      waitsSinceNanos = now();
    }

    @Override
    public void inboundWireSize(long bytes) {
      half += bytes;
      long all = halfSentBytes.addAndGet(bytes);
      if (lone && half > REQUEST_BYTES_MAX) {
        cut("sent a request of more than " + REQUEST_BYTES_MAX + " bytes");
      } else if (all > halfSentBytesMax) {
        calls.stream().filter(one -> !one.isCut).max(Comparator.comparingLong(one -> one.half))
            .ifPresent(largest -> largest.cut("had sent " + largest.half + " bytes of a message when all peers together"
                + " had sent " + all + ", the limit is " + halfSentBytesMax));
      }
    }

    @Override
    public void inboundMessageRead(int number, long wireBytes, long bytes) {
      forgetHalf();
      waitsSinceNanos = 0;
    }

    @Override
    public void streamClosed(Status status) {
      calls.remove(this);
      waitsSinceNanos = 0;
      forgetHalf();
      replyBytes.addAndGet(-answered);
    }

    private void answers(int bytes) {
      answered = bytes;
      replyBytes.addAndGet(bytes);
    }

    private void forgetHalf() {
      halfSentBytes.addAndGet(-half);
      half = 0;
    }

    private static long now() {
      return Math.max(1, System.nanoTime());
    }
  }
}
