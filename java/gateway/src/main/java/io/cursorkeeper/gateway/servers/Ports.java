package io.cursorkeeper.gateway.servers;

import java.io.IOException;
import java.io.Reader;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;

/**
 * The ports of the servers in one data folder: chosen free the first time, then remembered, because
 * a bookie's identity (its cookie) contains the port, and because whoever was connected to the
 * gateway looks for it there.
 */
final class Ports {
  // Below the range the kernel hands out to outgoing connections, else a remembered port may be
  // taken at a restart.
  private static final int FROM = 12_000;
  private static final int TO = 32_000;
  private static final int TRIES_MAX = 200;

  private final Path file;
  private final Properties ports = new Properties();

  Ports(Path folder) throws IOException {
    file = folder.resolve("ports.properties");
    if (Files.exists(file)) {
      try (Reader reader = Files.newBufferedReader(file)) {
        ports.load(reader);
      }
    }
  }

  /**
   * The port of a server; {@code wanted} other than 0 decides the first time and must agree later.
   */
  int of(String server, int wanted) throws IOException {
    String known = ports.getProperty(server);
    if (known != null) {
      int port = Integer.parseInt(known);
      if (wanted != 0 && wanted != port) {
        throw new IllegalArgumentException(
            file
                + " says port "
                + port
                + " for "
                + server
                + ", not "
                + wanted
                + "; use another folder to change it");
      }
      return port;
    }
    return remember(server, wanted != 0 ? wanted : free());
  }

  /**
   * The same of a server whose port is no identity: {@code wanted} other than 0 decides each time.
   */
  int latest(String server, int wanted) throws IOException {
    String known = ports.getProperty(server);
    if (known != null && (wanted == 0 || wanted == Integer.parseInt(known))) {
      return Integer.parseInt(known);
    }
    return remember(server, wanted != 0 ? wanted : free());
  }

  private int remember(String server, int port) throws IOException {
    ports.setProperty(server, Integer.toString(port));
    try (Writer writer = Files.newBufferedWriter(file)) {
      ports.store(writer, null);
    }
    return port;
  }

  private int free() throws IOException {
    for (int tried = 0; tried < TRIES_MAX; tried++) {
      int port = ThreadLocalRandom.current().nextInt(FROM, TO);
      if (ports.containsValue(Integer.toString(port))) {
        continue;
      }
      try (ServerSocket probe = new ServerSocket()) {
        probe.bind(new InetSocketAddress("127.0.0.1", port));
        return port;
      } catch (IOException taken) {
        // The next one.
      }
    }
    throw new IOException("no free port between " + FROM + " and " + TO);
  }
}
