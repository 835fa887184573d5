package io.cursorkeeper.gateway.service;

import io.netty.channel.Channel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import java.util.List;

/** Takes only so many connections, and their frames one by one. */
final class BoundedServerChannel extends NioServerSocketChannel {
  private final Connections connections;
  private final boolean isEncrypted;

  BoundedServerChannel(Connections connections, boolean isEncrypted) {
    this.connections = connections;
    this.isEncrypted = isEncrypted;
  }

  @Override
  protected int doReadMessages(List<Object> accepted) throws Exception {
    int before = accepted.size();
    super.doReadMessages(accepted);
    for (int at = accepted.size() - 1; at >= before; at--) {
      Channel connection = (Channel) accepted.get(at);
      if (connections.add(connection)) {
        connection.pipeline().addFirst(isEncrypted ? new FramesBehindTls() : new Frames());
      } else {
        accepted.remove(at);
        connection.unsafe().closeForcibly();
      }
    }
    return accepted.size() - before;
  }
}
