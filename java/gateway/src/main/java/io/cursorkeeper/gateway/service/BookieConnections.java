package io.cursorkeeper.gateway.service;

import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOption;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.net.ConnectException;
import java.net.SocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The BookKeeper client's connections, of which each ends when its bookie stands still. The client
 * gives up an add after its timeout and leaves its bytes in the connection, where they take the
 * room of everybody's appends. Once nothing left for the bookie for as long as an add may take, all
 * of its adds have failed or soon do: the connection ends, which frees the bytes.
 *
 * <p>Such a bookie is a suspect until it answers something. It is tried every few seconds for a
 * moment, and in between its adds and reads fail at once: what other bookies can do need not wait
 * for it.
 */
final class BookieConnections extends MultiThreadIoEventLoopGroup {
  private static final Logger LOG = LoggerFactory.getLogger(BookieConnections.class);
  private static final int LOOK_MS = 250;
  private static final int LOOKS_OF_A_SUSPECT = 2;
  private static final int CONNECT_OF_A_SUSPECT_MAX_MS = 500;
  private static final long FORGET_AFTER_MS = 600_000;

  /** To the time when they were tried last. */
  private final ConcurrentMap<SocketAddress, Long> suspects = new ConcurrentHashMap<>();

  private final int looksMax;
  private final long tryEveryMs;

  BookieConnections(ThreadFactory threads, long silenceMaxMs, long tryEveryMs) {
    super(1, threads, NioIoHandler.newFactory());
    looksMax = (int) Math.max(LOOKS_OF_A_SUSPECT, silenceMaxMs / LOOK_MS);
    this.tryEveryMs = tryEveryMs;
  }

  /** Bookies that stood still and have not answered since. */
  int suspects() {
    return suspects.size();
  }

  @Override
  public ChannelFuture register(Channel connection) {
    connection.pipeline().addFirst(new Watch());
    return super.register(connection);
  }

  private void suspect(SocketAddress bookie) {
    long now = System.nanoTime();
    suspects
        .values()
        .removeIf(tried -> now - tried > TimeUnit.MILLISECONDS.toNanos(FORGET_AFTER_MS));
    if (suspects.put(bookie, now) == null) {
      LOG.warn(
          "bookie at {} stands still or cannot be reached: what is for it fails at once until it"
              + " answers",
          bookie);
    }
  }

  /**
   * Counts looks at a connection from which nothing left. Looks, not time: a machine that stood
   * still as a whole must not blame its peers.
   */
  static final class Silence {
    private Object first;
    private long firstSentBytes;
    private long bytes;
    private int looks;

    /**
     * {@code first} is what leaves next, null if nothing is to leave; returns how many looks ago
     * something left.
     */
    int look(Object first, long firstSentBytes, long bytes) {
      boolean isSilent =
          first != null
              && first == this.first
              && firstSentBytes == this.firstSentBytes
              && bytes >= this.bytes;
      looks = isSilent ? looks + 1 : 0;
      this.first = first;
      this.firstSentBytes = firstSentBytes;
      this.bytes = bytes;
      return looks;
    }
  }

  private final class Watch extends ChannelDuplexHandler {
    private final Silence silence = new Silence();
    private SocketAddress bookie;
    private Future<?> looking;
    private boolean answered;

    @Override
    public void connect(
        ChannelHandlerContext context,
        SocketAddress remote,
        SocketAddress local,
        ChannelPromise promise) {
      bookie = remote;
      long now = System.nanoTime();
      Long tried = suspects.get(bookie);
      if (tried != null) {
        if (now - tried < TimeUnit.MILLISECONDS.toNanos(tryEveryMs)) {
          promise.setFailure(
              new ConnectException(
                  "bookie at " + bookie + " stood still, and is tried again soon"));
          return;
        }
        suspects.put(bookie, now);
        context.channel().config().setConnectTimeoutMillis(CONNECT_OF_A_SUSPECT_MAX_MS);
      }
      promise.addListener(
          connected -> {
            if (connected.cause() instanceof ConnectTimeoutException) {
              suspect(bookie);
            }
          });
      context.connect(remote, local, promise);
    }

    @Override
    public void channelActive(ChannelHandlerContext context) {
      looking =
          context
              .executor()
              .scheduleWithFixedDelay(() -> look(context), LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
      context.fireChannelActive();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
      if (looking != null) {
        looking.cancel(false);
      }
      context.fireChannelInactive();
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
      if (!answered) {
        answered = true;
        if (suspects.remove(bookie) != null) {
          LOG.warn("bookie at {} answers again", bookie);
        }
      }
      context.fireChannelRead(message);
    }

    private void look(ChannelHandlerContext context) {
      ChannelOutboundBuffer out = context.channel().unsafe().outboundBuffer();
      if (out == null) {
        return;
      }
      int silent = silence.look(out.current(), out.currentProgress(), out.totalPendingWriteBytes());
      if (silent >= (suspects.containsKey(bookie) ? LOOKS_OF_A_SUSPECT : looksMax)) {
        suspect(bookie);
        // What the kernel holds for it goes, too.
        context.channel().config().setOption(ChannelOption.SO_LINGER, 0);
        context.close();
      }
    }
  }
}
