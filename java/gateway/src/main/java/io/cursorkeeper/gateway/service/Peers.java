package io.cursorkeeper.gateway.service;

import com.google.protobuf.MessageLite;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.CallContext;
import io.grpc.Context;
import io.grpc.ForwardingServerCall.SimpleForwardingServerCall;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerStreamTracer;
import io.grpc.Status;
import java.net.SocketAddress;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * What peers may hold of this process without having asked for anything yet: calls, messages that
 * are not taken, whole or in part, answers that they do not take. Each has its bound, and a peer
 * that stands still is cut off, whoever it is.
 *
 * <p>Cut off means that the call is reset: what lies ready for it is dropped. An ordinary end would
 * wait behind what the peer does not read.
 */
final class Peers extends ServerStreamTracer.Factory implements ServerInterceptor {
  private static final Context.Key<Peer> KEY = Context.key("peer");
  private static final String APPEND = LedgersGrpc.getAppendMethod().getFullMethodName();

  /** Of a request that is not an append. */
  private static final long REQUEST_BYTES_MAX = 64 << 10;

  private static final int OPEN_CALLS_MAX = 256;

  /** What a piece of a message takes beside its bytes. */
  private static final int PIECE_BYTES = 256;

  private final Set<Peer> calls = ConcurrentHashMap.newKeySet();

  /** Those that need no token. */
  private final Set<Peer> openCalls = ConcurrentHashMap.newKeySet();

  private final AtomicLong heldBytes = new AtomicLong();
  private final AtomicLong replyBytes = new AtomicLong();
  private final Connections connections;
  private final int callsMax;
  private final long heldBytesMax;
  private final long replyBytesMax;
  private final long stallMaxNanos;
  private final Consumer<LedgerFailure> failures;

