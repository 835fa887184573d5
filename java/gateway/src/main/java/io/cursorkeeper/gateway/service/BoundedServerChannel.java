package io.cursorkeeper.gateway.service;

import io.netty.channel.Channel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** Takes only so many connections: each may send a window's worth of bytes before anybody asks who it is. */
final class BoundedServerChannel extends NioServerSocketChannel {
  private final int connectionsMax;
  private final AtomicInteger connections;

  BoundedServerChannel(int connectionsMax, AtomicInteger connections) {
    this.connectionsMax = connectionsMax;
    this.connections = connections;
  }

  @Override
  protected int doReadMessages(List<Object> accepted) throws Exception {
    int before = accepted.size();
    super.doReadMessages(accepted);
    for (int at = accepted.size() - 1; at >= before; at--) {
      Channel connection = (Channel) accepted.get(at);
      if (connections.incrementAndGet() > connectionsMax) {
        connections.decrementAndGet();
        accepted.remove(at);
        connection.unsafe().closeForcibly();
      } else {
        connection.closeFuture().addListener(closed -> connections.decrementAndGet());
      }
    }
    return accepted.size() - before;
  }
}
