package io.cursorkeeper.gateway.systems;

import io.netty.buffer.ByteBufAllocator;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.util.InsecureTrustManagerFactory;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.common.ClientX509Util;
import org.apache.zookeeper.common.X509Util;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * How the gateway's sessions prove themselves to ZooKeeper: TLS and a user. BookKeeper's client
 * makes its sessions from the JVM's system properties and knows no other way, so this sets them,
 * once and for the whole process.
 */
final class ZooKeeperSecurity {
  private static final Logger LOG = LoggerFactory.getLogger(ZooKeeperSecurity.class);
  private static final String FIPS = X509Util.FIPS_MODE_PROPERTY;
  private static final String NETTY_SOCKET = "org.apache.zookeeper.ClientCnxnSocketNetty";
  private static final long TRIAL_MAX_MS = 4_000;
  private static final byte[] RUOK = "ruok".getBytes(StandardCharsets.US_ASCII);
  private static final List<String> TAKEN = List.of("zookeeper.", "jute.");

  /** Who said that there is TLS, as messages name it. */
  private final String tlsSaid;

  private final String certificateSaid;
  private final String trustSaid;
  private final Optional<Secret> user;
  private final Logins logins;

  private ZooKeeperSecurity(
      String tlsSaid,
      String certificateSaid,
      String trustSaid,
      Optional<Secret> user,
      Logins logins) {
    this.tlsSaid = tlsSaid;
    this.certificateSaid = certificateSaid;
    this.trustSaid = trustSaid;
    this.user = user;
    this.logins = logins;
  }

  /** The PEM files of the gateway's own TLS; empty: it has none. */
  record Pem(String certificate, String key, String trustCerts, int refreshSeconds) {}

  /** What sessions are told; {@code said} is how messages name it. */
  record Conf(String said, Map<String, String> lines) {}

  /**
   * Sets the properties, after a look at what they name. Throws IllegalArgumentException with a
   * message for people.
   *
   * @param confs later ones win
   * @param pem empty: the files of the properties, if any
   */
  static ZooKeeperSecurity install(
      List<Conf> confs, Optional<Pem> pem, Optional<Secret> user, Logins logins) {
    String tlsSaid = "-D" + ZKClientConfig.SECURE_CLIENT;
    String filesSaid = "";
    for (Conf conf : confs) {
      for (Map.Entry<String, String> line : conf.lines().entrySet()) {
        if (TAKEN.stream().anyMatch(line.getKey()::startsWith)) {
          System.setProperty(line.getKey(), line.getValue());
          filesSaid = conf.said() + ": ";
          if (line.getKey().equals(ZKClientConfig.SECURE_CLIENT)) {
            tlsSaid = conf.said() + ": " + line.getKey();
          }
        }
      }
    }
    try (ClientX509Util names = new ClientX509Util()) {
      String certificateSaid = filesSaid + names.getSslKeystoreLocationProperty();
      String trustSaid = filesSaid + names.getSslTruststoreLocationProperty();
      if (pem.isPresent()) {
        tlsSaid = "--" + Systems.ZOOKEEPER_TLS;
        certificateSaid = "--tls-certificate-file-path " + pem.get().certificate();
        trustSaid = "--tls-trust-certs-file-path " + pem.get().trustCerts();
        ofPem(names, pem.get());
      }
      if (isSecure() && System.getProperty(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET) == null) {
        // The other kind of socket has no TLS, and ends the client where it is asked for it.
        System.setProperty(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, NETTY_SOCKET);
      }
      ZooKeeperSecurity made =
          new ZooKeeperSecurity(tlsSaid, certificateSaid, trustSaid, user, logins);
      if (System.getProperty(FIPS) == null && made.logsInByPassword()) {
        // ZooKeeper's client does not log in with a password else, without an error.
        System.setProperty(FIPS, "false");
      }
      if (isSecure()) {
        made.checkFiles(names);
      }
      return made;
    }
  }

