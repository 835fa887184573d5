package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Flag;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.zookeeper.server.embedded.ExitHandler;
import org.apache.zookeeper.server.embedded.ZooKeeperServerEmbedded;

/** One real ZooKeeper server on 127.0.0.1, for development and tests: no ensemble, no admin server. */
public final class ZooKeeperNode {
  /** Flags of the command. */
  public static final List<Flag> FLAGS = List.of(
      Flag.required("data-dir", "folder of the server"),
      Flag.required("port", "client port"),
      Flag.number("tick-ms", 500, "sessions live between 2 and 120 ticks"));

  private static final long START_MAX_MS = 30_000;
  private static final int SESSION_TICKS_MAX = 120;

  private final ZooKeeperServerEmbedded server;
  private final int port;

  private ZooKeeperNode(ZooKeeperServerEmbedded server, int port) {
    this.server = server;
    this.port = port;
  }

  /** Starts and returns once the port answers. */
  public static ZooKeeperNode start(Path folder, int port, int tickMs) throws Exception {
    Files.createDirectories(folder);
    requireFree(port);
    Properties config = new Properties();
    config.setProperty("tickTime", Integer.toString(tickMs));
    config.setProperty("maxSessionTimeout", Integer.toString(tickMs * SESSION_TICKS_MAX));
    config.setProperty("dataDir", folder.resolve("data").toString());
    config.setProperty("clientPort", Integer.toString(port));
    config.setProperty("clientPortAddress", "127.0.0.1");
    config.setProperty("admin.enableServer", "false");
    config.setProperty("maxClientCnxns", "0");
    ZooKeeperServerEmbedded server = ZooKeeperServerEmbedded.builder()
        .baseDir(folder).configuration(config).exitHandler(ExitHandler.LOG_ONLY).build();
    server.start(START_MAX_MS);
    return new ZooKeeperNode(server, port);
  }

  public String address() {
    return "127.0.0.1:" + port;
  }

  public void stop() {
    server.close();
  }

  // The embedded server answers a taken port with a timeout; this says it at once.
  private static void requireFree(int port) throws Exception {
    try (ServerSocket probe = new ServerSocket()) {
      probe.setReuseAddress(true);
      probe.bind(new InetSocketAddress("127.0.0.1", port));
    } catch (java.io.IOException taken) {
      throw new IllegalStateException("port " + port + " for ZooKeeper is taken", taken);
    }
  }
}
