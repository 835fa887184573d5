package io.cursorkeeper.pulsar;

import io.cursorkeeper.client.LinkTls;
import io.cursorkeeper.client.UnixAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;

/**
 * The plugin's lines of broker.conf. Made by {@link #read}, which refuses what it does not know.
 *
 * @param mode KEEP: the keeper holds the cursors. SHADOW: Pulsar does, and the keeper has copies,
 *     which are compared. OFF: the plugin does nothing
 * @param address {@code host:port} of the daemon's ack stream, or {@code unix:} and the path of its
 *     socket; empty when OFF
 * @param tokenFile what the daemon wants of its sources; empty: nothing
 * @param tls how the daemon is dialled; empty: plain text
 * @param namespaces whose topics are kept
 * @param receipts DURABLE: an ack is answered when the keeper has it durable. MEMORY: at once, as
 *     Pulsar does
 * @param openTimeout how long the load of a topic waits for the keeper; then it fails
 * @param closeTimeout how long an unload waits for the keeper to have everything durable
 * @param onStale what a load does when Pulsar itself changed the cursor since the keeper held it
 * @param onFailedLoad what the load of a topic does when the keeper did not answer
 * @param waitingAcksMax acks of one cursor that wait for their answer, in calls of the broker; at
 *     it dispatch pauses, beyond it an ack is answered by a failure
 * @param waitingAcksBrokerMax the same, of all cursors of the broker
 * @param cursorMetricsMax cursors with figures of their own on the metrics pages: those with the
 *     most waiting acks
 * @param shadowCompare how often each copy is compared, about
 * @param onUnsupported whether a broker starts with Pulsar's own behaviour when the plugin cannot
 *     serve it
 */
