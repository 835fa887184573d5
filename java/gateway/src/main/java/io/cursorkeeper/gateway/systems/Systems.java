package io.cursorkeeper.gateway.systems;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.systems.ClientSettings.Given;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookieAnswers;
import org.apache.bookkeeper.client.DefaultBookieAddressResolver;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.discover.RegistrationClient;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.OperationType;
import org.apache.bookkeeper.proto.ProtocolVersion;
import org.apache.bookkeeper.proto.Request;
import org.apache.bookkeeper.sasl.SASLClientProviderFactory;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ConnectStringParser;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The ZooKeeper and the bookies of an operator: where they are, and how the gateway proves itself
 * to them. What is wrong with that ends the start with the setting and the remedy.
 */
public final class Systems {
  private static final Logger LOG = LoggerFactory.getLogger(Systems.class);
  private static final String URI = "metadata-service-uri";
  private static final String BROKER_CONF = "broker-conf";
  private static final String BOOKKEEPER_CONF = "bookkeeper-conf";
  private static final String BOOKKEEPER_AUTH = "bookkeeper-auth-file";
  private static final String ZOOKEEPER_CONF = "zookeeper-conf";
  static final String ZOOKEEPER_TLS = "zookeeper-tls-enabled";
  private static final String ZOOKEEPER_AUTH = "zookeeper-auth-file";
  private static final String ZOOKEEPER_ACL = "zookeeper-acl";
  private static final String JAAS = "jaas-file";

  /** Flags of the command, beside those of the gateway. */
  public static final List<Flag> FLAGS =
      List.of(
          Flag.text(URI, "", "zk+hierarchical://HOST:PORT/ledgers; empty: what --broker-conf says"),
          Flag.text(
              BROKER_CONF,
              "",
              "a Pulsar broker.conf: its metadata store, TLS and logins to bookies, and, with"
                  + " --identities-file, how tokens are signed"),
          Flag.text(
              BOOKKEEPER_CONF,
              "",
              "settings of BookKeeper's client, by its names; over the former"),
          Flag.text(
              BOOKKEEPER_AUTH, "", "file with sasl:USER:PASSWORD, the gateway's user at bookies"),
          Flag.text(
              ZOOKEEPER_CONF,
              "",
              "settings of ZooKeeper's client, by its names (zookeeper.ssl...)"),
          Flag.yesNo(ZOOKEEPER_TLS, "dial ZooKeeper with TLS, with the files of --tls-..."),
          Flag.text(
              ZOOKEEPER_AUTH,
              "",
              "file with digest:USER:PASSWORD or sasl:USER:PASSWORD, the user at ZooKeeper"),
          Flag.text(
              ZOOKEEPER_ACL,
              "open",
              "who may touch what is made in ZooKeeper: open, everybody; creator, this user"),
          Flag.text(JAAS, "", "JAAS file with the sections Client (ZooKeeper) and BookKeeper"));

  private static final int BOOKIES_ASKED_MAX = 3;

  /** Whoever answers does so in milliseconds; who is away should not hold up a start for long. */
  private static final long PLAIN_ANSWER_MAX_MS = 1_000;

  /** BookKeeper's client itself gives a bookie ten seconds for TLS. */
  private static final long SECURED_ANSWER_MAX_MS = 12_000;

  private static final long TRIAL_MAX_MS = 4_000;

  private final String metadataServiceUri;
  private final ClientSettings settings;

  /** What BookKeeper's client was told of them, by their names. */
  private final Map<String, Object> configured = new LinkedHashMap<>();

  private final BookieSecurity bookies;
  private final ZooKeeperSecurity zooKeeper;

  private Systems(
      String metadataServiceUri,
      ClientSettings settings,
      Logins logins,
      ZooKeeperSecurity zooKeeper) {
    this.metadataServiceUri = metadataServiceUri;
    this.settings = settings;
    this.bookies = new BookieSecurity(settings, logins);
    this.zooKeeper = zooKeeper;
  }

  /** Systems that ask nobody who he is. */
  public static Systems plain(String metadataServiceUri) {
    Logins nobody = Logins.install("", Map.of());
    return new Systems(
        metadataServiceUri,
        new ClientSettings(),
        nobody,
        ZooKeeperSecurity.install(List.of(), Optional.empty(), Optional.empty(), nobody));
  }

