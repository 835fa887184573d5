package io.cursorkeeper.gateway.service;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.ssl.SslContext;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Serves HTTP, or HTTPS where the gateway has a certificate, to machines: /metrics for Prometheus,
 * and /health, which says what the gRPC health says, in a status that every load balancer and
 * container runtime can read: 200 SERVING, or 503 NOT_SERVING and why.
 *
 * <p>It is what probes ask, so nobody may keep it from answering: it has a thread of its own that
 * never waits for a peer, one request for each connection, some seconds for all of it, and where
 * too many connections are open, the oldest goes.
 */
final class MetricsServer {
  private static final int CONNECTIONS_MAX = 64;
  private static final int REQUEST_BYTES_MAX = 8 << 10;
  private static final long CONNECTION_MAX_MS = 10_000;

  private final EventLoopGroup thread =
      new MultiThreadIoEventLoopGroup(
          1, (java.util.concurrent.ThreadFactory) MetricsServer::thread, NioIoHandler.newFactory());

  /** In the order of coming; touched on the one thread only. */
  private final Deque<Channel> connections = new ArrayDeque<>();

  /** Null: plain HTTP. */
  private final SslContext tls;

  private final Supplier<String> metrics;
  private final Supplier<String> whyNotServing;
  private Channel listening;

  private MetricsServer(SslContext tls, Supplier<String> metrics, Supplier<String> whyNotServing) {
    this.tls = tls;
    this.metrics = metrics;
    this.whyNotServing = whyNotServing;
  }

  /** {@code whyNotServing} is empty while the gateway serves, else one line for people. */
  static MetricsServer start(
      String host,
      int port,
      SslContext tls,
      Supplier<String> metrics,
      Supplier<String> whyNotServing)
      throws IOException {
    MetricsServer server = new MetricsServer(tls, metrics, whyNotServing);
    var bound =
        new ServerBootstrap()
            .group(server.thread)
            .channel(NioServerSocketChannel.class)
            .childHandler(
                new ChannelInitializer<>() {
                  @Override
                  protected void initChannel(Channel connection) {
                    server.accepted(connection);
                  }
                })
            .bind(new InetSocketAddress(host, port))
            .awaitUninterruptibly();
    if (!bound.isSuccess()) {
      server.stop();
      throw new IOException("cannot serve metrics on " + host + ":" + port, bound.cause());
    }
    server.listening = bound.channel();
    return server;
  }

  int port() {
    return ((InetSocketAddress) listening.localAddress()).getPort();
  }

  void stop() {
    thread.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS);
  }

  private void accepted(Channel connection) {
    connections.add(connection);
    if (connections.size() > CONNECTIONS_MAX) {
      connections.poll().close();
    }
    connection.closeFuture().addListener(closed -> connections.remove(connection));
    connection
        .eventLoop()
        .schedule(() -> connection.close(), CONNECTION_MAX_MS, TimeUnit.MILLISECONDS);
    if (tls != null) {
      connection.pipeline().addLast(tls.newHandler(connection.alloc()));
    }
    connection
        .pipeline()
        .addLast(
            new HttpServerCodec(),
            new HttpObjectAggregator(REQUEST_BYTES_MAX),
            new SimpleChannelInboundHandler<FullHttpRequest>() {
              @Override
              protected void channelRead0(ChannelHandlerContext peer, FullHttpRequest request) {
                // What is not HTTP, as a TLS greeting, comes out of the codec as a request that
                // could not be read.
                peer.writeAndFlush(answer(request)).addListener(ChannelFutureListener.CLOSE);
              }

              @Override
              public void exceptionCaught(ChannelHandlerContext peer, Throwable broken) {
                peer.close();
              }
            });
  }

  private DefaultFullHttpResponse answer(FullHttpRequest request) {
    if (request.decoderResult().isFailure()) {
      return page(HttpResponseStatus.BAD_REQUEST, "this is plain HTTP\n");
    }
    if (!request.method().equals(HttpMethod.GET)) {
      return page(HttpResponseStatus.METHOD_NOT_ALLOWED, "GET only\n");
    }
    String path = request.uri().split("\\?", 2)[0];
    if (path.equals("/metrics")) {
      return page(HttpResponseStatus.OK, metrics.get());
    }
    if (!path.equals("/health")) {
      return page(HttpResponseStatus.NOT_FOUND, "/metrics or /health\n");
    }
    String reason = whyNotServing.get();
    return reason.isEmpty()
        ? page(HttpResponseStatus.OK, "SERVING\n")
        : page(HttpResponseStatus.SERVICE_UNAVAILABLE, "NOT_SERVING: " + reason + "\n");
  }

  private static DefaultFullHttpResponse page(HttpResponseStatus status, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    var answer =
        new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, Unpooled.wrappedBuffer(bytes));
    answer
        .headers()
        .set(HttpHeaderNames.CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")
        .set(HttpHeaderNames.CONTENT_LENGTH, bytes.length)
        .set(HttpHeaderNames.CONNECTION, "close");
    return answer;
  }

  private static Thread thread(Runnable work) {
    Thread thread = new Thread(work, "gateway-metrics");
    thread.setDaemon(true);
    return thread;
  }
}
