package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.service.Gateway;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.Systems;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.LedgerMetadata;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.net.BookieId;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The servers as a container runs them, all real, here in one JVM: an ensemble, bookies by name,
 * auto-recovery, health.
 */
@Timeout(300)
class ServersTest {
  private static final int TICK_MS = 500;
  private static final String SESSION_MS = "10000";
  private static final long CONDITION_MAX_S = 120;

  @TempDir Path folder;

  private Ports ports;
  private final Deque<AutoCloseable> started = new ArrayDeque<>();

  @BeforeEach
  void ports() throws Exception {
    ports = new Ports(folder);
  }

  @AfterEach
  void stop() throws Exception {
    while (!started.isEmpty()) {
      started.pop().close();
    }
  }

  private static Flags flags(List<Flag> known, String... args) {
    return Flags.parse(known, args);
  }

  private static void await(String what, Callable<Boolean> holds) throws Exception {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(CONDITION_MAX_S);
    while (!holds.call()) {
      assertTrue(System.nanoTime() < until, what);
      Thread.sleep(20);
    }
  }

  private ZooKeeperNode zooKeeper(int id, String servers) throws Exception {
    ZooKeeperNode node =
        ZooKeeperNode.start(
            ZooKeeperNode.Settings.of(
                flags(
                    ZooKeeperNode.FLAGS,
                    "--data-dir",
                    folder.resolve("zk-" + id).toString(),
                    "--port",
                    Integer.toString(ports.of("zk-" + id, 0)),
                    "--tick-ms",
                    Integer.toString(TICK_MS),
                    "--server-id",
                    Integer.toString(id),
                    "--servers",
                    servers)));
    started.push(node::stop);
    return node;
  }

  private BookieNode bookie(int number, String uri, String... more) throws Exception {
    List<String> args =
        new ArrayList<>(
            List.of(
                "--data-dir",
                folder.resolve("bookie-" + number).toString(),
                "--port",
                Integer.toString(ports.of("bookie-" + number, 0)),
                "--metadata-service-uri",
                uri,
                "--zookeeper-timeout-ms",
                SESSION_MS));
    args.addAll(List.of(more));
    BookieNode node =
        BookieNode.start(
            BookieSettings.of(flags(BookieSettings.FLAGS, args.toArray(String[]::new))),
            died -> {});
    started.push(node::stop);
    return node;
  }

  private BookKeeper client(String uri) throws Exception {
    ClientConfiguration config = new ClientConfiguration();
    config.setMetadataServiceUri(uri);
    config.setZkTimeout(Integer.parseInt(SESSION_MS));
    BookKeeper client = BookKeeper.newBuilder(config).build();
    started.push(client);
    return client;
  }

