package io.cursorkeeper.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A socket of the file system before a keeper at a port: what one end says, the other one hears.
 */
final class SocketRelay implements AutoCloseable {

  private final ServerSocketChannel server;
  private final UnixAddress address;
  private final int port;
  private final Set<SocketChannel> channels = ConcurrentHashMap.newKeySet();

  SocketRelay(Path path, String to) {
    address = new UnixAddress(path.toString());
    port = Integer.parseInt(to.substring(to.lastIndexOf(':') + 1));
    try {
      server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
      server.bind(UnixDomainSocketAddress.of(path));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    start(this::accept);
  }

  String address() {
    return address.toString();
  }

  @Override
  public void close() {
    end(server);
    channels.forEach(SocketRelay::end);
  }

  private static void start(Runnable work) {
    Thread thread = new Thread(work, "socket-relay");
    thread.setDaemon(true);
    thread.start();
  }

  private static void end(AutoCloseable channel) {
    try {
      channel.close();
    } catch (Exception gone) {
      // it is closed
    }
  }

  private void accept() {
    while (server.isOpen()) {
      try {
        SocketChannel here = server.accept();
        channels.add(here);
        try {
          SocketChannel there = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
          channels.add(there);
          start(() -> copy(here, there));
          start(() -> copy(there, here));
        } catch (IOException away) {
          end(here);
        }
      } catch (IOException closed) {
        // the next one may come
      }
    }
  }

  private void copy(SocketChannel from, SocketChannel to) {
    ByteBuffer bytes = ByteBuffer.allocate(1 << 16);
    try {
      while (from.read(bytes) >= 0) {
        bytes.flip();
        while (bytes.hasRemaining()) {
          to.write(bytes);
        }
        bytes.clear();
      }
    } catch (IOException ended) {
      // so ends the other way
    } finally {
      end(from);
      end(to);
      channels.remove(from);
      channels.remove(to);
    }
  }
}
