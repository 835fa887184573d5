package io.cursorkeeper.gateway.systems;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * Settings of BookKeeper's client by its own names, each with who gave it, so that a wrong one is
 * told to the operator by the name that he knows.
 */
final class ClientSettings {
  static final String AUTH_FACTORY = "clientAuthProviderFactoryClass";
  static final String TLS_AUTHENTICATION = "tlsClientAuthentication";
  static final String TLS_FACTORY = "org.apache.bookkeeper.tls.TLSContextFactory";
  static final String TLS_FACTORY_CLASS = "tlsProviderFactoryClass";
  static final String TLS_PROVIDER = "tlsProvider";
  private static final String TLS_REFRESH_SECONDS = "tlsCertFilesRefreshDurationSeconds";

  /** What a broker tells its client; BookKeeper's own would never read a renewed certificate. */
  private static final String TLS_REFRESH_SECONDS_DEFAULT = "300";

  private static final List<String> TLS_FILES =
      List.of("tlsKeyStore", "tlsCertificatePath", "tlsTrustStore");
  static final String ZOOKEEPER_ACLS = "zkEnableSecurity";

  /** The section of a JAAS file that BookKeeper's client logs in with. */
  static final String JAAS_SECTION = "saslJaasClientSectionName";

  static final String JAAS_SECTION_DEFAULT = "BookKeeper";

  /**
   * A value, and who gave it.
   *
   * @param by as messages name it: the file and its key, or the flag
   */
  record Given(String by, String value) {
    String said() {
      return by + " = " + value;
    }
  }

  private final Map<String, Given> all = new LinkedHashMap<>();

  /** Later ones win. */
  void add(Map<String, Given> settings) {
    all.putAll(settings);
  }

  void add(String name, String by, String value) {
    all.put(name, new Given(by, value));
  }

  boolean has(String name) {
    return !value(name).isEmpty();
  }

  /** Files of TLS are looked at again, whoever named them, unless somebody said how often. */
  void renewTlsFiles() {
    if (TLS_FILES.stream().anyMatch(this::has) && !has(TLS_REFRESH_SECONDS)) {
      add(TLS_REFRESH_SECONDS, "BookKeeper's " + TLS_REFRESH_SECONDS, TLS_REFRESH_SECONDS_DEFAULT);
    }
  }

  /** Empty: not given. */
  String value(String name) {
    Given given = all.get(name);
    return given == null ? "" : given.value();
  }

  /** As messages name it. */
  String said(String name) {
    Given given = all.get(name);
    return given == null ? "BookKeeper's " + name : given.said();
  }

  Map<String, Given> all() {
    return Collections.unmodifiableMap(all);
  }

  void configure(ClientConfiguration config) {
    all.forEach((name, given) -> config.setProperty(name, given.value()));
  }
}