  /** Of a command line; throws IllegalArgumentException with a message for people. */
  public static Systems of(Flags flags) {
    Optional<BrokerConf> broker =
        Optional.of(flags.text(BROKER_CONF)).filter(file -> !file.isEmpty()).map(BrokerConf::read);
    String uri = flags.text(URI);
    if (uri.isEmpty()) {
      uri = broker.map(BrokerConf::metadataServiceUri).orElse("");
    }
    if (uri.isEmpty()) {
      throw new IllegalArgumentException(
          broker.isPresent()
              ? flags.text(BROKER_CONF)
                  + " names no metadata store: set metadataStoreUrl in it, or give --"
                  + URI
              : "--"
                  + URI
                  + " is missing: zk+hierarchical://HOST:PORT/ledgers, or --"
                  + BROKER_CONF);
    }
    ClientSettings settings = new ClientSettings();
    broker.ifPresent(conf -> settings.add(conf.clientSettings()));
    ofFile(flags.text(BOOKKEEPER_CONF)).forEach((name, given) -> settings.add(Map.of(name, given)));
    settings.renewTlsFiles();
    if (creatorOnly(flags)) {
      settings.add(ClientSettings.ZOOKEEPER_ACLS, "--" + ZOOKEEPER_ACL, "true");
    }
    Optional<Secret> user = secret(flags, ZOOKEEPER_AUTH, true);
    Optional<Secret> atBookies = secret(flags, BOOKKEEPER_AUTH, false);
    Map<String, Secret> sections = new HashMap<>();
    user.filter(Secret::isSasl).ifPresent(who -> sections.put(ZooKeeperSecurity.section(), who));
    atBookies.ifPresent(
        who -> {
          if (!settings.has(ClientSettings.AUTH_FACTORY)) {
            settings.add(
                ClientSettings.AUTH_FACTORY,
                "--" + BOOKKEEPER_AUTH,
                SASLClientProviderFactory.class.getName());
          }
          String section = settings.value(ClientSettings.JAAS_SECTION);
          sections.put(section.isEmpty() ? ClientSettings.JAAS_SECTION_DEFAULT : section, who);
        });
    Logins logins = Logins.install(flags.text(JAAS), sections);
    ZooKeeperSecurity zooKeeper =
        ZooKeeperSecurity.install(confs(flags, broker), pem(flags), user, logins);
    Systems systems = new Systems(uri, settings, logins, zooKeeper);
    systems.bookies.check();
    zooKeeper.checkLogin();
    if (settings.value(ClientSettings.ZOOKEEPER_ACLS).equals("true") && !zooKeeper.hasIdentity()) {
      throw Failures.wrong(
          settings.said(ClientSettings.ZOOKEEPER_ACLS),
          "the gateway is nobody to ZooKeeper",
          "give --" + ZOOKEEPER_AUTH + ", a JAAS section Client, or a certificate of its own");
    }
    return systems;
  }

  /**
   * The flags, with what `broker.conf` says of signed tokens, where identities say what their
   * subjects may do and no flag says how tokens are signed. Throws IllegalArgumentException with a
   * message for people.
   */
  public static Flags withBrokersTokens(Flags flags) {
    String file = flags.text(BROKER_CONF);
    boolean isTold = BrokerConf.flagsOfSignedTokens().stream().anyMatch(flags::isGiven);
    return file.isEmpty() || isTold || flags.text("identities-file").isEmpty()
        ? flags
        : flags.with(BrokerConf.read(file).signedTokens(), file);
  }

  private static boolean creatorOnly(Flags flags) {
    String acl = flags.text(ZOOKEEPER_ACL);
    if (!acl.equals("open") && !acl.equals("creator")) {
      throw new IllegalArgumentException(
          "--" + ZOOKEEPER_ACL + " is " + acl + ", allowed is open or creator");
    }
    return acl.equals("creator");
  }

  private static Optional<Secret> secret(Flags flags, String flag, boolean takesDigest) {
    String file = flags.text(flag);
    return file.isEmpty() ? Optional.empty() : Optional.of(Secret.read(flag, file, takesDigest));
  }

  private static Map<String, Given> ofFile(String file) {
    Map<String, Given> found = new LinkedHashMap<>();
    if (!file.isEmpty()) {
      SettingsFile.lines("--" + BOOKKEEPER_CONF, file)
          .forEach((name, value) -> found.put(name, new Given(file + ": " + name, value)));
    }
    return found;
  }

  private static List<ZooKeeperSecurity.Conf> confs(Flags flags, Optional<BrokerConf> broker) {
    List<ZooKeeperSecurity.Conf> confs = new ArrayList<>();
    broker
        .map(BrokerConf::zooKeeperConf)
        .filter(given -> !given.value().isEmpty())
        .ifPresent(
            given ->
                confs.add(
                    new ZooKeeperSecurity.Conf(
                        given.value(), SettingsFile.lines(given.by() + " =", given.value()))));
    String own = flags.text(ZOOKEEPER_CONF);
    if (!own.isEmpty()) {
      confs.add(new ZooKeeperSecurity.Conf(own, SettingsFile.lines("--" + ZOOKEEPER_CONF, own)));
    }
    return confs;
  }