  private static void ofPem(ClientX509Util names, Pem pem) {
    System.setProperty(ZKClientConfig.SECURE_CLIENT, "true");
    if (!pem.certificate().isEmpty()) {
      PemPair pair = PemPair.of(pem.certificate(), pem.key(), pem.refreshSeconds());
      System.setProperty(names.getSslKeystoreLocationProperty(), pair.file());
      System.setProperty(names.getSslKeystoreTypeProperty(), "PEM");
    }
    if (!pem.trustCerts().isEmpty()) {
      System.setProperty(names.getSslTruststoreLocationProperty(), pem.trustCerts());
      System.setProperty(names.getSslTruststoreTypeProperty(), "PEM");
    }
  }

  /** Whether it is somebody to ZooKeeper, for which a certificate will do. */
  boolean hasIdentity() {
    try (ClientX509Util names = new ClientX509Util()) {
      return hasUser()
          || isSecure()
              && !System.getProperty(names.getSslKeystoreLocationProperty(), "").isEmpty();
    }
  }

  private static boolean isSecure() {
    return Boolean.getBoolean(ZKClientConfig.SECURE_CLIENT);
  }

  private boolean logsInByPassword() {
    return logins.isPassword(section());
  }

  static String section() {
    return System.getProperty(
        ZKClientConfig.LOGIN_CONTEXT_NAME_KEY, ZKClientConfig.LOGIN_CONTEXT_NAME_KEY_DEFAULT);
  }

  private boolean hasKerberos() {
    return user.isEmpty()
        && logins.isKerberos(section())
        && new ZKClientConfig().isSaslClientEnabled();
  }

  /** Throws IllegalArgumentException with a message for people. */
  void checkLogin() {
    if (hasKerberos()) {
      Kerberos.check(logins, section());
    }
  }

  /** Why there is no ticket for a server, whose name is as ZooKeeper's client has it. */
  private String whyNoTicket(InetSocketAddress server) {
    String principal = System.getProperty(ZKClientConfig.ZOOKEEPER_SERVER_PRINCIPAL, "");
    if (!principal.isEmpty()) {
      String[] parts = principal.replaceFirst("@.*", "").split("/", 2);
      return parts.length < 2 ? "" : Kerberos.whyNoTicket(logins, section(), parts[0], parts[1]);
    }
    boolean canonical =
        Boolean.parseBoolean(
            System.getProperty(ZKClientConfig.ZK_SASL_CLIENT_CANONICALIZE_HOSTNAME, "true"));
    InetSocketAddress found = new InetSocketAddress(server.getHostString(), server.getPort());
    return Kerberos.whyNoTicket(
        logins,
        section(),
        System.getProperty(
            ZKClientConfig.ZK_SASL_CLIENT_USERNAME, ZKClientConfig.ZK_SASL_CLIENT_USERNAME_DEFAULT),
        canonical && !found.isUnresolved()
            ? found.getAddress().getCanonicalHostName()
            : server.getHostString());
  }

  private boolean hasUser() {
    return user.isPresent() || logins.has(section());
  }

  private String userSaid() {
    return user.map(Secret::said)
        .orElseGet(() -> logins.user(section()) + " of JAAS section " + section());
  }

  private void checkFiles(ClientX509Util names) {
    store(
        names,
        certificateSaid,
        names.getSslKeystoreLocationProperty(),
        names.getSslKeystorePasswdProperty(),
        names.getSslKeystorePasswdPathProperty(),
        names.getSslKeystoreTypeProperty());
    store(
        names,
        trustSaid,
        names.getSslTruststoreLocationProperty(),
        names.getSslTruststorePasswdProperty(),
        names.getSslTruststorePasswdPathProperty(),
        names.getSslTruststoreTypeProperty());
    try {
      names.createNettySslContextForClient(new ZKClientConfig());
    } catch (Exception wrong) {
      throw Failures.wrong(
          tlsSaid,
          Failures.text(Failures.innermost(wrong)),
          "correct the settings of TLS with ZooKeeper");
    }
  }

