package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AutoRecoveryMain;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * BookKeeper's own AutoRecovery: an auditor, one at a time in a cluster, that finds ledgers of lost
 * bookies, and a worker that copies their entries to others. It holds nothing durable.
 *
 * <p>It also fences ledgers that are open for writing on a lost bookie, after their grace period.
 * BookKeeper ends it when its ZooKeeper session expires; it is then started anew here. If that
 * fails for minutes, or it ends at once, {@code died} is told.
 */
public final class AutoRecoveryNode {
  private static final Logger LOG = LoggerFactory.getLogger(AutoRecoveryNode.class);

  /** Flags of the command. */
  public static final List<Flag> FLAGS =
      List.of(
          Flag.required(
              "metadata-service-uri", "zk+hierarchical://HOST:PORT/ledgers; more hosts after ;"),
          Flag.number("zookeeper-timeout-ms", 10_000, "session"),
          Flag.number("lost-bookie-delay-s", 0, "a bookie may be away this long"),
          Flag.number(
              "open-ledger-grace-ms", 30_000, "before a ledger open on a lost bookie is fenced"),
          Flag.number("audit-interval-s", 604_800, "between checks of all ledgers; 0: none"));

  private static final long ZOOKEEPER_AWAY_MAX_MS = 600_000;
  private static final long RETRY_MS = 500;

  private final ServerConfiguration config;
  private final Consumer<String> died;
  private AutoRecoveryMain main;
  private boolean stopped;

  private AutoRecoveryNode(ServerConfiguration config, Consumer<String> died) {
    this.config = config;
    this.died = died;
  }

  /** Starts and returns once both parts run; the auditor may be another process's. */
  public static AutoRecoveryNode start(Flags flags, Consumer<String> died) throws Exception {
    AutoRecoveryNode node = new AutoRecoveryNode(configuration(flags), died);
    node.launch();
    return node;
  }

  public String identity() {
    return config.getBookieId();
  }

  public void stop() {
    AutoRecoveryMain running;
    synchronized (this) {
      stopped = true;
      running = main;
    }
    running.shutdown();
  }

  private void launch() throws Exception {
    AutoRecoveryMain next = new AutoRecoveryMain(config);
    long startNanos = System.nanoTime();
    next.setExceptionHandler((thread, failure) -> again(startNanos, failure));
    synchronized (this) {
      main = next;
      if (!stopped) {
        next.start();
        return;
      }
    }
    next.shutdown();
  }

  // On the thread that noticed the end, which has nothing else to do.
  private void again(long startNanos, Throwable failure) {
    long nowNanos = System.nanoTime();
    if (nowNanos - startNanos < TimeUnit.MILLISECONDS.toNanos(config.getZkTimeout())) {
      died.accept("autorecovery ended as soon as it was started: " + Failed.inOneLine(failure));
      return;
    }
    LOG.warn("autorecovery ended, as it does when its ZooKeeper session expires; starting it anew");
    while (!isStopped()) {
      try {
        launch();
        return;
      } catch (Exception notYet) {
        if (System.nanoTime() - nowNanos > TimeUnit.MILLISECONDS.toNanos(ZOOKEEPER_AWAY_MAX_MS)) {
          died.accept("autorecovery could not be started anew: " + Failed.inOneLine(notYet));
          return;
        }
      }
      pause();
    }
  }

  private synchronized boolean isStopped() {
    return stopped;
  }

  private static void pause() {
    try {
      Thread.sleep(RETRY_MS);
    } catch (InterruptedException unexpected) {
      Thread.currentThread().interrupt();
    }
  }

  private static ServerConfiguration configuration(Flags flags) {
    ServerConfiguration config = new ServerConfiguration();
    config.setMetadataServiceUri(flags.text("metadata-service-uri"));
    config.setZkTimeout(flags.integer("zookeeper-timeout-ms", 200, 120_000));
    // It votes under a bookie's name, which must be nobody else's.
    config.setBookieId("autorecovery-" + UUID.randomUUID());
    config.setLostBookieRecoveryDelay(flags.integer("lost-bookie-delay-s", 0, 1_000_000));
    config.setOpenLedgerRereplicationGracePeriod(
        Long.toString(flags.number("open-ledger-grace-ms", 0, 86_400_000)));
    config.setAuditorPeriodicCheckInterval(flags.number("audit-interval-s", 0, 1_000_000_000));
    config.setProperty("enableStatistics", false);
    return config;
  }
}
