package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.systems.SettingsFile;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.zookeeper.server.embedded.ExitHandler;
import org.apache.zookeeper.server.embedded.ZooKeeperServerEmbedded;
import org.apache.zookeeper.util.ServiceUtils;

/**
 * One real ZooKeeper server, alone or as a member of an ensemble; no admin server.
 *
 * <p>A member starts without its peers, whose names need not resolve yet, and serves once there is
 * a quorum.
 */
public final class ZooKeeperNode {
  /** Flags of the command. */
  public static final List<Flag> FLAGS =
      List.of(
          Flag.required("data-dir", "folder of the server"),
          Flag.required("port", "client port"),
          Flag.text("host", "127.0.0.1", "address to bind; 0.0.0.0: all"),
          Flag.number("tick-ms", 500, "sessions live between 2 and 120 ticks"),
          Flag.number("server-id", 0, "this member's number in --servers; 0: alone"),
          Flag.text("servers", "", "the ensemble: 1=HOST:PEER_PORT:ELECTION_PORT,2=..."),
          Flag.text("zookeeper-conf", "", "file of ZooKeeper's own settings, over all of these"));

  private static final long START_MAX_MS = 30_000;

  /**
   * A member waits this long for a quorum: its peers may be pulled, scheduled and started
   * meanwhile.
   */
  private static final long QUORUM_MAX_MS = 600_000;

  private static final long SERVING_POLL_MS = 100;
  private static final int ANSWER_MAX_MS = 2_000;
  private static final int SESSION_TICKS_MIN = 2;
  private static final int SESSION_TICKS_MAX = 120;
  private static final int PURGE_INTERVAL_H = 1;
  private static final int SNAPSHOTS_KEPT = 3;

  private final ZooKeeperServerEmbedded server;
  private final Settings settings;

  private ZooKeeperNode(ZooKeeperServerEmbedded server, Settings settings) {
    this.server = server;
    this.settings = settings;
  }

  /** What one server needs to know. */
  public record Settings(
      Path folder, String host, int port, int tickMs, Ensemble ensemble, Map<String, String> conf) {
    public static Settings of(Flags flags) {
      return new Settings(
          Path.of(flags.text("data-dir")),
          flags.text("host"),
          flags.integer("port", 1, 65_535),
          flags.integer("tick-ms", 100, 10_000),
          Ensemble.of(flags.integer("server-id", 0, Ensemble.ID_MAX), flags.text("servers")),
          SettingsFile.ofFlag(flags, "zookeeper-conf"));
    }

    /** A server for this machine alone. */
    public static Settings local(Path folder, int port, int tickMs) {
      return new Settings(folder, "127.0.0.1", port, tickMs, Ensemble.NONE, Map.of());
    }
  }

  /**
   * Starts and returns: alone once it serves, as a member at once; {@link #awaitServing} waits for
   * the quorum.
   */
  public static ZooKeeperNode start(Settings settings) throws Exception {
    Path folder = DataFolder.named(settings.folder());
    requireFree(settings.host(), settings.port());
    forgetOldConfigurations(folder);
    settings.ensemble().claim(DataFolder.of(folder.resolve("data")));
    ZooKeeperServerEmbedded server =
        ZooKeeperServerEmbedded.builder()
            .baseDir(folder)
            .configuration(configuration(settings))
            .exitHandler(ExitHandler.LOG_ONLY)
            .build();
    server.start(START_MAX_MS);
    return new ZooKeeperNode(server, settings);
  }

  /**
   * Tells when the server ends by itself; its threads go on, so without this nobody would notice.
   */
  public void onDeath(Consumer<String> died) {
    ServiceUtils.setSystemExitProcedure(
        code -> died.accept("the ZooKeeper server ended with code " + code));
  }

  /** Returns once the server serves clients; throws when it does not within minutes. */
  public void awaitServing() throws Exception {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(QUORUM_MAX_MS);
    while (!serves()) {
      if (System.nanoTime() > until) {
        throw new IllegalStateException(
            "ZooKeeper has no quorum after "
                + QUORUM_MAX_MS / 1_000
                + " s; are the other members of --servers up and reachable?");
      }
      Thread.sleep(SERVING_POLL_MS);
    }
  }

  public String address() {
    return settings.host() + ":" + settings.port();
  }

  public void stop() {
    server.close();
  }

  private boolean serves() throws IOException {
    InetAddress bound = InetAddress.getByName(settings.host());
    InetAddress reachable = bound.isAnyLocalAddress() ? InetAddress.getLoopbackAddress() : bound;
    try (Socket socket = new Socket()) {
      socket.connect(new InetSocketAddress(reachable, settings.port()), ANSWER_MAX_MS);
      socket.setSoTimeout(ANSWER_MAX_MS);
      socket.getOutputStream().write("srvr".getBytes(StandardCharsets.US_ASCII));
      return new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII)
          .contains("Mode: ");
    } catch (IOException notYet) {
      return false;
    }
  }

  private static Properties configuration(Settings settings) {
    Properties config = new Properties();
    config.setProperty("tickTime", Integer.toString(settings.tickMs()));
    config.setProperty(
        "minSessionTimeout", Integer.toString(settings.tickMs() * SESSION_TICKS_MIN));
    config.setProperty(
        "maxSessionTimeout", Integer.toString(settings.tickMs() * SESSION_TICKS_MAX));
    config.setProperty("dataDir", settings.folder().resolve("data").toString());
    config.setProperty("clientPort", Integer.toString(settings.port()));
    config.setProperty("clientPortAddress", settings.host());
    config.setProperty("admin.enableServer", "false");
    config.setProperty("4lw.commands.whitelist", "srvr,ruok,cons,dump");
    config.setProperty("maxClientCnxns", "0");
    // A handful of clients: handing each of their packets to another thread costs more than reading
    // it.
    config.setProperty("nio.numWorkerThreads", "0");
    config.setProperty("autopurge.purgeInterval", Integer.toString(PURGE_INTERVAL_H));
    config.setProperty("autopurge.snapRetainCount", Integer.toString(SNAPSHOTS_KEPT));
    settings.ensemble().configure(config, settings.host(), settings.tickMs());
    settings.conf().forEach(config::setProperty);
    return config;
  }

  // The embedded server writes a new one, with a new name, at every start.
  private static void forgetOldConfigurations(Path folder) throws IOException {
    try (DirectoryStream<Path> old = Files.newDirectoryStream(folder, "zookeeper.configuration*")) {
      for (Path file : old) {
        Files.deleteIfExists(file);
      }
    }
  }

  // The embedded server answers a taken port with a timeout; this says it at once.
  private static void requireFree(String host, int port) throws Exception {
    try (ServerSocket probe = new ServerSocket()) {
      probe.setReuseAddress(true);
      probe.bind(new InetSocketAddress(host, port));
    } catch (IOException taken) {
      throw new IllegalStateException(
          "cannot listen on " + host + ":" + port + " for ZooKeeper", taken);
    }
  }
}
