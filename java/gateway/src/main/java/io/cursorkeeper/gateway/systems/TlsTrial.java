package io.cursorkeeper.gateway.systems;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.ssl.NotSslRecordException;
import io.netty.handler.ssl.SslHandler;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * One connection that is made only to learn why others fail. The clients of ZooKeeper and
 * BookKeeper say that there is no connection, and keep the cause to their logs; an operator needs
 * it.
 */
final class TlsTrial {
  /** What came of it. */
  enum End {
    /** TLS was agreed upon, and the other side went on talking or was silent. */
    FINE,
    NOBODY_LISTENS,
    /** The other side answers, and not in TLS. */
    NO_TLS,
    /** Its certificate is of no authority that is believed here, or has expired. */
    NOT_BELIEVED,
    /** Its certificate is for other names. */
    OTHER_NAME,
    /** It refuses the certificate that it is shown, or wants one. */
    REFUSES_US,
    /** The connection ends, without a word. */
    CLOSED,
    SILENT
  }

  /**
   * @param detail of the failure, empty if there is none
   */
  record Outcome(End end, String detail) {}

  /** Makes the handler that TLS is spoken with. */
  @FunctionalInterface
  interface Handler {
    SslHandler on(Channel channel) throws Exception;
  }

  private static final long AFTERWARDS_MS = 1_500;

  private final byte[] before;
  private final byte[] after;
  private final Handler handler;

  /**
   * @param before said in plain text, and answered, before TLS begins; empty: nothing
   * @param after said in TLS, so that who refuses our certificate has said so when it is answered
   */
  TlsTrial(byte[] before, Handler handler, byte[] after) {
    this.before = before.clone();
    this.after = after.clone();
    this.handler = handler;
  }

  /** Never throws, and ends within the time and a moment. */
  Outcome run(InetSocketAddress address, long maxMs) {
    EventLoopGroup loop =
        new MultiThreadIoEventLoopGroup(
            1, new DefaultThreadFactory("trial", true), NioIoHandler.newFactory());
    CompletableFuture<Outcome> outcome = new CompletableFuture<>();
    try {
      new Bootstrap()
          .group(loop)
          .channel(NioSocketChannel.class)
          .handler(new Conversation(outcome))
          .connect(address)
          .addListener(
              connected -> {
                if (!connected.isSuccess()) {
                  outcome.complete(of(connected.cause()));
                }
              });
      return outcome.get(maxMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException silent) {
      return new Outcome(End.SILENT, "");
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
      return new Outcome(End.SILENT, "");
    } catch (Exception unexpected) {
      return of(unexpected);
    } finally {
      loop.shutdownGracefully(0, 100, TimeUnit.MILLISECONDS);
    }
  }

  /** What a failure means. */
  static Outcome of(Throwable failure) {
    Throwable first = Failures.innermost(failure);
    String text = Failures.text(first);
    String low = (Failures.text(failure) + " " + text).toLowerCase(Locale.ROOT);
    if (failure instanceof ConnectException || first instanceof ConnectException) {
      return new Outcome(End.NOBODY_LISTENS, text);
    }
    if (failure instanceof NotSslRecordException
        || first instanceof NotSslRecordException
        || low.contains("unrecognized ssl message")) {
      return new Outcome(End.NO_TLS, "");
    }
    if (low.contains("subject alternative")
        || low.contains("no name matching")
        || low.contains("doesn't match")
        || low.contains("hostname")) {
      return new Outcome(End.OTHER_NAME, text);
    }
    if (low.contains("fatal alert")) {
      return new Outcome(End.REFUSES_US, text);
    }
    if (low.contains("pkix") || low.contains("certif") || low.contains("notafter")) {
      return new Outcome(End.NOT_BELIEVED, text);
    }
    return new Outcome(End.CLOSED, text);
  }

  private final class Conversation extends ChannelInboundHandlerAdapter {
    private final CompletableFuture<Outcome> outcome;
    private boolean encrypted;

    Conversation(CompletableFuture<Outcome> outcome) {
      this.outcome = outcome;
    }

    @Override
    public void channelActive(ChannelHandlerContext context) throws Exception {
      if (before.length > 0) {
        context.writeAndFlush(Unpooled.wrappedBuffer(before));
      } else {
        encrypt(context);
      }
    }

    private void encrypt(ChannelHandlerContext context) throws Exception {
      encrypted = true;
      SslHandler tls = handler.on(context.channel());
      context.pipeline().addFirst(tls);
      tls.handshakeFuture()
          .addListener(
              done -> {
                if (!done.isSuccess()) {
                  outcome.complete(of(done.cause()));
                  return;
                }
                context.writeAndFlush(Unpooled.wrappedBuffer(after));
                context
                    .executor()
                    .schedule(
                        () -> outcome.complete(new Outcome(End.FINE, "")),
                        AFTERWARDS_MS,
                        TimeUnit.MILLISECONDS);
              });
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) throws Exception {
      try {
        if (encrypted) {
          outcome.complete(new Outcome(End.FINE, ""));
        } else if (agrees((ByteBuf) message)) {
          encrypt(context);
        } else {
          outcome.complete(new Outcome(End.NO_TLS, ""));
        }
      } finally {
        ReferenceCountUtil.release(message);
      }
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
      outcome.complete(new Outcome(End.CLOSED, ""));
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable failure) {
      outcome.complete(of(failure));
      context.close();
    }
  }

  /** Whether a bookie's answer to the wish for TLS says yes: its field of the status, 2, is 0. */
  private static boolean agrees(ByteBuf answer) {
    if (answer.readableBytes() < Integer.BYTES) {
      return false;
    }
    answer.skipBytes(Integer.BYTES);
    while (answer.readableBytes() > 1) {
      int tag = answer.readUnsignedByte();
      int value = answer.readUnsignedByte();
      if ((tag & 7) == 2) {
        answer.skipBytes(Math.min(value, answer.readableBytes()));
      } else {
        return tag == 2 << 3 && value == 0;
      }
    }
    return false;
  }
}
