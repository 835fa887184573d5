package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.service.Gateway;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.Systems;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import javax.security.auth.login.Configuration;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A gateway where ZooKeeper and bookies let in whom Kerberos knows, and nobody else, with a real
 * key distribution center: what a broker.conf and a JAAS file say is enough, and who does not fit
 * is told why before its gateway runs.
 */
@Timeout(120)
class KerberosTest {
  private static final String REALM = "EXAMPLE.COM";
  private static final String LOGIN_CONFIG = "java.security.auth.login.config";
  private static final String LOGIN =
      "%s { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
          + " keyTab=\"%s\" storeKey=true useTicketCache=false principal=\"%s@"
          + REALM
          + "\"; };\n";
  private static final Properties BEFORE = new Properties();
  private static final Deque<AutoCloseable> STARTED = new ArrayDeque<>();

  @TempDir static Path folder;
  private static SimpleKdcServer center;
  private static Path keys;
  private static Path jaas;
  private static String host;
  private static String servers;
  private Properties properties;

  @BeforeAll
  static void start() throws Exception {
    BEFORE.putAll(System.getProperties());
    host = InetAddress.getByName("127.0.0.1").getCanonicalHostName();
    Ports ports = new Ports(folder);
    center = new SimpleKdcServer();
    center.setWorkDir(Files.createDirectory(folder.resolve("center")).toFile());
    center.setKdcRealm(REALM);
    center.setKdcHost("127.0.0.1");
    center.setKdcTcpPort(ports.of("center", 0));
    center.setAllowUdp(false);
    center.init();
    center.start();
    STARTED.push(center::stop);
    keys = folder.resolve("keys");
    center.createAndExportPrincipals(
        keys.toFile(), "zookeeper/" + host, "bookkeeper/" + host, "gateway", "other");
    System.setProperty(
        "java.security.krb5.conf", center.getWorkDir().toPath().resolve("krb5.conf").toString());
    jaas = file("jaas", sections(keys));
    System.setProperty(LOGIN_CONFIG, jaas.toString());
    Configuration.setConfiguration(null);

    ZooKeeperNode zooKeeper =
        ZooKeeperNode.start(
            ZooKeeperNode.Settings.of(
                Flags.parse(
                    ZooKeeperNode.FLAGS,
                    "--data-dir",
                    folder.resolve("zookeeper").toString(),
                    "--port",
                    "" + ports.of("zookeeper", 0),
                    "--zookeeper-conf",
                    file(
                            "zoo.cfg",
                            "authProvider.sasl="
                                + "org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
                                + "sessionRequireClientSASLAuth=true\n")
                        .toString())));
    STARTED.push(zooKeeper::stop);
    zooKeeper.awaitServing();
    servers = zooKeeper.address();
    String uri = Cluster.uri(servers);
    Cluster.initialise(uri, Map.of("zkEnableSecurity", "true"), 10_000);
    BookieNode bookie =
        BookieNode.start(
            BookieSettings.of(
                Flags.parse(
                    BookieSettings.FLAGS,
                    "--data-dir",
                    folder.resolve("bookie").toString(),
                    "--port",
                    "" + ports.of("bookie", 0),
                    "--metadata-service-uri",
                    uri,
                    "--bookie-conf",
                    file(
                            "bookie.conf",
                            "zkEnableSecurity=true\n"
                                + "bookieAuthProviderFactoryClass="
                                + "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory\n"
                                + "saslJaasClientAllowedIds=gateway@.*\n")
                        .toString())),
            died -> {});
    STARTED.push(bookie::stop);
  }

  @AfterAll
  static void stop() throws Exception {
    try {
      while (!STARTED.isEmpty()) {
        STARTED.pop().close();
      }
    } finally {
      System.setProperties(BEFORE);
      Configuration.setConfiguration(null);
    }
  }

  @BeforeEach
  void remember() {
    properties = new Properties();
    properties.putAll(System.getProperties());
  }

  @AfterEach
  void forget() {
    System.setProperties(properties);
    Configuration.setConfiguration(null);
  }

  private static Path file(String name, String content) throws Exception {
    return Files.writeString(folder.resolve(name), content);
  }

  private static String sections(Path keysOfClients) {
    return LOGIN.formatted("Server", keys, "zookeeper/" + host)
        + LOGIN.formatted("Bookie", keys, "bookkeeper/" + host)
        + LOGIN.formatted("Client", keysOfClients, "gateway")
        + LOGIN.formatted("BookKeeper", keysOfClients, "gateway")
        + LOGIN.formatted("Other", keysOfClients, "other");
  }

