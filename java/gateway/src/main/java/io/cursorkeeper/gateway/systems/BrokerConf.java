package io.cursorkeeper.gateway.systems;

import io.cursorkeeper.gateway.process.Flags.Other;
import io.cursorkeeper.gateway.systems.ClientSettings.Given;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * What the `broker.conf` of a Pulsar operator says of ZooKeeper and BookKeeper: where their
 * metadata are, and how a broker proves itself to them; and how clients' tokens are signed. It is
 * read as the daemon reads it, and each key does what it does in a broker.
 */
final class BrokerConf {
  private static final String METADATA_STORE = "metadata-store:";
  private static final String CLIENT_PREFIX = "bookkeeper_";

  /** Pulsar's keys of TLS, to the names that BookKeeper's client has for them. */
  private static final Map<String, String> TLS_KEYS =
      Map.of(
          "bookkeeperTLSCertificateFilePath", "tlsCertificatePath",
          "bookkeeperTLSKeyFilePath", "tlsKeyStore",
          "bookkeeperTLSKeyFileType", "tlsKeyStoreType",
          "bookkeeperTLSKeyStorePasswordPath", "tlsKeyStorePasswordPath",
          "bookkeeperTLSProviderFactoryClass", "tlsProviderFactoryClass",
          "bookkeeperTLSTrustCertsFilePath", "tlsTrustStore",
          "bookkeeperTLSTrustCertTypes", "tlsTrustStoreType",
          "bookkeeperTLSTrustStorePasswordPath", "tlsTrustStorePasswordPath",
          "bookkeeperTlsCertFilesRefreshDurationSeconds", "tlsCertFilesRefreshDurationSeconds");

  private static final String SECRET_KEY = "tokenSecretKey";
  private static final String PUBLIC_KEY = "tokenPublicKey";
  private static final String AUDIENCE_CLAIM = "tokenAudienceClaim";
  private static final String AUDIENCE = "tokenAudience";

  /** Pulsar's keys of signed tokens, to the gateway's flags. */
  private static final Map<String, String> TOKEN_KEYS =
      Map.of(
          SECRET_KEY,
          "token-secret-key",
          PUBLIC_KEY,
          "token-public-key",
          "tokenPublicAlg",
          "token-public-alg",
          "tokenAuthClaim",
          "token-auth-claim",
          AUDIENCE_CLAIM,
          "token-audience-claim",
          AUDIENCE,
          "token-audience");

  private static final String TOKEN_PROVIDER =
      "org.apache.pulsar.broker.authentication.AuthenticationProviderToken";

  /** What a broker takes where its file says nothing. */
  private static final Map<String, String> TLS_DEFAULTS =
      Map.of(
          "bookkeeperTLSKeyFileType", "PEM",
          "bookkeeperTLSProviderFactoryClass", ClientSettings.TLS_FACTORY,
          "bookkeeperTLSTrustCertTypes", "PEM");

  private final String file;
  private final Map<String, String> lines;

  private BrokerConf(String file, Map<String, String> lines) {
    this.file = file;
    this.lines = lines;
  }

  /** Throws IllegalArgumentException with a message for people. */
  static BrokerConf read(String file) {
    return new BrokerConf(
        file, SettingsFile.lines("--broker-conf", file, "is it a broker.conf? Save it as UTF-8"));
  }

  /** Empty: it says nothing of it. */
  String metadataServiceUri() {
    String separate = value("bookkeeperMetadataServiceUri");
    if (!separate.isEmpty()) {
      return separate.startsWith(METADATA_STORE)
          ? ofStore("bookkeeperMetadataServiceUri", separate.substring(METADATA_STORE.length()))
          : separate;
    }
    String store = value("metadataStoreUrl");
    if (!store.isEmpty()) {
      return ofStore("metadataStoreUrl", store);
    }
    String servers = value("zookeeperServers");
    return servers.isEmpty() ? "" : uri(servers);
  }

  private String ofStore(String key, String store) {
    int colon = store.indexOf(':');
    switch (colon < 0 ? "" : store.substring(0, colon)) {
      case "rocksdb", "etcd", "memory", "oxia" ->
          throw new IllegalArgumentException(
              said(key)
                  + ": the gateway reads metadata of ledgers in ZooKeeper only; give its address"
                  + " with --metadata-service-uri");
      case "zk" -> {
        return uri(store.substring(colon + 1));
      }
      default -> {
        return uri(store);
      }
    }
  }

