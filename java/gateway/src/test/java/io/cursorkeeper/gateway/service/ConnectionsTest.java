package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.embedded.EmbeddedChannel;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import org.junit.jupiter.api.Test;

class ConnectionsTest {
  private final Connections connections = new Connections(2);

  private static EmbeddedChannel from(int port) {
    return new EmbeddedChannel() {
      @Override
      protected SocketAddress remoteAddress0() {
        return new InetSocketAddress("127.0.0.1", port);
      }
    };
  }

  @Test
  void theOldestWithoutACallMakesRoom() {
    EmbeddedChannel first = from(1);
    EmbeddedChannel second = from(2);
    EmbeddedChannel third = from(3);
    assertTrue(connections.add(first) && connections.add(second));
    connections.callBegins(first.remoteAddress());
    assertTrue(connections.add(third));
    assertTrue(first.isOpen() && third.isOpen());
    assertFalse(second.isOpen());
    assertEquals(2, connections.count());
  }

  @Test
  void whereAllHaveCallsTheNewestDoesNotStay() {
    EmbeddedChannel first = from(1);
    EmbeddedChannel second = from(2);
    assertTrue(connections.add(first) && connections.add(second));
    connections.callBegins(first.remoteAddress());
    connections.callBegins(first.remoteAddress());
    connections.callBegins(second.remoteAddress());
    assertFalse(connections.add(from(3)));
    connections.callEnds(first.remoteAddress());
    assertFalse(connections.add(from(4)));
    connections.callEnds(first.remoteAddress());
    assertTrue(connections.add(from(5)));
    assertFalse(first.isOpen());
  }

  @Test
  void whatClosesByItselfIsCountedNoMore() {
    EmbeddedChannel first = from(1);
    assertTrue(connections.add(first));
    connections.callBegins(first.remoteAddress());
    first.close();
    assertEquals(0, connections.count());
  }
}