  private static void store(
      ClientX509Util names,
      String said,
      String location,
      String password,
      String passwordFile,
      String type) {
    String file = System.getProperty(location, "");
    if (file.isEmpty()) {
      return;
    }
    String whole = said.endsWith(location) ? said + " = " + file : said;
    KeyFiles.requireReadable(whole, file);
    String secrets = System.getProperty(passwordFile, "");
    if (!secrets.isEmpty()) {
      KeyFiles.requireReadable(
          said.replace(location, "") + passwordFile + " = " + secrets, secrets);
    }
    ZKClientConfig config = new ZKClientConfig();
    try {
      boolean isKey = location.equals(names.getSslKeystoreLocationProperty());
      String secret = names.getPasswordFromConfigPropertyOrFile(config, password, passwordFile);
      String kind = config.getProperty(type);
      if (isKey) {
        KeyFiles.requireInTime(whole, X509Util.loadKeyStore(file, secret, kind));
      } else {
        X509Util.loadTrustStore(file, secret, kind);
      }
    } catch (IOException | GeneralSecurityException | RuntimeException wrong) {
      if (wrong instanceof IllegalArgumentException told && told.getMessage().startsWith(whole)) {
        throw told;
      }
      throw Failures.wrong(
          whole,
          Failures.text(Failures.innermost(wrong)),
          "name a store of keys that ZooKeeper's client can read, its password and its type");
    }
  }

  /** Why there is no session: a sentence for the operator; empty: nothing special was found. */
  String whyNoSession(List<InetSocketAddress> servers, int sessionMs) {
    List<String> found =
        servers.parallelStream()
            .map(
                server -> {
                  String why = isSecure() ? whyNoTls(server) : whyPlainFails(server);
                  return why.isEmpty() ? why : "ZooKeeper at " + named(server) + " " + why;
                })
            .filter(why -> !why.isEmpty())
            .toList();
    if (!found.isEmpty()) {
      return String.join("; ", found);
    }
    if (hasKerberos()) {
      for (InetSocketAddress server : servers) {
        String why = whyNoTicket(server);
        if (!why.isEmpty()) {
          return "ZooKeeper at " + named(server) + " cannot be asked: " + why;
        }
      }
      return isRefused(servers, sessionMs)
          ? "ZooKeeper refuses "
              + userSaid()
              + ": has it a login with Kerberos, and its key of today in its keytab?"
          : "";
    }
    if (hasUser() && logins.has(section()) && isRefused(servers, sessionMs)) {
      return "ZooKeeper refuses " + userSaid() + ": does it know this user, with this password?";
    }
    return "";
  }

  private String whyNoTls(InetSocketAddress server) {
    TlsTrial.Outcome came =
        new TlsTrial(
                new byte[0],
                channel ->
                    new ClientX509Util()
                        .createNettySslContextForClient(new ZKClientConfig())
                        .newHandler(channel.alloc(), server.getHostString(), server.getPort()),
                RUOK)
            .run(server, TRIAL_MAX_MS);
    TlsTrial.End end =
        came.end() == TlsTrial.End.CLOSED && speaksPlainText(server)
            ? TlsTrial.End.NO_TLS
            : came.end();
    return switch (end) {
      case FINE -> "";
      case NOBODY_LISTENS -> "cannot be reached (" + came.detail() + ")";
      case NO_TLS ->
          "does not speak TLS there, and "
              + tlsSaid
              + " asks for it: name its secureClientPort, or do without";
      case NOT_BELIEVED ->
          "shows a certificate that is not believed ("
              + came.detail()
              + "): "
              + trustSaid
              + " must hold its authority";
      case OTHER_NAME ->
          "shows a certificate for other names ("
              + came.detail()
              + "): dial it by a name that is in its certificate";
      case REFUSES_US ->
          "refuses this gateway's certificate ("
              + came.detail()
              + "): is "
              + certificateSaid
              + " of an authority that it believes?";
      case CLOSED ->
          "ends the connection in the handshake ("
              + (came.detail().isEmpty() ? "without a word" : came.detail())
              + "): does it speak TLS there, and does it believe "
              + certificateSaid
              + "?";
      case SILENT -> "does not answer";
    };
  }

  /** Whether a word is answered, and not in TLS. */
  private static boolean speaksPlainText(InetSocketAddress server) {
    try (Socket socket = new Socket()) {
      socket.connect(
          new InetSocketAddress(server.getHostString(), server.getPort()), (int) TRIAL_MAX_MS);
      socket.setSoTimeout((int) TRIAL_MAX_MS);
      socket.getOutputStream().write(RUOK);
      int first = socket.getInputStream().read();
      return first >= ' ';
    } catch (IOException silent) {
      return false;
    }
  }

