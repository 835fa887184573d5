package io.cursorkeeper.gateway.systems;

import java.io.IOException;
import org.apache.bookkeeper.stats.NullStatsLogger;
import org.apache.bookkeeper.zookeeper.BoundExponentialBackoffRetryPolicy;
import org.apache.bookkeeper.zookeeper.ZooKeeperClient;
import org.apache.bookkeeper.zookeeper.ZooKeeperWatcherBase;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;

/**
 * BookKeeper's ZooKeeper client, which says who it is by the scheme digest in every session that it
 * makes. BookKeeper's own knows system properties only, and there is none for that.
 */
final class DigestSessions extends ZooKeeperClient {
  private static final int RETRY_THREADS = 1;
  private final String servers;
  private final int sessionMs;
  private final byte[] who;
  private final ZooKeeperWatcherBase watcher;

  private DigestSessions(
      String servers, int sessionMs, byte[] who, int retriesMax, ZooKeeperWatcherBase watcher)
      throws IOException {
    super(
        servers,
        sessionMs,
        watcher,
        new BoundExponentialBackoffRetryPolicy(sessionMs, sessionMs, Integer.MAX_VALUE),
        new BoundExponentialBackoffRetryPolicy(sessionMs, sessionMs, retriesMax),
        NullStatsLogger.INSTANCE,
        RETRY_THREADS,
        0,
        false);
    this.servers = servers;
    this.sessionMs = sessionMs;
    this.who = who.clone();
    this.watcher = watcher;
    addAuthInfo(Secret.DIGEST, who);
  }

  /** Returns with a session; throws if there is none within its time. */
  static DigestSessions connect(String servers, int sessionMs, byte[] who, int retriesMax)
      throws IOException, KeeperException, InterruptedException {
    ZooKeeperWatcherBase watcher = new ZooKeeperWatcherBase(sessionMs, false);
    DigestSessions made = new DigestSessions(servers, sessionMs, who, retriesMax, watcher);
    try {
      watcher.addChildWatcher(made);
      made.waitForConnection();
      return made;
    } catch (KeeperException | InterruptedException none) {
      made.close();
      throw none;
    }
  }

  /** The next session, when one has expired. */
  @Override
  protected ZooKeeper createZooKeeper() throws IOException {
    ZooKeeper next = new ZooKeeper(servers, sessionMs, watcher, false);
    next.addAuthInfo(Secret.DIGEST, who);
    return next;
  }
}
