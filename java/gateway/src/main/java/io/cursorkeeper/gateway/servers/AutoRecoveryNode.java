package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.replication.AutoRecoveryMain;

/**
 * BookKeeper's own AutoRecovery: an auditor, one at a time in a cluster, that finds ledgers of lost bookies, and a
 * worker that copies their entries to others. It holds nothing durable.
 *
 * <p>It also fences ledgers that are open for writing on a lost bookie, after their grace period. BookKeeper ends it
 * when its ZooKeeper session expires; {@code died} is told, and whoever restarts processes starts a new one.
 */
public final class AutoRecoveryNode {
  /** Flags of the command. */
  public static final List<Flag> FLAGS = List.of(
      Flag.required("metadata-service-uri", "zk+hierarchical://HOST:PORT/ledgers; more hosts after ;"),
      Flag.number("zookeeper-timeout-ms", 10_000, "session"),
      Flag.number("lost-bookie-delay-s", 0, "a bookie may be away this long"),
      Flag.number("open-ledger-grace-ms", 30_000, "before a ledger open on a lost bookie is fenced"),
      Flag.number("audit-interval-s", 604_800, "between checks of all ledgers; 0: none"));

  private final AutoRecoveryMain main;
  private final String identity;

  private AutoRecoveryNode(AutoRecoveryMain main, String identity) {
    this.main = main;
    this.identity = identity;
  }

  /** Starts and returns once both parts run; the auditor may be another process's. */
  public static AutoRecoveryNode start(Flags flags, Consumer<String> died) throws Exception {
    // It votes under a bookie's name, which must be nobody else's.
    String identity = "autorecovery-" + UUID.randomUUID();
    ServerConfiguration config = new ServerConfiguration();
    config.setMetadataServiceUri(flags.text("metadata-service-uri"));
    config.setZkTimeout(flags.integer("zookeeper-timeout-ms", 200, 120_000));
    config.setBookieId(identity);
    config.setLostBookieRecoveryDelay(flags.integer("lost-bookie-delay-s", 0, 1_000_000));
    config.setProperty("openLedgerRereplicationGracePeriod", flags.number("open-ledger-grace-ms", 0, 86_400_000));
    config.setAuditorPeriodicCheckInterval(flags.number("audit-interval-s", 0, 1_000_000_000));
    config.setProperty("enableStatistics", false);
    AutoRecoveryMain main = new AutoRecoveryMain(config);
    main.setExceptionHandler((thread, failure) ->
        died.accept("autorecovery ended, as when its ZooKeeper session expired: " + Failed.inOneLine(failure)));
    main.start();
    return new AutoRecoveryNode(main, identity);
  }

  public String identity() {
    return identity;
  }

  public void stop() {
    main.shutdown();
  }
}
