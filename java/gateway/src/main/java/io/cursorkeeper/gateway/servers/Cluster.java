package io.cursorkeeper.gateway.servers;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.meta.MetadataDrivers;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooKeeper;

/**
 * What a BookKeeper cluster is in ZooKeeper: its layout and identity, and the registrations of its
 * bookies.
 */
public final class Cluster {
  private static final int SESSION_MS = 10_000;
  private static final long CONNECT_MAX_MS = 10_000;
  private static final long RETRY_MS = 500;

  private Cluster() {}

  /** The URI of a cluster in a ZooKeeper at this address. */
  public static String uri(String zooKeeperAddress) {
    return "zk+hierarchical://" + zooKeeperAddress + "/ledgers";
  }

  /**
   * As {@link #initialise(String)}, but ZooKeeper may take up to {@code waitMs} to answer; the last
   * failure is thrown.
   */
  public static boolean initialise(String uri, long waitMs) throws Exception {
    return initialise(uri, Map.of(), waitMs);
  }

  /** As {@link #initialise(String, long)}, with settings of BookKeeper's own. */
  public static boolean initialise(String uri, Map<String, String> conf, long waitMs)
      throws Exception {
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
    while (true) {
      try {
        return initialise(uri, conf);
      } catch (IllegalArgumentException wrongUri) {
        throw wrongUri;
      } catch (Exception notYet) {
        if (System.nanoTime() > until) {
          throw new IllegalStateException(
              "no cluster could be made at " + uri + "; does ZooKeeper answer?", notYet);
        }
      }
      Thread.sleep(RETRY_MS);
    }
  }

  /**
   * Creates the cluster's nodes. Repeating it is safe: true only for the call that created them.
   */
  public static boolean initialise(String uri) throws Exception {
    return initialise(uri, Map.of());
  }

  private static boolean initialise(String uri, Map<String, String> conf) throws Exception {
    ServerConfiguration config = new ServerConfiguration();
    conf.forEach(config::setProperty);
    config.setMetadataServiceUri(uri);
    if (exists(config)) {
      return false;
    }
    if (!BookKeeperAdmin.initNewCluster(config) && !exists(config)) {
      throw new IllegalStateException("could not create the cluster at " + uri);
    }
    return true;
  }

  /**
   * Forgets the registrations of killed bookies. Their sessions would outlive them by seconds, and
   * each bookie waits for its own to go. Only allowed while no bookie of the cluster runs.
   */
  static void purgeRegistrations(String zooKeeperAddress) throws Exception {
    CountDownLatch connected = new CountDownLatch(1);
    ZooKeeper client =
        new ZooKeeper(
            zooKeeperAddress,
            SESSION_MS,
            event -> {
              if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
              }
            });
    try {
      if (!connected.await(CONNECT_MAX_MS, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("ZooKeeper at " + zooKeeperAddress + " does not answer");
      }
      purge(client, "/ledgers/available/readonly");
      purge(client, "/ledgers/available");
    } finally {
      client.close();
    }
  }

  private static void purge(ZooKeeper client, String folder) throws Exception {
    try {
      for (String bookie : client.getChildren(folder, false)) {
        if (!bookie.equals("readonly")) {
          client.delete(folder + "/" + bookie, -1);
        }
      }
    } catch (KeeperException.NoNodeException fresh) {
      // Nothing registered yet, or gone with its session in between.
    }
  }

  private static boolean exists(ServerConfiguration config) throws Exception {
    return MetadataDrivers.runFunctionWithRegistrationManager(
        config,
        registrations -> {
          try {
            return registrations.getClusterInstanceId() != null;
          } catch (Exception fresh) {
            return false;
          }
        });
  }
}