  private static Optional<ZooKeeperSecurity.Pem> pem(Flags flags) {
    if (!flags.yes(ZOOKEEPER_TLS)) {
      return Optional.empty();
    }
    return Optional.of(
        new ZooKeeperSecurity.Pem(
            flags.text("tls-certificate-file-path"),
            flags.text("tls-key-file-path"),
            flags.text("tls-trust-certs-file-path"),
            flags.integer("tls-cert-refresh-check-duration-sec", 1, 1_000_000_000)));
  }

  /** Where the metadata of ledgers are. */
  public String metadataServiceUri() {
    return metadataServiceUri;
  }

  /**
   * Says to BookKeeper's client what the operator's files say; the gateway's own comes after it.
   */
  public void configure(ClientConfiguration config) {
    if (bookies.hasTls()) {
      // There is no native library of TLS in this jar; asked for it, BookKeeper warns at every
      // start.
      config.setProperty(ClientSettings.TLS_PROVIDER, "JDK");
    }
    settings.configure(config);
    settings.all().keySet().forEach(name -> configured.put(name, config.getProperty(name)));
    config.setMetadataServiceUri(metadataServiceUri);
  }

  /** Tells the log which settings of the operator's files the gateway has its own values for. */
  public void tellWhatDoesNotCount(ClientConfiguration config) {
    configured.forEach(
        (name, said) -> {
          Object counts = config.getProperty(name);
          if (!Objects.equals(String.valueOf(said), String.valueOf(counts))) {
            LOG.warn("{} does not count: the gateway's own is {}", settings.said(name), counts);
          }
        });
  }

  /**
   * Sessions that say who they are, where BookKeeper's own cannot; empty: let BookKeeper make them.
   */
  public Optional<ZooKeeper> sessions(ClientConfiguration config) throws Exception {
    Optional<byte[]> who = zooKeeper.digest();
    return who.isEmpty()
        ? Optional.empty()
        : Optional.of(
            DigestSessions.connect(
                servers().replace(';', ','),
                config.getZkTimeout(),
                who.get(),
                config.getZkRetryBackoffMaxRetries()));
  }

  /** Why there is no client, in words for the operator; empty: nothing special was found. */
  public String whyNoClient(Throwable failure, int sessionMs) {
    if (Failures.isOf(failure, KeeperException.NoAuthException.class)) {
      return zooKeeper.noRights(root());
    }
    try {
      return zooKeeper.whyNoSession(addresses(), sessionMs);
    } catch (RuntimeException unexpected) {
      LOG.debug("looking for the cause failed", unexpected);
      return "";
    }
  }

  /**
   * Throws IllegalStateException, with the likely cause, where ZooKeeper or all bookies that are up
   * refuse this gateway. Bookies that are away are no reason.
   */
  public void requireWelcome(BookKeeper client, int sessionMs) throws Exception {
    zooKeeper.requireRights(addresses(), root(), sessionMs);
    RegistrationClient registrations = client.getMetadataClientDriver().getRegistrationClient();
    List<BookieId> some;
    try {
      some =
          registrations
              .getWritableBookies()
              .get(sessionMs, TimeUnit.MILLISECONDS)
              .getValue()
              .stream()
              .limit(BOOKIES_ASKED_MAX)
              .toList();
    } catch (TimeoutException | ExecutionException away) {
      // Health tells.
      return;
    }
    Map<BookieId, CompletableFuture<Integer>> asked = new LinkedHashMap<>();
    some.forEach(bookie -> asked.put(bookie, BookieAnswers.ask(client, bookie)));
    boolean isSecured = bookies.hasTls() || bookies.hasLogin();
    long until =
        System.nanoTime()
            + TimeUnit.MILLISECONDS.toNanos(
                isSecured ? SECURED_ANSWER_MAX_MS : PLAIN_ANSWER_MAX_MS);
    String refused = "";
    for (Map.Entry<BookieId, CompletableFuture<Integer>> one : asked.entrySet()) {
      int code;
      try {
        code = one.getValue().get(Math.max(1, until - System.nanoTime()), TimeUnit.NANOSECONDS);
      } catch (TimeoutException | ExecutionException away) {
        continue;
      }
      if (code == BKException.Code.OK) {
        return;
      }
      String why = whyNot(one.getKey(), code, registrations);
      refused = why.isEmpty() ? refused : why;
    }
    if (!refused.isEmpty()) {
      throw new IllegalStateException(refused);
    }
  }