  private static String asked(ZooKeeperNode node, String word) throws Exception {
    String[] address = node.address().split(":");
    try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
      socket.setSoTimeout(60_000);
      socket.getOutputStream().write(word.getBytes(StandardCharsets.US_ASCII));
      return new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
    }
  }

  private static Set<String> bookiesOf(BookKeeper client, long ledgerId) throws Exception {
    LedgerMetadata metadata =
        client.getLedgerMetadata(ledgerId).get(CONDITION_MAX_S, TimeUnit.SECONDS);
    return metadata.getAllEnsembles().values().stream()
        .flatMap(List::stream)
        .map(BookieId::toString)
        .collect(Collectors.toSet());
  }

  @Test
  void anEnsembleServesBookiesByNameAndAutoRecoveryCopiesWhatOneOfThemHad() throws Exception {
    String servers = String.join(",", List.of(1, 2, 3).stream().map(this::member).toList());
    ZooKeeperNode first = zooKeeper(1, servers);
    CompletableFuture<Void> serving =
        CompletableFuture.runAsync(
            () -> {
              try {
                first.awaitServing();
              } catch (Exception failure) {
                throw new IllegalStateException(failure);
              }
            });
    assertEquals("imok", asked(first, "ruok"));
    assertTrue(asked(first, "srvr").contains("not currently serving"));
    assertFalse(serving.isDone());
    ZooKeeperNode second = zooKeeper(2, servers);
    serving.get(CONDITION_MAX_S, TimeUnit.SECONDS);
    ZooKeeperNode third = zooKeeper(3, servers);
    third.awaitServing();
    assertTrue(asked(third, "srvr").contains("Mode: follower"));
    assertTrue(asked(third, "cons").contains("queued="));
    assertTrue(asked(third, "dump").contains("Sessions with Ephemerals"));

    String uri =
        "zk+hierarchical://"
            + first.address()
            + ";"
            + second.address()
            + ";"
            + third.address()
            + "/ledgers";
    assertTrue(Cluster.initialise(uri, 60_000));
    assertFalse(Cluster.initialise(uri, 0));
    BookieNode named = bookie(1, uri, "--advertised-address", "localhost");
    assertEquals("localhost:" + ports.of("bookie-1", 0), named.address());
    bookie(2, uri);
    BookKeeper client = client(uri);
    long ledgerId;
    try (WriteHandle handle =
        client
            .newCreateLedgerOp()
            .withEnsembleSize(2)
            .withWriteQuorumSize(2)
            .withAckQuorumSize(2)
            .withPassword(new byte[0])
            .execute()
            .get(CONDITION_MAX_S, TimeUnit.SECONDS)) {
      ledgerId = handle.getId();
      handle.append("kept".getBytes(StandardCharsets.US_ASCII));
    }
    assertTrue(bookiesOf(client, ledgerId).contains(named.address()));

    // A member of the ensemble goes, and the named bookie, both for good: its share of the ledger
    // is copied to the spare.
    BookieNode spare = bookie(3, uri);
    first.stop();
    AutoRecoveryNode recovery =
        AutoRecoveryNode.start(
            flags(
                AutoRecoveryNode.FLAGS,
                "--metadata-service-uri",
                uri,
                "--zookeeper-timeout-ms",
                SESSION_MS),
            died -> {});
    started.push(recovery::stop);
    named.stop();
    await(
        "ledger " + ledgerId + " is copied to " + spare.address(),
        () ->
            bookiesOf(client, ledgerId)
                .equals(Set.of("127.0.0.1:" + ports.of("bookie-2", 0), spare.address())));
  }

  private String member(int id) {
    try {
      return id + "=localhost:" + ports.of("peer-" + id, 0) + ":" + ports.of("election-" + id, 0);
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
  }

  @Test
  void healthOverHttpSaysWhatIsMissing() throws Exception {
    ZooKeeperNode zooKeeper = zooKeeper(0, "");
    zooKeeper.awaitServing();
    String uri = Cluster.uri(zooKeeper.address());
    Cluster.initialise(uri);
    BookieNode writable = bookie(1, uri);
    bookie(2, uri, "--read-only", "true");
    Gateway gateway =
        Gateway.start(
            GatewaySettings.of(
                flags(
                    GatewaySettings.FLAGS,
                    "--warm-up-entries",
                    "0",
                    "--zookeeper-timeout-ms",
                    SESSION_MS,
                    "--metrics-host",
                    "localhost")),
            Systems.plain(uri));
    started.push(gateway::stop);
    String page = gateway.metricsAddress().orElseThrow();
    assertTrue(page.startsWith("localhost:"), page);
    awaitHealth(page, 200, "SERVING");
    assertTrue(
        get("http://" + page + "/metrics")
            .body()
            .contains("cursorkeeper_gateway_writable_bookies 1"));

    writable.stop();
    awaitHealth(page, 503, "NOT_SERVING: writable bookies 0, needed 1 (--writable-bookies-min)");
    bookie(1, uri);
    awaitHealth(page, 200, "SERVING");
    zooKeeper.stop();
    awaitHealth(page, 503, "NOT_SERVING: ZooKeeper does not answer");
    zooKeeper(0, "").awaitServing();
    awaitHealth(page, 200, "SERVING");
  }

  private static HttpResponse<String> get(String url) throws Exception {
    return HttpClient.newHttpClient()
        .send(
            HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(60)).build(),
            HttpResponse.BodyHandlers.ofString());
  }

  private static void awaitHealth(String page, int status, String body) throws Exception {
    await(
        status + " " + body,
        () -> {
          HttpResponse<String> answer = get("http://" + page + "/health");
          return answer.statusCode() == status && answer.body().equals(body + "\n");
        });
  }

  @Test
  void aBookieWithoutItsDiskSaysThatItEnded() throws Exception {
    ZooKeeperNode zooKeeper = zooKeeper(0, "");
    String uri = Cluster.uri(zooKeeper.address());
    Cluster.initialise(uri);
    CompletableFuture<String> end = new CompletableFuture<>();
    BookieNode bookie =
        BookieNode.start(
            BookieSettings.of(
                flags(
                    BookieSettings.FLAGS,
                    "--data-dir",
                    folder.resolve("bookie-1").toString(),
                    "--port",
                    Integer.toString(ports.of("bookie-1", 0)),
                    "--metadata-service-uri",
                    uri,
                    "--zookeeper-timeout-ms",
                    SESSION_MS,
                    "--disk-check-interval-ms",
                    "50")),
            end::complete);
    started.push(bookie::stop);
    Path current = folder.resolve("bookie-1").resolve("ledgers").resolve("current");
    Files.move(current, current.resolveSibling("gone"));
    Files.writeString(current, "no folder");
    String said = end.get(CONDITION_MAX_S, TimeUnit.SECONDS);
    assertTrue(said.contains(bookie.address() + " ended: its disk"), said);
  }

  @Test
  void aBookieNeedsAnIdentity() {
    String refused =
        assertThrows(
                IllegalArgumentException.class,
                () ->
                    BookieSettings.of(
                        flags(
                            BookieSettings.FLAGS,
                            "--data-dir",
                            "x",
                            "--port",
                            "1",
                            "--metadata-service-uri",
                            "x",
                            "--host",
                            "0.0.0.0")))
            .getMessage();
    assertTrue(refused.contains("--advertised-address"), refused);
  }
}
