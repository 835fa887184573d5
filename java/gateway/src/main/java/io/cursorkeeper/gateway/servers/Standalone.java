package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.process.Lifetime;
import io.cursorkeeper.gateway.process.Ready;
import io.cursorkeeper.gateway.service.Gateway;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.Systems;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/**
 * A ZooKeeper, one to three bookies and the gateway in one process over one folder. Data outlives
 * the process, also a killed one. For development and tests: there is one machine and one disk
 * under all of it.
 */
public final class Standalone {
  /** Flags of the command beyond the gateway's. */
  public static final List<Flag> FLAGS =
      List.of(
          Flag.required("data-dir", "folder of everything"),
          Flag.number("bookies", 3, "how many, 1 to 3"),
          Flag.number(
              "zookeeper-port",
              0,
              "0: free the first time, then remembered, as --port and --metrics-port are"));

  private static final int TICK_MS = 500;

  // Keeps the lock: an unreachable channel would be closed by the collector.
  @SuppressWarnings("unused")
  /**
   * As long as this ZooKeeper lets a session be. A bookie dies with all of it, and what a killed
   * one left is purged at the start, so a short session would only end bookies of a machine that
   * stands still for a while.
   */
  private static final int BOOKIE_SESSION_MS = 120 * TICK_MS;

  private static FileChannel held;

  private Standalone() {}

  /** Starts all of it, in order; returns what to print. */
  public static Ready start(Flags flags, Lifetime lifetime) throws Exception {
    Path folder = DataFolder.named(Path.of(flags.text("data-dir")).toAbsolutePath());
    GatewaySettings given = GatewaySettings.of(flags);
    int bookies = flags.integer("bookies", 1, 3);
    lock(folder);
    Ports ports = new Ports(folder);
    // Daemons that run know these addresses, and Prometheus, too.
    GatewaySettings settings =
        given.at(
            ports.latest("gateway", given.port()),
            given.metricsPort() < 0
                ? given.metricsPort()
                : ports.latest("metrics", given.metricsPort()));

    ZooKeeperNode zooKeeper =
        ZooKeeperNode.start(
            ZooKeeperNode.Settings.local(
                DataFolder.of(folder.resolve("zookeeper")),
                ports.of("zookeeper", flags.integer("zookeeper-port", 0, 65_535)),
                TICK_MS));
    lifetime.add("zookeeper", zooKeeper::stop);
    zooKeeper.onDeath(lifetime::died);
    String uri = Cluster.uri(zooKeeper.address());
    if (!Cluster.initialise(uri)) {
      Cluster.purgeRegistrations(zooKeeper.address());
    }

    List<BookieSettings> wanted = new ArrayList<>();
    for (int number = 1; number <= bookies; number++) {
      wanted.add(
          BookieSettings.local(
              DataFolder.of(folder.resolve("bookie-" + number)),
              ports.of("bookie-" + number, 0),
              uri,
              BOOKIE_SESSION_MS,
              bookies));
    }
    List<BookieNode> nodes = together(wanted, lifetime);
    lifetime.add("bookies", () -> nodes.parallelStream().forEach(BookieNode::stop));

    Gateway gateway = Gateway.start(settings, Systems.plain(uri));
    lifetime.add("gateway", gateway::stop);
    Ready ready =
        new Ready("standalone")
            .with("gateway", gateway.address())
            .with("zookeeper", zooKeeper.address());
    gateway.metricsAddress().ifPresent(address -> ready.with("metrics", address));
    return ready.with("metadata_service_uri", uri).with("bookies", bookies);
  }

  private static List<BookieNode> together(List<BookieSettings> wanted, Lifetime lifetime)
      throws Exception {
    List<CompletableFuture<BookieNode>> starting = new ArrayList<>();
    for (BookieSettings settings : wanted) {
      CompletableFuture<BookieNode> started = new CompletableFuture<>();
      starting.add(started);
      new Thread(
              () -> {
                try {
                  started.complete(BookieNode.start(settings, lifetime::died));
                } catch (Throwable failure) {
                  started.completeExceptionally(failure);
                }
              },
              "bookie-start-" + settings.port())
          .start();
    }
    List<BookieNode> nodes = new ArrayList<>();
    try {
      for (CompletableFuture<BookieNode> node : starting) {
        nodes.add(node.join());
      }
    } catch (CompletionException failure) {
      throw new IllegalStateException("a bookie did not start", Failed.cause(failure));
    }
    return nodes;
  }

  // Two processes over one folder would destroy it. The system frees the lock of a killed process.
  private static void lock(Path folder) throws IOException {
    FileChannel channel =
        FileChannel.open(
            folder.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    try {
      if (channel.tryLock() != null) {
        held = channel;
        return;
      }
    } catch (OverlappingFileLockException sameProcess) {
      // Reported below.
    }
    throw new IllegalStateException(folder + " is in use by another process");
  }
}