  private static String whyPlainFails(InetSocketAddress server) {
    TlsTrial.Outcome came =
        new TlsTrial(
                new byte[0],
                channel ->
                    SslContextBuilder.forClient()
                        .trustManager(InsecureTrustManagerFactory.INSTANCE)
                        .endpointIdentificationAlgorithm(null)
                        .build()
                        .newHandler(ByteBufAllocator.DEFAULT),
                RUOK)
            .run(server, TRIAL_MAX_MS);
    return switch (came.end()) {
      // It agreed upon TLS, or found fault with the certificate that it was not shown.
      case FINE, REFUSES_US ->
          "expects TLS: set --"
              + Systems.ZOOKEEPER_TLS
              + " (a broker: zookeeper.client.secure=true in metadataStoreConfigPath), or name its"
              + " clientPort";
      default -> "";
    };
  }

  private static boolean isRefused(List<InetSocketAddress> servers, int sessionMs) {
    CountDownLatch decided = new CountDownLatch(1);
    AtomicReference<KeeperState> state = new AtomicReference<>();
    try (ZooKeeper session =
        new ZooKeeper(
            connectString(servers),
            sessionMs,
            event -> {
              // Being connected is said before the login is answered.
              if (event.getState() == KeeperState.AuthFailed) {
                state.set(event.getState());
                decided.countDown();
              }
            })) {
      return decided.await(TRIAL_MAX_MS, TimeUnit.MILLISECONDS)
          || session.getState() == ZooKeeper.States.AUTH_FAILED;
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
      return false;
    } catch (IOException unexpected) {
      LOG.debug("a session for a trial failed", unexpected);
      return false;
    }
  }

  /**
   * Whether the user may make ledgers: who gives a wrong password with the scheme digest is not
   * refused, but is somebody else. Throws IllegalStateException with a message for people.
   */
  void requireRights(List<InetSocketAddress> servers, String root, int sessionMs) {
    if (!hasUser()) {
      return;
    }
    CountDownLatch connected = new CountDownLatch(1);
    try (ZooKeeper session =
        new ZooKeeper(
            connectString(servers),
            sessionMs,
            event -> {
              if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
              }
            })) {
      addUser(session);
      if (!connected.await(sessionMs, TimeUnit.MILLISECONDS)) {
        return;
      }
      // As BookKeeper's client takes the number of a new ledger.
      String made =
          session.create(
              root + "/idgen/ID-",
              new byte[0],
              ZooDefs.Ids.OPEN_ACL_UNSAFE,
              CreateMode.EPHEMERAL_SEQUENTIAL);
      session.delete(made, -1);
    } catch (KeeperException.NoAuthException refused) {
      throw new IllegalStateException(noRights(root), refused);
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
    } catch (KeeperException | IOException other) {
      // Nobody has made a ledger yet, or ZooKeeper went away: not about rights.
      LOG.debug("the user's rights could not be tried", other);
    }
  }

  /** What somebody hears who may not read or write below a node. */
  String noRights(String root) {
    return "ZooKeeper lets "
        + (hasUser() ? userSaid() : "nobody without a user")
        + " do nothing below "
        + root
        + ": is it the user, with the password, that bookies and brokers have there?";
  }

  private void addUser(ZooKeeper session) {
    digest().ifPresent(who -> session.addAuthInfo(Secret.DIGEST, who));
  }

  /** What a session says of the scheme digest; empty: nothing. */
  Optional<byte[]> digest() {
    return user.filter(who -> !who.isSasl())
        .map(who -> (who.user() + ":" + who.password()).getBytes(StandardCharsets.UTF_8));
  }

  private static String connectString(List<InetSocketAddress> servers) {
    return String.join(",", servers.stream().map(ZooKeeperSecurity::named).toList());
  }

  private static String named(InetSocketAddress server) {
    return server.getHostString() + ":" + server.getPort();
  }
}
