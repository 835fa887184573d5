package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * Connections to a listener that the kernel connects for, and that takes nothing, as a process does
 * that was stopped.
 */
class BookieConnectionsTest {
  private static final int BYTES = 1 << 20;
  private static final int BUFFERS = 64;
  private static final long WAIT_MAX_S = 60;

  private ServerSocket bookie;
  private BookieConnections connections;

  @BeforeEach
  void listen() throws IOException {
    bookie = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  }

  @AfterEach
  void end() throws IOException {
    connections.shutdownGracefully(0, 0, TimeUnit.SECONDS);
    bookie.close();
  }

  private void tryEvery(long millis) {
    connections = new BookieConnections(Thread::new, 500, millis);
  }

  private ChannelFuture connect() throws InterruptedException {
    ChannelFuture connecting =
        new Bootstrap()
            .group(connections)
            .channel(NioSocketChannel.class)
            .handler(new ChannelInboundHandlerAdapter())
            .connect(bookie.getLocalSocketAddress());
    assertTrue(connecting.await(WAIT_MAX_S, TimeUnit.SECONDS));
    return connecting;
  }

  /** More than the kernel takes for somebody who does not read. */
  private static List<ByteBuf> fill(Channel connection) {
    List<ByteBuf> sent = new ArrayList<>();
    for (int at = 0; at < BUFFERS; at++) {
      ByteBuf bytes = Unpooled.directBuffer(BYTES).writeZero(BYTES);
      sent.add(bytes);
      connection.writeAndFlush(bytes);
    }
    return sent;
  }

  private void standsStill() throws InterruptedException {
    Channel connection = connect().channel();
    List<ByteBuf> sent = fill(connection);
    assertTrue(connection.closeFuture().await(WAIT_MAX_S, TimeUnit.SECONDS));
    connection.eventLoop().submit(() -> {}).await(WAIT_MAX_S, TimeUnit.SECONDS);
    assertTrue(sent.stream().allMatch(bytes -> bytes.refCnt() == 0), "its bytes are free");
    assertEquals(1, connections.suspects());
  }

  @Test
  void aConnectionThatTakesNothingEndsAndTheBookieIsLeftAloneForAWhile() throws Exception {
    tryEvery(TimeUnit.HOURS.toMillis(1));
    standsStill();
    assertInstanceOf(ConnectException.class, connect().cause());
  }

  @Test
  void aSuspectIsTriedAgainAndOneThatAnswersIsNone() throws Exception {
    tryEvery(0);
    standsStill();
    standsStill();
    bookie.accept().close();
    bookie.accept().close();
    Channel connection = connect().channel();
    try (Socket accepted = bookie.accept()) {
      accepted.getOutputStream().write(1);
      long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_MAX_S);
      while (connections.suspects() > 0 && System.nanoTime() < until) {
        Thread.onSpinWait();
      }
      assertEquals(0, connections.suspects());
      assertTrue(connection.isActive());
    }
  }
}
