package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.systems.Systems;
import io.netty.buffer.ByteBufAllocator;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.zookeeper.ZooKeeper;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The official client, built with the settings that its traps ask for, and the two questions health
 * asks it.
 */
final class BookKeeperClient {
  private static final Logger LOG = LoggerFactory.getLogger(BookKeeperClient.class);

  private static final long TRY_SUSPECTS_EVERY_MS = 2_000;

  private final BookKeeper client;
  private final BookieConnections connections;

  /** Those that the client does not make itself. */
  private final Optional<ZooKeeper> sessions;

  private BookKeeperClient(
      BookKeeper client, BookieConnections connections, Optional<ZooKeeper> sessions) {
    this.client = client;
    this.connections = connections;
    this.sessions = sessions;
  }

  /** Connects; throws if ZooKeeper does not answer in time, holds no cluster, or refuses us. */
  static BookKeeperClient connect(
      Systems systems, GatewaySettings settings, ByteBufAllocator buffers) throws Exception {
    ClientConfiguration config = new ClientConfiguration();
    systems.configure(config);
    config.setZkTimeout(settings.zooKeeperTimeoutMs());
    // The throttle blocks the calling thread, which here belongs to the network. The window bounds
    // instead.
    config.setThrottleValue(0);
    // One oversize entry or one bad bookie must not change ensembles for ever.
    config.setMaxAllowedEnsembleChanges(settings.ensembleChangesMax());
    // With as many bookies as the ensemble there is no spare: wait for the ack quorum instead of
    // failing.
    config.setDelayEnsembleChange(true);
    // An answer above it would break the connection: Pulsar's bookies hold entries of 5 MiB and a
    // little.
    config.setNettyMaxFrameSizeBytes(settings.bookieFrameBytesMax());
    config.setAddEntryTimeout(settings.addTimeoutS());
    config.setAddEntryQuorumTimeout(settings.addQuorumTimeoutS());
    config.setReadEntryTimeout(settings.readTimeoutS());
    config.setStoreSystemtimeAsLedgerCreationTime(true);
    config.setNumWorkerThreads(1);
    // What waits for a connection is in nobody's timeout.
    config.setClientConnectTimeoutMillis((int) TimeUnit.SECONDS.toMillis(settings.addTimeoutS()));
    BookieConnections connections =
        new BookieConnections(
            new DefaultThreadFactory("bookkeeper-io"),
            TimeUnit.SECONDS.toMillis(settings.addTimeoutS()),
            TRY_SUSPECTS_EVERY_MS);
    systems.tellWhatDoesNotCount(config);
    BookKeeperClient made;
    try {
      Optional<ZooKeeper> sessions = systems.sessions(config);
      var building = BookKeeper.forConfig(config).allocator(buffers).eventLoopGroup(connections);
      sessions.ifPresent(building::zk);
      made = new BookKeeperClient(building.build(), connections, sessions);
    } catch (Exception failure) {
      connections.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS);
      String why = systems.whyNoClient(failure, settings.zooKeeperTimeoutMs());
      throw new IllegalStateException(
          "cannot use the BookKeeper cluster at "
              + systems.metadataServiceUri()
              + "; "
              + (why.isEmpty() ? "is ZooKeeper up, and was init-cluster run?" : why),
          failure);
    }
    try {
      systems.requireWelcome(made.client, settings.zooKeeperTimeoutMs());
      return made;
    } catch (Exception refused) {
      made.close();
      throw refused;
    }
  }

  org.apache.bookkeeper.client.api.BookKeeper api() {
    return client;
  }

  CompletableFuture<Boolean> connected() {
    return sessions
        .map(own -> CompletableFuture.completedFuture(own.getState().isConnected()))
        .orElseGet(client::isDriverMetadataServiceAvailable);
  }

  CompletableFuture<Integer> writableBookies() {
    return client
        .getMetadataClientDriver()
        .getRegistrationClient()
        .getWritableBookies()
        .thenApply(bookies -> bookies.getValue().size());
  }

  /** Bookies that stood still and have not answered since. */
  int suspects() {
    return connections.suspects();
  }

  void close() {
    try {
      client.close();
      if (sessions.isPresent()) {
        sessions.get().close();
      }
    } catch (Exception failure) {
      LOG.debug("closing the BookKeeper client failed", failure);
    }
    connections.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS);
  }
}