public record Settings(
    Mode mode,
    String address,
    Optional<Path> tokenFile,
    Optional<LinkTls> tls,
    Namespaces namespaces,
    Receipts receipts,
    Duration openTimeout,
    Duration closeTimeout,
    OnStale onStale,
    OnFailedLoad onFailedLoad,
    int waitingAcksMax,
    int waitingAcksBrokerMax,
    int cursorMetricsMax,
    Duration shadowCompare,
    OnUnsupported onUnsupported) {

  public enum Mode {
    KEEP,
    SHADOW,
    OFF
  }

  public enum Receipts {
    DURABLE,
    MEMORY
  }

  /**
   * REFUSE: the load fails. IMPORT: Pulsar's own state replaces the keeper's. KEEPER: the keeper's
   * replaces Pulsar's.
   */
  public enum OnStale {
    REFUSE,
    IMPORT,
    KEEPER
  }

  /**
   * FAIL: the load fails, and is tried again. STOCK: it goes on with Pulsar's own cursors, which
   * may be older.
   */
  public enum OnFailedLoad {
    FAIL,
    STOCK
  }

  /** REFUSE: the broker does not start. STOCK: it starts with Pulsar's own cursors. */
  public enum OnUnsupported {
    REFUSE,
    STOCK
  }

  private enum YesNo {
    TRUE,
    FALSE
  }

  static final String PREFIX = "cursorKeeper";
  public static final String MODE = PREFIX + "Mode";
  public static final String ADDRESS = PREFIX + "Address";
  public static final String TOKEN_FILE = PREFIX + "TokenFile";
  public static final String TLS_ENABLED = PREFIX + "TlsEnabled";
  public static final String TLS_SERVER_NAME = PREFIX + "TlsServerName";
  public static final String NAMESPACES = PREFIX + "Namespaces";
  public static final String RECEIPTS = PREFIX + "Receipts";
  public static final String OPEN_TIMEOUT_MS = PREFIX + "OpenTimeoutMs";
  public static final String CLOSE_TIMEOUT_MS = PREFIX + "CloseTimeoutMs";
  public static final String ON_STALE = PREFIX + "OnStale";
  public static final String ON_FAILED_LOAD = PREFIX + "OnFailedLoad";
  public static final String WAITING_ACKS_MAX = PREFIX + "WaitingAcksMax";
  public static final String WAITING_ACKS_BROKER_MAX = PREFIX + "WaitingAcksBrokerMax";
  public static final String CURSOR_METRICS_MAX = PREFIX + "CursorMetricsMax";
  public static final String SHADOW_COMPARE_MS = PREFIX + "ShadowCompareMs";
  public static final String ON_UNSUPPORTED = PREFIX + "OnUnsupported";

  private static final Set<String> NAMES =
      new TreeSet<>(
          Set.of(
              MODE,
              ADDRESS,
              TOKEN_FILE,
              TLS_ENABLED,
              TLS_SERVER_NAME,
              NAMESPACES,
              RECEIPTS,
              OPEN_TIMEOUT_MS,
              CLOSE_TIMEOUT_MS,
              ON_STALE,
              ON_FAILED_LOAD,
              WAITING_ACKS_MAX,
              WAITING_ACKS_BROKER_MAX,
              CURSOR_METRICS_MAX,
              SHADOW_COMPARE_MS,
              ON_UNSUPPORTED));

  /** Pulsar gives up the load of a topic after 60 s, and says less about why. */
  private static final int OPEN_TIMEOUT_MS_MAX = 55_000;

  private static final int CLOSE_TIMEOUT_MS_MAX = 55_000;

  private static final int SHADOW_COMPARE_MS_MAX = 86_400_000;

  /** Of all properties of broker.conf. Raises SettingsException. */
  public static Settings read(Properties all) {
    for (String name : all.stringPropertyNames()) {
      if (name.startsWith(PREFIX) && !NAMES.contains(name)) {
        throw new SettingsException(
            name, all.getProperty(name), "there is no such setting", "use one of " + NAMES);
      }
    }
    Mode mode = choice(all, MODE, Mode.KEEP);
    String address = value(all, ADDRESS);
    if (mode != Mode.OFF) {
      checkAddress(address);
    }
    return new Settings(
        mode,
        address,
        tokenFile(value(all, TOKEN_FILE)),
        tls(all),
        Namespaces.of(NAMESPACES, value(all, NAMESPACES)),
        choice(all, RECEIPTS, Receipts.DURABLE),
        milliseconds(all, OPEN_TIMEOUT_MS, 25_000, OPEN_TIMEOUT_MS_MAX),
        milliseconds(all, CLOSE_TIMEOUT_MS, 10_000, CLOSE_TIMEOUT_MS_MAX),
        choice(all, ON_STALE, OnStale.REFUSE),
        choice(all, ON_FAILED_LOAD, OnFailedLoad.FAIL),
        number(all, WAITING_ACKS_MAX, 50_000, 1, 10_000_000),
        number(all, WAITING_ACKS_BROKER_MAX, 200_000, 1, 10_000_000),
        number(all, CURSOR_METRICS_MAX, 0, 0, 1_000),
        milliseconds(all, SHADOW_COMPARE_MS, 60_000, SHADOW_COMPARE_MS_MAX),
        onUnsupported(all));
  }

  /** Alone, because it says what happens when the others are wrong. Raises SettingsException. */
  public static OnUnsupported onUnsupported(Properties all) {
    return choice(all, ON_UNSUPPORTED, OnUnsupported.REFUSE);
  }

  private static String value(Properties all, String name) {
    return all.getProperty(name, "").trim();
  }

  /**
   * The broker is a client here, so its lines for clients count ({@code brokerClient...}), and
   * where those are empty its own ({@code tls...}).
   */
  private static Optional<LinkTls> tls(Properties all) {
    if (choice(all, TLS_ENABLED, YesNo.FALSE) == YesNo.FALSE) {
      return Optional.empty();
    }
    boolean isClient =
        !value(all, "brokerClientCertificateFilePath").isEmpty()
            || !value(all, "brokerClientKeyFilePath").isEmpty();
    String certificateName =
        isClient ? "brokerClientCertificateFilePath" : "tlsCertificateFilePath";
    String keyName = isClient ? "brokerClientKeyFilePath" : "tlsKeyFilePath";
    Optional<Path> trust =
        tlsFile(
            all,
            value(all, "brokerClientTrustCertsFilePath").isEmpty()
                ? "tlsTrustCertsFilePath"
                : "brokerClientTrustCertsFilePath");
    Optional<Path> certificate = tlsFile(all, certificateName);
    Optional<Path> key = tlsFile(all, keyName);
    if (certificate.isPresent() != key.isPresent()) {
      throw new SettingsException(
          certificate.isPresent() ? certificateName : keyName,
          certificate.or(() -> key).get().toString(),
          "a certificate and its key belong together",
          "name both, or neither");
    }
    return Optional.of(new LinkTls(trust, certificate, key, value(all, TLS_SERVER_NAME)));
  }

  private static Optional<Path> tlsFile(Properties all, String name) {
    String given = value(all, name);
    if (!given.isEmpty() && !Files.isReadable(Path.of(given))) {
      throw new SettingsException(
          name, given, "it cannot be read", "make it readable for the broker, or name another");
    }
    return given.isEmpty() ? Optional.empty() : Optional.of(Path.of(given));
  }

  private static Optional<Path> tokenFile(String given) {
    if (given.isEmpty()) {
      return Optional.empty();
    }
    Path file = Path.of(given);
    if (!Files.isReadable(file)) {
      throw new SettingsException(
          TOKEN_FILE,
          given,
          "it cannot be read",
          "name the daemon's source_token_file, readable by the broker, or leave it out if the"
              + " daemon has none");
    }
    return Optional.of(file);
  }

  private static void checkAddress(String address) {
    if (UnixAddress.is(address)) {
      try {
        UnixAddress.of(address);
      } catch (IllegalArgumentException wrong) {
        throw new SettingsException(
            ADDRESS,
            address,
            wrong.getMessage(),
            "write unix: and the whole path of the daemon's socket, as"
                + " unix:/run/cursorkeeper/acks.sock; listen of the daemon is the same");
      }
      return;
    }
    int colon = address.lastIndexOf(':');
    String port = address.substring(colon + 1);
    if (colon < 1
        || !port.matches("[0-9]{1,5}")
        || Integer.parseInt(port) < 1
        || Integer.parseInt(port) > 65_535) {
      throw new SettingsException(
          ADDRESS,
          address,
          "it is neither host:port nor unix: and a path",
          "name the ack stream of the CursorKeeper daemon, as 127.0.0.1:7650, or set "
              + MODE
              + "=off");
    }
  }

  private static <E extends Enum<E>> E choice(Properties all, String name, E otherwise) {
    String given = value(all, name);
    if (given.isEmpty()) {
      return otherwise;
    }
    E[] choices = otherwise.getDeclaringClass().getEnumConstants();
    for (E each : choices) {
      if (each.name().equalsIgnoreCase(given)) {
        return each;
      }
    }
    String names =
        String.join(
            ", ",
            Arrays.stream(choices).map(each -> each.name().toLowerCase(Locale.ROOT)).toList());
    throw new SettingsException(name, given, "there is no such choice", "use one of " + names);
  }

  private static Duration milliseconds(Properties all, String name, int otherwise, int max) {
    return Duration.ofMillis(number(all, name, otherwise, 1, max));
  }

  private static int number(Properties all, String name, int otherwise, int min, int max) {
    String given = value(all, name);
    if (given.isEmpty()) {
      return otherwise;
    }
    if (!given.matches("[0-9]{1,9}")
        || Integer.parseInt(given) < min
        || Integer.parseInt(given) > max) {
      throw new SettingsException(
          name,
          given,
          "it is no number from " + min + " to " + max,
          "leave it out for " + otherwise);
    }
    return Integer.parseInt(given);
  }
}