  /** A key of the right name and the wrong password. */
  private static Path keysOfAnotherCenter() throws Exception {
    Path found = folder.resolve("other-keys");
    if (!Files.exists(found)) {
      SimpleKdcServer another = new SimpleKdcServer();
      another.setWorkDir(Files.createDirectory(folder.resolve("another")).toFile());
      another.setKdcRealm(REALM);
      another.setKdcHost("127.0.0.1");
      another.init();
      another.createAndExportPrincipals(found.toFile(), "gateway", "unknown");
    }
    return found;
  }

  private static String broker(String... more) {
    return "metadataStoreUrl=zk:"
        + servers
        + "\nbookkeeper_zkEnableSecurity=true\n"
        + "bookkeeperClientAuthenticationPlugin="
        + "org.apache.bookkeeper.sasl.SASLClientProviderFactory\n"
        + String.join("\n", more);
  }

  private static Gateway gateway(Path logins, String... more) throws Exception {
    List<Flag> known = new ArrayList<>(Systems.FLAGS);
    known.addAll(GatewaySettings.FLAGS);
    known.add(Flags.CONFIG);
    Flags flags =
        Flags.parse(
            known,
            "--broker-conf",
            file("broker.conf", broker(more)).toString(),
            "--jaas-file",
            logins.toString(),
            "--metrics-port",
            "-1",
            "--warm-up-entries",
            "4",
            "--zookeeper-timeout-ms",
            "4000");
    return Gateway.start(GatewaySettings.of(flags), Systems.of(flags));
  }

  private static void refused(Path logins, List<String> words, String... more) {
    String said = assertThrows(Exception.class, () -> gateway(logins, more)).getMessage();
    words.forEach(word -> assertTrue(said.contains(word), word + " is not in: " + said));
  }

  @Test
  void aBrokerConfAndAJaasFileAreEnough() throws Exception {
    Gateway gateway = gateway(jaas);
    ManagedChannel channel =
        NettyChannelBuilder.forTarget(gateway.address()).usePlaintext().build();
    try {
      Asking asking = Asking.over(channel).role("writer");
      Map<String, byte[]> ours = Map.of("application", "cursorkeeper".getBytes());
      long ledger = asking.create(ours);
      Asking.Stream stream = asking.append();
      for (int entry = 0; entry < 3; entry++) {
        stream.send(ledger, entry);
        assertEquals(Asking.YES, stream.heard());
      }
      stream.end();
      assertEquals(Asking.YES, asking.answer("Fence", ledger, ours));
      assertEquals(Asking.YES, asking.answer("Read", ledger, ours));
      // What it made is its principal's alone.
      try (ZooKeeper session = new ZooKeeper(servers, 10_000, event -> {})) {
        assertEquals(
            List.of(new ACL(ZooDefs.Perms.ALL, new Id("sasl", "gateway@" + REALM))),
            session.getACL("/ledgers/idgen", null));
      }
    } finally {
      channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
      gateway.stop();
    }
  }

  @Test
  void aKeytabThatDoesNotFitIsNamedWithItsRemedy() throws Exception {
    Path wrong = file("wrong", sections(keysOfAnotherCenter()));
    refused(
        wrong,
        List.of(
            "--jaas-file " + wrong + ", section BookKeeper, principal gateway@" + REALM,
            "write the keytab again"));
    Path missing = file("missing", sections(folder.resolve("nowhere")));
    refused(missing, List.of("keyTab " + folder.resolve("nowhere"), "there is no such file"));
    Path another =
        file("nobody", sections(keys).replace("principal=\"gateway@", "principal=\"nobody@"));
    refused(another, List.of("principal nobody@" + REALM, "holds no key of this principal"));
    Path unknown =
        file(
            "unknown",
            sections(keysOfAnotherCenter())
                .replace("principal=\"gateway@", "principal=\"unknown@"));
    refused(unknown, List.of("principal unknown@" + REALM, "create this principal"));
  }

  @Test
  void aServiceThatIsNotKnownIsNamedWithItsRemedy() throws Exception {
    System.setProperty("bookkeeper.sasl.servicename", "bookie");
    refused(jaas, List.of("there is no ticket for bookie/" + host, "bookkeeper.sasl.servicename"));
    System.clearProperty("bookkeeper.sasl.servicename");
    Path conf = file("zookeeper.conf", "zookeeper.sasl.client.username=keeper\n");
    refused(
        jaas,
        List.of(
            "ZooKeeper at " + servers,
            "there is no ticket for keeper/" + host,
            "zookeeper.sasl.client.username"),
        "metadataStoreConfigPath=" + conf);
  }

  @Test
  void aPrincipalThatBookiesDoNotLetInIsNamed() throws Exception {
    refused(
        jaas,
        List.of("refuses principal other@" + REALM, "saslJaasClientAllowedIds"),
        "bookkeeperClientAuthenticationParametersName=saslJaasClientSectionName",
        "bookkeeperClientAuthenticationParameters=Other");
  }
}
