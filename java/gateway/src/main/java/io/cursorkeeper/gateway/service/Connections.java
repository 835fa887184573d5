package io.cursorkeeper.gateway.service;

import io.netty.channel.Channel;
import java.net.SocketAddress;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The connections of clients. Each may send a window's worth of bytes before anybody asks who it
 * is, so there are only so many: where one more comes, the oldest goes that has no call of somebody
 * who proved who it is.
 */
final class Connections {
  private final int connectionsMax;

  /** In the order of coming. */
  private final ConcurrentLinkedQueue<Channel> open = new ConcurrentLinkedQueue<>();

  private final AtomicInteger count = new AtomicInteger();
  private final Map<SocketAddress, Integer> calls = new ConcurrentHashMap<>();

  Connections(int connectionsMax) {
    this.connectionsMax = connectionsMax;
  }

  int count() {
    return count.get();
  }

  /** Whether it may stay. On the one thread that accepts. */
  boolean add(Channel connection) {
    if (count.get() >= connectionsMax && !closeOne()) {
      return false;
    }
    count.incrementAndGet();
    open.add(connection);
    SocketAddress peer = connection.remoteAddress();
    connection
        .closeFuture()
        .addListener(
            closed -> {
              if (open.remove(connection)) {
                count.decrementAndGet();
              }
              calls.remove(peer);
            });
    return true;
  }

  void callBegins(SocketAddress peer) {
    calls.merge(peer, 1, Integer::sum);
  }

  void callEnds(SocketAddress peer) {
    calls.computeIfPresent(peer, (same, number) -> number == 1 ? null : number - 1);
  }

  private boolean closeOne() {
    for (Channel connection : open) {
      SocketAddress peer = connection.remoteAddress();
      if ((peer == null || !calls.containsKey(peer)) && open.remove(connection)) {
        count.decrementAndGet();
        connection.close();
        return true;
      }
    }
    return false;
  }
}