  /**
   * Of servers with commas between them and a path, below which Pulsar keeps ledgers. {@code null}:
   * as the cluster's layout says.
   */
  private static String uri(String store) {
    int question = store.indexOf('?');
    String serversAndPath = question < 0 ? store : store.substring(0, question);
    String plain =
        serversAndPath.endsWith("/")
            ? serversAndPath.substring(0, serversAndPath.length() - 1)
            : serversAndPath;
    return "zk+null://" + plain.replace(',', ';') + "/ledgers";
  }

  /** The settings of BookKeeper's client, by its own names. */
  Map<String, Given> clientSettings() {
    Map<String, Given> found = new LinkedHashMap<>();
    String plugin = value("bookkeeperClientAuthenticationPlugin");
    if (!plugin.isEmpty()) {
      found.put(ClientSettings.AUTH_FACTORY, given("bookkeeperClientAuthenticationPlugin", plugin));
      String parameter = value("bookkeeperClientAuthenticationParametersName");
      if (!parameter.isEmpty()) {
        found.put(
            parameter,
            given(
                "bookkeeperClientAuthenticationParameters",
                value("bookkeeperClientAuthenticationParameters")));
      }
    }
    if (yes("bookkeeperTLSClientAuthentication")) {
      found.put(
          ClientSettings.TLS_AUTHENTICATION, given("bookkeeperTLSClientAuthentication", "true"));
      TLS_KEYS.forEach(
          (key, name) -> {
            String value = lines.getOrDefault(key, TLS_DEFAULTS.getOrDefault(key, ""));
            if (!value.isEmpty()) {
              found.put(name, given(key, value));
            }
          });
    }
    lines.forEach(
        (key, value) -> {
          if (key.startsWith(CLIENT_PREFIX)) {
            found.put(key.substring(CLIENT_PREFIX.length()), given(key, value));
          }
        });
    return found;
  }

  /** The file with settings of ZooKeeper's client; the value is empty where none is named. */
  Given zooKeeperConf() {
    return given("metadataStoreConfigPath", value("metadataStoreConfigPath"));
  }

  /**
   * The gateway's flags that say how tokens are signed; nothing if brokers ask for none. Of two
   * keys the secret one counts, and an audience counts with its claim only.
   */
  Map<String, Other> signedTokens() {
    Map<String, Other> found = new LinkedHashMap<>();
    boolean asked =
        yes("authenticationEnabled")
            && Arrays.stream(value("authenticationProviders").split(","))
                .anyMatch(provider -> provider.strip().equals(TOKEN_PROVIDER));
    if (!asked) {
      return found;
    }
    String prefix = value("tokenSettingPrefix");
    TOKEN_KEYS.forEach(
        (key, flag) -> {
          String name = prefix + key;
          if (!value(name).isEmpty()) {
            found.put(flag, new Other(name, value(name)));
          }
        });
    if (found.containsKey(TOKEN_KEYS.get(SECRET_KEY))) {
      found.remove(TOKEN_KEYS.get(PUBLIC_KEY));
    }
    String audience = TOKEN_KEYS.get(AUDIENCE);
    if (found.containsKey(TOKEN_KEYS.get(AUDIENCE_CLAIM))) {
      // A claim without an audience is wrong in a broker, too: it is told by these names.
      found.putIfAbsent(audience, new Other(prefix + AUDIENCE, ""));
    } else {
      found.remove(audience);
    }
    return found;
  }

  /** All flags that say how tokens are signed. */
  static Collection<String> flagsOfSignedTokens() {
    return TOKEN_KEYS.values();
  }

  private boolean yes(String key) {
    String value = value(key).toLowerCase(Locale.ROOT);
    if (value.isEmpty() || value.equals("false")) {
      return false;
    }
    if (value.equals("true")) {
      return true;
    }
    throw new IllegalArgumentException(said(key) + ": use true or false");
  }

  private String value(String key) {
    return lines.getOrDefault(key, "");
  }

  private String said(String key) {
    return file + ": " + key + "=" + value(key);
  }

  private Given given(String key, String value) {
    return new Given(file + ": " + key, value);
  }
}
