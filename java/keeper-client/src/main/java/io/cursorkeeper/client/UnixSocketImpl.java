package io.cursorkeeper.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.SocketImpl;
import java.net.SocketOptions;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * What is below a {@link java.net.Socket} of {@link UnixSockets}: a channel to a socket of the file
 * system.
 *
 * <p>Invariants: reading and writing do not wait for each other, so the streams of
 * java.nio.channels.Channels, which share a lock, are none for it; to close wakes who connects,
 * reads or writes; a connect ends at its limit, because one that waits holds a thread.
 */
final class UnixSocketImpl extends SocketImpl {

  /** Each thread keeps a buffer of the largest size that it used, outside of the heap. */
  private static final int CHUNK_BYTES_MAX = 64 << 10;

  private final UnixAddress where;
  private final SocketChannel channel;

  UnixSocketImpl(UnixAddress address) throws IOException {
    where = address;
    channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    // who asks where it is connected to is told of this machine
    super.address = InetAddress.getLoopbackAddress();
  }

  @Override
  protected void create(boolean stream) {
    // the channel is there
  }

  @Override
  protected void connect(String host, int port) throws IOException {
    connect(0);
  }

  @Override
  protected void connect(InetAddress host, int port) throws IOException {
    connect(0);
  }

  @Override
  protected void connect(SocketAddress anything, int timeoutMs) throws IOException {
    connect(timeoutMs);
  }

  /** 0: without a limit. */
  private void connect(int timeoutMs) throws IOException {
    CompletableFuture<Void> ended = new CompletableFuture<>();
    if (timeoutMs > 0) {
      // a channel that does not block would say that it is connected when the kernel had no room
      ended
          .orTimeout(timeoutMs, TimeUnit.MILLISECONDS)
          .whenComplete((inTime, late) -> closeIf(late != null));
    }
    try {
      channel.connect(UnixDomainSocketAddress.of(where.path()));
    } catch (IOException failed) {
      throw ended.complete(null) ? explained(failed) : late(timeoutMs);
    }
    if (!ended.complete(null)) {
      throw late(timeoutMs);
    }
  }

  private SocketTimeoutException late(int timeoutMs) {
    return new SocketTimeoutException(
        where
            + ": not connected within "
            + timeoutMs
            + " ms: too many wait for the daemon, which stands still; its log says more");
  }

  private void closeIf(boolean isLate) {
    if (isLate) {
      try {
        channel.close();
      } catch (IOException closedAsFarAsPossible) {
        // nobody can do more about it
      }
    }
  }

  /** The kernel's word does not say which of the two sides has to do what. */
  private IOException explained(IOException failed) {
    Path path = Path.of(where.path());
    String said = Objects.toString(failed.getMessage(), failed.toString());
    String why;
    if (failed instanceof ClosedChannelException) {
      why = "closed here";
    } else if (said.contains("Permission denied")) {
      why =
          said
              + ": the user of this process must be able to enter its folders and to write to it;"
              + " give it the daemon's group (its mode is 0660), or run both as one user";
    } else if (Files.notExists(path)) {
      why =
          "no socket is there: start the daemon, whose setting listen must name this path, in a"
              + " folder that both see";
    } else if (!isSocket(path)) {
      why = "it is no socket: name the path of the daemon's setting listen";
    } else {
      why = said + ": the daemon that listened there has ended; start it";
    }
    SocketException explained = new SocketException(where + ": " + why);
    explained.initCause(failed);
    return explained;
  }

  private static boolean isSocket(Path path) {
    try {
      return Files.readAttributes(path, BasicFileAttributes.class).isOther();
    } catch (IOException unknown) {
      return true;
    }
  }

  @Override
  protected InputStream getInputStream() {
    return new InputStream() {
      private final byte[] one = new byte[1];

      @Override
      public synchronized int read() throws IOException {
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
      }

      @Override
      public int read(byte[] into, int from, int length) throws IOException {
        Objects.checkFromIndexSize(from, length, into.length);
        if (length == 0) {
          return 0;
        }
        try {
          return channel.read(ByteBuffer.wrap(into, from, Math.min(length, CHUNK_BYTES_MAX)));
        } catch (ClosedChannelException closed) {
          throw closedHere(closed);
        }
      }

      @Override
      public void close() throws IOException {
        UnixSocketImpl.this.close();
      }
    };
  }

  @Override
  protected OutputStream getOutputStream() {
    return new OutputStream() {
      @Override
      public void write(int one) throws IOException {
        write(new byte[] {(byte) one}, 0, 1);
      }

      @Override
      public void write(byte[] bytes, int from, int length) throws IOException {
        Objects.checkFromIndexSize(from, length, bytes.length);
        int end = from + length;
        try {
          for (int at = from; at < end; ) {
            at += channel.write(ByteBuffer.wrap(bytes, at, Math.min(end - at, CHUNK_BYTES_MAX)));
          }
        } catch (ClosedChannelException closed) {
          throw closedHere(closed);
        }
      }

      @Override
      public void close() throws IOException {
        UnixSocketImpl.this.close();
      }
    };
  }

  /** In the words of java.net, by which a transport knows that it is no fault. */
  private static SocketException closedHere(ClosedChannelException closed) {
    SocketException said = new SocketException("Socket closed");
    said.initCause(closed);
    return said;
  }

  @Override
  protected int available() {
    return 0; // the kernel is not asked: whoever wants to know reads
  }

  @Override
  protected void shutdownInput() throws IOException {
    channel.shutdownInput();
  }

  @Override
  protected void shutdownOutput() throws IOException {
    channel.shutdownOutput();
  }

  @Override
  protected void close() throws IOException {
    channel.close();
  }

  // ---- options, nearly all of which are TCP's

  /**
   * What TCP alone has is taken and changes nothing, as without a network there is no use for it.
   */
  @Override
  public void setOption(int option, Object value) throws SocketException {
    if (option == SocketOptions.SO_TIMEOUT && !Integer.valueOf(0).equals(value)) {
      throw new SocketException(
          where + ": a read timeout of " + value + " ms: there is none here; close ends a read");
    }
  }

  @Override
  public Object getOption(int option) {
    return switch (option) {
      case SocketOptions.SO_BINDADDR -> InetAddress.getLoopbackAddress();
      case SocketOptions.SO_LINGER -> -1;
      case SocketOptions.SO_TIMEOUT, SocketOptions.IP_TOS -> 0;
      case SocketOptions.SO_SNDBUF, SocketOptions.SO_RCVBUF -> CHUNK_BYTES_MAX;
      default -> false;
    };
  }

  // ---- what a socket that dials has no use for

  @Override
  protected void bind(InetAddress host, int port) throws IOException {
    throw unsupported();
  }

  @Override
  protected void listen(int backlog) throws IOException {
    throw unsupported();
  }

  @Override
  protected void accept(SocketImpl into) throws IOException {
    throw unsupported();
  }

  @Override
  protected void sendUrgentData(int data) throws IOException {
    throw unsupported();
  }

  private SocketException unsupported() {
    return new SocketException(where + ": a source's socket only dials");
  }

  @Override
  public String toString() {
    return where.toString();
  }
}