  private String whyNot(BookieId bookie, int code, RegistrationClient registrations) {
    boolean isAbout =
        code == BKException.Code.UnauthorizedAccessException
            || code == BKException.Code.SecurityException;
    String name = "bookie " + bookie + " ";
    if (bookies.hasTls()) {
      TlsTrial.Outcome came = trial(bookie, registrations);
      String why = whyNoTls(came);
      if (!why.isEmpty()) {
        return name + why;
      }
      // Who refuses a password ends the connection; BookKeeper's client then knows no more than
      // that there is none.
      isAbout |= bookies.hasLogin() && came.end() == TlsTrial.End.FINE;
    } else if (bookies.hasLogin()) {
      isAbout |= isThere(bookie, registrations);
    }
    if (!isAbout) {
      return "";
    }
    if (bookies.hasKerberos()) {
      String why =
          bookies.whyNoTicket(
              new DefaultBookieAddressResolver(registrations).resolve(bookie).getSocketAddress());
      return name
          + (why.isEmpty()
              ? "refuses "
                  + bookies.loginSaid()
                  + ": is it of its saslJaasClientAllowedIds, and has it its key of today in its"
                  + " keytab?"
              : "cannot be asked: " + why);
    }
    return bookies.hasLogin()
        ? name + "refuses " + bookies.loginSaid() + ": does it know this user, with this password?"
        : name
            + "asks who this gateway is: set bookkeeperClientAuthenticationPlugin in broker.conf,"
            + " or give --"
            + BOOKKEEPER_AUTH;
  }

  private static boolean isThere(BookieId bookie, RegistrationClient registrations) {
    try (Socket socket = new Socket()) {
      var address = new DefaultBookieAddressResolver(registrations).resolve(bookie);
      socket.connect(
          new InetSocketAddress(address.getHostName(), address.getPort()), (int) TRIAL_MAX_MS);
      return true;
    } catch (IOException | RuntimeException away) {
      return false;
    }
  }

  private TlsTrial.Outcome trial(BookieId bookie, RegistrationClient registrations) {
    try {
      var address = new DefaultBookieAddressResolver(registrations).resolve(bookie);
      InetSocketAddress socket = new InetSocketAddress(address.getHostName(), address.getPort());
      return new TlsTrial(
              wishForTls(),
              channel -> bookies.handler(address.getHostName(), address.getPort()),
              question())
          .run(socket, TRIAL_MAX_MS);
    } catch (RuntimeException unknown) {
      return TlsTrial.of(unknown);
    }
  }

  private static byte[] wishForTls() {
    Request request = new Request();
    request
        .setHeader()
        .setVersion(ProtocolVersion.VERSION_THREE)
        .setOperation(OperationType.START_TLS)
        .setTxnId(1);
    request.setStartTLSRequest();
    return framed(request);
  }

  /** One that any bookie answers, be it with a refusal. */
  private static byte[] question() {
    Request request = new Request();
    request
        .setHeader()
        .setVersion(ProtocolVersion.VERSION_THREE)
        .setOperation(OperationType.GET_BOOKIE_INFO)
        .setTxnId(2);
    request.setGetBookieInfoRequest().setRequested(2);
    return framed(request);
  }

  private static byte[] framed(Request request) {
    byte[] bytes = request.toByteArray();
    return ByteBuffer.allocate(Integer.BYTES + bytes.length)
        .putInt(bytes.length)
        .put(bytes)
        .array();
  }

  private String whyNoTls(TlsTrial.Outcome came) {
    return switch (came.end()) {
      case FINE, NOBODY_LISTENS, SILENT -> "";
      case NO_TLS ->
          "does not speak TLS: set it up there (tlsProviderFactoryClass), or set"
              + " bookkeeperTLSClientAuthentication=false in broker.conf";
      case NOT_BELIEVED ->
          "shows a certificate that is not believed ("
              + came.detail()
              + "): "
              + bookies.trustSaid()
              + " must hold its authority";
      case OTHER_NAME ->
          "shows a certificate for other names ("
              + came.detail()
              + "): its certificate must have the name that it is registered with";
      case REFUSES_US ->
          "refuses this gateway's certificate ("
              + came.detail()
              + "): is "
              + bookies.certificateSaid()
              + " of an authority that it believes?";
      case CLOSED ->
          "ends the connection in the handshake: does it believe "
              + bookies.certificateSaid()
              + "?";
    };
  }

  private String servers() {
    return java.net.URI.create(metadataServiceUri.replace(';', ',')).getAuthority();
  }

  private String root() {
    return java.net.URI.create(metadataServiceUri.replace(';', ',')).getPath();
  }

  private List<InetSocketAddress> addresses() {
    return new ConnectStringParser(servers()).getServerAddresses();
  }
}
