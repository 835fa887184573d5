package io.cursorkeeper.gateway.service;

import io.netty.buffer.ByteBufAllocator;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.ClientConfiguration;
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

  private BookKeeperClient(BookKeeper client, BookieConnections connections) {
    this.client = client;
    this.connections = connections;
  }

  /** Connects; throws if ZooKeeper does not answer in time or holds no cluster. */
  static BookKeeperClient connect(
      String metadataServiceUri, GatewaySettings settings, ByteBufAllocator buffers) {
    ClientConfiguration config = new ClientConfiguration();
    config.setMetadataServiceUri(metadataServiceUri);
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
    try {
      return new BookKeeperClient(
          BookKeeper.forConfig(config).allocator(buffers).eventLoopGroup(connections).build(),
          connections);
    } catch (Exception failure) {
      connections.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS);
      throw new IllegalStateException(
          "cannot use the BookKeeper cluster at "
              + metadataServiceUri
              + "; is ZooKeeper up, and was init-cluster run?",
          failure);
    }
  }

  org.apache.bookkeeper.client.api.BookKeeper api() {
    return client;
  }

  CompletableFuture<Boolean> connected() {
    return client.isDriverMetadataServiceAvailable();
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
    } catch (Exception failure) {
      LOG.debug("closing the BookKeeper client failed", failure);
    }
    connections.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS);
  }
}
