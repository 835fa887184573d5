package org.apache.bookkeeper.mledger.impl;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The way to a daemon, which can be shut: then connections end, and new ones come to nothing. Muted
 * it takes what is told, and no answer comes.
 */
final class Gate implements Closeable {

  private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
  private final String host;
  private final int port;
  private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
  private volatile boolean isShut;
  private volatile boolean isMute;

  Gate(String address) throws IOException {
    host = address.substring(0, address.lastIndexOf(':'));
    port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    start(this::accept);
  }

  String address() {
    return "127.0.0.1:" + server.getLocalPort();
  }

  void shut() {
    isShut = true;
    sockets.forEach(Gate::end);
  }

  /** Connections that are muted end when it is shut. */
  void mute() {
    isMute = true;
  }

  void open() {
    isMute = false;
    isShut = false;
  }

  @Override
  public void close() throws IOException {
    shut();
    server.close();
  }

  private static void start(Runnable work) {
    Thread thread = new Thread(work, "gate");
    thread.setDaemon(true);
    thread.start();
  }

  private static void end(Socket socket) {
    try {
      socket.close();
    } catch (IOException gone) {
      // it is closed
    }
  }

  private void accept() {
    while (!server.isClosed()) {
      try {
        Socket here = server.accept();
        sockets.add(here);
        if (isShut) {
          end(here);
          continue;
        }
        Socket there = new Socket(host, port);
        sockets.add(there);
        start(() -> copy(here, there, false));
        start(() -> copy(there, here, true));
      } catch (IOException closed) {
        // the next one may come
      }
    }
  }

  private void copy(Socket from, Socket to, boolean isAnswer) {
    try (InputStream in = from.getInputStream();
        OutputStream out = to.getOutputStream()) {
      byte[] bytes = new byte[1 << 16];
      for (int read = in.read(bytes); read >= 0 && !isShut; read = in.read(bytes)) {
        if (!isAnswer || !isMute) {
          out.write(bytes, 0, read);
          out.flush();
        }
      }
    } catch (IOException ended) {
      // so ends the other way
    } finally {
      end(from);
      end(to);
      sockets.remove(from);
      sockets.remove(to);
    }
  }
}
