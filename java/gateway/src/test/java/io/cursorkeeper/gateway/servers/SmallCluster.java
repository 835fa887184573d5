package io.cursorkeeper.gateway.servers;

import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.service.Gateway;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.Systems;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** A real ZooKeeper, a real bookie and gateways in this JVM, for tests of what a gateway allows. */
final class SmallCluster implements AutoCloseable {
  private static final int SESSION_MS = 10_000;
  private final Deque<AutoCloseable> started = new ArrayDeque<>();
  private final String uri;
  private final BookKeeper client;

  SmallCluster(Path folder) throws Exception {
    Ports ports = new Ports(folder);
    ZooKeeperNode zooKeeper =
        ZooKeeperNode.start(
            ZooKeeperNode.Settings.local(
                DataFolder.of(folder.resolve("zookeeper")), ports.of("zookeeper", 0), 500));
    started.push(zooKeeper::stop);
    zooKeeper.awaitServing();
    uri = Cluster.uri(zooKeeper.address());
    Cluster.initialise(uri);
    BookieNode bookie =
        BookieNode.start(
            BookieSettings.local(
                DataFolder.of(folder.resolve("bookie")), ports.of("bookie", 0), uri, SESSION_MS, 1),
            died -> {});
    started.push(bookie::stop);
    ClientConfiguration config = new ClientConfiguration();
    config.setMetadataServiceUri(uri);
    config.setZkTimeout(SESSION_MS);
    client = BookKeeper.newBuilder(config).build();
    started.push(client);
  }

  /** Its port. */
  int gateway(String... args) throws Exception {
    List<String> all = new ArrayList<>(List.of("--metrics-port", "-1", "--warm-up-entries", "4"));
    all.addAll(List.of(args));
    Gateway gateway =
        Gateway.start(
            GatewaySettings.of(Flags.parse(GatewaySettings.FLAGS, all.toArray(String[]::new))),
            Systems.plain(uri));
    started.push(gateway::stop);
    return Integer.parseInt(gateway.address().substring(gateway.address().lastIndexOf(':') + 1));
  }

  /** A closed ledger of one entry that no gateway knows of. */
  long ledger(Map<String, byte[]> custom) throws Exception {
    return ledger(custom, 1, 1);
  }

  long ledger(Map<String, byte[]> custom, int entries, int bytes) throws Exception {
    try (WriteHandle handle =
        client
            .newCreateLedgerOp()
            .withEnsembleSize(1)
            .withWriteQuorumSize(1)
            .withAckQuorumSize(1)
            .withDigestType(DigestType.CRC32C)
            .withPassword(new byte[0])
            .withCustomMetadata(custom)
            .execute()
            .get()) {
      for (int at = 0; at < entries; at++) {
        handle.append(new byte[bytes]);
      }
      return handle.getId();
    }
  }

  @Override
  public void close() throws Exception {
    while (!started.isEmpty()) {
      started.pop().close();
    }
  }
}