  Peers(
      Connections connections,
      int callsMax,
      long heldBytesMax,
      long replyBytesMax,
      long stallMaxMs,
      Consumer<LedgerFailure> failures) {
    this.connections = connections;
    this.callsMax = callsMax;
    this.heldBytesMax = heldBytesMax;
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

  long heldBytes() {
    return heldBytes.get();
  }

  /** Bytes of answers that are not taken yet, or that room is kept for. */
  long replyBytes() {
    return replyBytes.get();
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
    if (peer.isOpen) {
      makeRoom(peer);
    }
    if (calls.size() > callsMax || replyBytes.get() > replyBytesMax) {
      LedgerFailure full =
          LedgerFailure.later(
              "TOO_MANY_CALLS",
              "this gateway has "
                  + calls.size()
                  + " calls (limit "
                  + callsMax
                  + ") and "
                  + replyBytes.get()
                  + " bytes of answers that nobody takes (limit "
                  + replyBytesMax
                  + ")");
      failures.accept(full);
      call.close(full.status(), full.trailers());
      return new ServerCall.Listener<>() {};
    }
    ServerCall.Listener<Q> listener =
        next.startCall(
            call.getMethodDescriptor().getType() == MethodDescriptor.MethodType.UNARY
                ? new SimpleForwardingServerCall<Q, A>(call) {
                  @Override
                  public void sendMessage(A answer) {
                    peer.answers(
                        answer instanceof MessageLite sized ? sized.getSerializedSize() : 0);
                    super.sendMessage(answer);
                  }
                }
                : call,
            headers);
    return !peer.isLone
        ? listener
        : new SimpleForwardingServerCallListener<Q>(listener) {
          @Override
          public void onHalfClose() {
            peer.waitsSinceNanos = 0;
            super.onHalfClose();
          }
        };
  }

  // The oldest goes: a probe is short, and whoever watches comes again.
  private void makeRoom(Peer newest) {
    openCalls.add(newest);
    if (openCalls.size() > OPEN_CALLS_MAX) {
      openCalls.stream()
          .filter(one -> !one.isCut)
          .min(Comparator.comparingLong(one -> one.bornNanos))
          .ifPresent(
              oldest ->
                  oldest.cut(
                      "was the oldest of more than "
                          + OPEN_CALLS_MAX
                          + " calls of health and reflection"));
    }
  }

  // What those hold who are cut already goes with them, a moment later.
  private void cutLargest() {
    List<Peer> others = calls.stream().filter(one -> !one.isCut).toList();
    long all = others.stream().mapToLong(one -> one.held).sum();
    if (all > heldBytesMax) {
      others.stream()
          .max(Comparator.comparingLong(one -> one.held))
          .ifPresent(
              largest ->
                  largest.cut(
                      "had sent "
                          + largest.held
                          + " bytes of messages that are not taken yet when all"
                          + " peers together had sent "
                          + all
                          + ", the limit is "
                          + heldBytesMax));
    }
  }

  /** Cuts off who stands still in the middle of a message; called every second or so. */
  void look() {
    long now = System.nanoTime();
    for (Peer peer : calls) {
      long since = peer.waitsSinceNanos;
      if (since != 0 && now - since > stallMaxNanos) {
        peer.cut(
            "did not finish its message for " + TimeUnit.NANOSECONDS.toMillis(now - since) + " ms");
      }
    }
  }

  /** One call, from its headers to its very end. */
  final class Peer extends ServerStreamTracer {
    /** Of one request. It is kept until the call ends, and not served before it is complete. */
    private final boolean isLone;

    private final boolean isOpen;
    private final long bornNanos = now();
    private volatile Context.CancellableContext call;

    /** Since when a part of a message is missing; 0: none is. */
    private volatile long waitsSinceNanos;

    /** Of messages that arrived in part, or wholly and are not taken yet. */
    private volatile long held;

    private boolean isCompressed;

    /** Bytes of its answer, or kept for it. */
    private long answered;

    private boolean hasEnded;
    private SocketAddress known;
    private volatile boolean isCut;

    Peer(String method) {
      this.isLone = !method.equals(APPEND);
      this.isOpen = !method.startsWith(LedgersGrpc.SERVICE_NAME + "/");
      waitsSinceNanos = isLone ? bornNanos : 0;
    }

    /** Ends the call at once; the service hears of it as of any call that was cancelled. */
    void cut(String why) {
      Context.CancellableContext context = call;
      if (isCut || context == null) {
        return;
      }
      isCut = true;
      failures.accept(LedgerFailure.later("PEER_CUT_OFF", why));
      context.cancel(new TimeoutException("the peer " + why));
    }

    /** It proved who it is: while this call lasts its connection stays. */
    void isKnown(SocketAddress from) {
      known = from;
      connections.callBegins(from);
    }

    /** The message is counted elsewhere from now on. */
    synchronized void taken() {
      heldBytes.addAndGet(-held);
      held = 0;
    }

    @Override
    public Context filterContext(Context context) {
      return context.withValue(KEY, this);
    }

    @Override
    public void inboundMessage(int number) {
      if (!isLone) {
        waitsSinceNanos = now();
      }
    }

    @Override
    public void inboundWireSize(long bytes) {
      hold(bytes + PIECE_BYTES);
    }

    @Override
    public void inboundUncompressedSize(long bytes) {
      if (isCompressed) {
        hold(bytes);
      }
    }

    @Override
    public void inboundMessageRead(int number, long wireBytes, long bytes) {
      isCompressed = bytes < 0;
      if (!isLone) {
        waitsSinceNanos = 0;
      }
    }

    @Override
    public void streamClosed(Status status) {
      calls.remove(this);
      openCalls.remove(this);
      if (known != null) {
        connections.callEnds(known);
      }
      waitsSinceNanos = 0;
      taken();
      hasEnded();
    }

    /**
     * Keeps room for an answer that is larger than most, until the call ends; false if the call has
     * ended, or if answers that nobody takes have half of all room: the rest is for answers that
     * must be given.
     */
    synchronized boolean reserves(long bytes) {
      if (hasEnded) {
        return false;
      }
      if (replyBytes.addAndGet(bytes) > replyBytesMax / 2) {
        replyBytes.addAndGet(-bytes);
        return false;
      }
      answered += bytes;
      return true;
    }

    // What is answered to a call that has ended goes nowhere, and nobody would take it off again.
    private synchronized void answers(int bytes) {
      long more = hasEnded ? 0 : Math.max(0, bytes - answered);
      answered += more;
      replyBytes.addAndGet(more);
    }

    private synchronized void hasEnded() {
      hasEnded = true;
      replyBytes.addAndGet(-answered);
      answered = 0;
    }

    private void hold(long bytes) {
      long all;
      synchronized (this) {
        held += bytes;
        all = heldBytes.addAndGet(bytes);
      }
      if (isLone && held > REQUEST_BYTES_MAX) {
        cut("sent a request of more than " + REQUEST_BYTES_MAX + " bytes, or in too many pieces");
      } else if (all > heldBytesMax) {
        cutLargest();
      }
    }

    private static long now() {
      return Math.max(1, System.nanoTime());
    }
  }
}
