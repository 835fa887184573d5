package io.cursorkeeper.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketImpl;
import java.time.Duration;
import javax.net.SocketFactory;

/**
 * Serves a link whose daemon listens at a socket of the file system: a factory for a transport that
 * knows hosts and ports only. Whatever host is asked for, its sockets are connected to the one
 * path.
 */
final class UnixSockets extends SocketFactory {

  /** A daemon takes connections at once, unless it stands still and many wait already. */
  private static final Duration CONNECT_MAX = Duration.ofSeconds(5);

  private final UnixAddress address;
  private final Duration connectMax;

  UnixSockets(UnixAddress address) {
    this(address, CONNECT_MAX);
  }

  UnixSockets(UnixAddress address, Duration connectMax) {
    this.address = address;
    this.connectMax = connectMax;
  }

  /** Not connected yet; {@code connect} takes any address. */
  @Override
  public Socket createSocket() throws IOException {
    return new UnixSocket(new UnixSocketImpl(address));
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    return connected();
  }

  @Override
  public Socket createSocket(String host, int port, InetAddress localHost, int localPort)
      throws IOException {
    return connected();
  }

  @Override
  public Socket createSocket(InetAddress host, int port) throws IOException {
    return connected();
  }

  @Override
  public Socket createSocket(InetAddress host, int port, InetAddress localHost, int localPort)
      throws IOException {
    return connected();
  }

  private Socket connected() throws IOException {
    Socket made = createSocket();
    try {
      // any address: the socket knows its path
      made.connect(
          new InetSocketAddress(InetAddress.getLoopbackAddress(), 1),
          Math.toIntExact(connectMax.toMillis()));
      return made;
    } catch (IOException | RuntimeException failed) {
      made.close();
      throw failed;
    }
  }

  /** The constructor that takes an implementation is for subclasses. */
  private static final class UnixSocket extends Socket {
    UnixSocket(SocketImpl impl) throws IOException {
      super(impl);
    }
  }
}
