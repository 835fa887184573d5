package io.cursorkeeper.gateway.service;

import io.netty.buffer.ByteBufAllocator;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The official client, built with the settings that its traps ask for, and the two questions health asks it. */
final class BookKeeperClient {
  private static final Logger LOG = LoggerFactory.getLogger(BookKeeperClient.class);

  private final BookKeeper client;

  private BookKeeperClient(BookKeeper client) {
    this.client = client;
  }

  /** Connects; throws if ZooKeeper does not answer in time or holds no cluster. */
  static BookKeeperClient connect(String metadataServiceUri, GatewaySettings settings, ByteBufAllocator buffers) {
    ClientConfiguration config = new ClientConfiguration();
    config.setMetadataServiceUri(metadataServiceUri);
    config.setZkTimeout(settings.zooKeeperTimeoutMs());
    // The throttle blocks the calling thread, which here belongs to the network. The window bounds instead.
    config.setThrottleValue(0);
    // One oversize entry or one bad bookie must not change ensembles for ever.
    config.setMaxAllowedEnsembleChanges(settings.ensembleChangesMax());
    // With as many bookies as the ensemble there is no spare: wait for the ack quorum instead of failing.
    config.setDelayEnsembleChange(true);
    // An answer above it would break the connection: Pulsar's bookies hold entries of 5 MiB and a little.
    config.setNettyMaxFrameSizeBytes(settings.bookieFrameBytesMax());
    config.setAddEntryTimeout(settings.addTimeoutS());
    config.setAddEntryQuorumTimeout(settings.addQuorumTimeoutS());
    config.setReadEntryTimeout(settings.readTimeoutS());
    config.setStoreSystemtimeAsLedgerCreationTime(true);
    config.setNumIOThreads(1);
    config.setNumWorkerThreads(1);
    try {
      return new BookKeeperClient(BookKeeper.forConfig(config).allocator(buffers).build());
    } catch (Exception failure) {
      throw new IllegalStateException("cannot use the BookKeeper cluster at " + metadataServiceUri
          + "; is ZooKeeper up, and was init-cluster run?", failure);
    }
  }

  org.apache.bookkeeper.client.api.BookKeeper api() {
    return client;
  }

  CompletableFuture<Boolean> connected() {
    return client.isDriverMetadataServiceAvailable();
  }

  CompletableFuture<Integer> writableBookies() {
    return client.getMetadataClientDriver().getRegistrationClient().getWritableBookies()
        .thenApply(bookies -> bookies.getValue().size());
  }

  void close() {
    try {
      client.close();
    } catch (Exception failure) {
      LOG.debug("closing the BookKeeper client failed", failure);
    }
  }
}
