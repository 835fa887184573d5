package io.cursorkeeper.gateway.systems;

import io.netty.buffer.ByteBufAllocator;
import io.netty.handler.ssl.SslHandler;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import org.apache.bookkeeper.auth.ClientAuthProvider;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.sasl.SASLClientProviderFactory;
import org.apache.bookkeeper.tls.SecurityHandlerFactory;

/**
 * How the gateway proves itself to bookies, checked before it dials: BookKeeper's client looks at
 * most of it only then, and tells its log.
 */
final class BookieSecurity {
  private static final String TLS_KEY_STORE = "tlsKeyStore";
  private static final String TLS_CERTIFICATE = "tlsCertificatePath";
  private static final String TLS_TRUST_STORE = "tlsTrustStore";
  private static final String PASSWORD = "PasswordPath";
  private static final String TYPE = "Type";

  private final ClientSettings settings;
  private final Logins logins;

  BookieSecurity(ClientSettings settings, Logins logins) {
    this.settings = settings;
    this.logins = logins;
  }

  boolean hasTls() {
    return settings.has(ClientSettings.TLS_FACTORY_CLASS);
  }

  boolean hasLogin() {
    return settings.has(ClientSettings.AUTH_FACTORY);
  }

  /** Whether it shows a certificate of its own. */
  boolean hasCertificate() {
    return hasTls() && settings.value(ClientSettings.TLS_AUTHENTICATION).equalsIgnoreCase("true");
  }

  /** Throws IllegalArgumentException with a message for people. */
  void check() {
    if (hasTls()) {
      checkTls();
    }
    if (hasLogin()) {
      checkLogin();
    }
  }

  String said(String setting) {
    return settings.said(setting);
  }

  String trustSaid() {
    return settings.said(TLS_TRUST_STORE);
  }

  String certificateSaid() {
    return settings.said(settings.has(TLS_CERTIFICATE) ? TLS_CERTIFICATE : TLS_KEY_STORE);
  }

  /** Who it is to bookies, as messages name it. */
  String loginSaid() {
    return isSasl()
        ? logins.user(section()) + " of JAAS section " + section()
        : settings.said(ClientSettings.AUTH_FACTORY);
  }

  private void checkTls() {
    requireClass(ClientSettings.TLS_FACTORY_CLASS, SecurityHandlerFactory.class, "tls");
    if (!settings.value(ClientSettings.TLS_FACTORY_CLASS).equals(ClientSettings.TLS_FACTORY)) {
      return;
    }
    store(TLS_TRUST_STORE, "the authorities of the bookies' certificates");
    if (hasCertificate()) {
      store(TLS_KEY_STORE, "the gateway's key");
    }
    try {
      factory(new ClientConfiguration());
    } catch (Exception wrong) {
      throw Failures.wrong(
          hasCertificate() ? certificateSaid() : trustSaid(),
          Failures.text(Failures.innermost(wrong)),
          "correct the settings of TLS with bookies");
    }
  }

  private void store(String name, String what) {
    String file = settings.value(name);
    if (file.isEmpty()) {
      throw Failures.wrong(
          settings.said(ClientSettings.TLS_FACTORY_CLASS),
          "no file is named for " + what,
          "set " + brokerName(name) + " in broker.conf, or BookKeeper's " + name);
    }
    String type = settings.value(name + TYPE);
    String said = settings.said(name);
    String passwordFile = settings.value(name + PASSWORD);
    if (!passwordFile.isEmpty()) {
      KeyFiles.requireReadable(settings.said(name + PASSWORD), passwordFile);
    }
    switch (type.isEmpty() ? "JKS" : type) {
      case "PEM" -> pem(name, said, file, passwordFile);
      case "JKS", "PKCS12" -> {
        KeyFiles.requireReadable(said, file);
        keyStore(name, said, file, type.isEmpty() ? "JKS" : type, passwordFile);
      }
      default ->
          throw Failures.wrong(
              settings.said(name + TYPE), "there is no such kind", "use PEM, JKS or PKCS12");
    }
  }

  private void pem(String name, String said, String file, String passwordFile) {
    if (name.equals(TLS_TRUST_STORE)) {
      KeyFiles.certificates(said, file);
      return;
    }
    String certificate = settings.value(TLS_CERTIFICATE);
    if (certificate.isEmpty()) {
      throw Failures.wrong(
          said,
          "a key without its certificate",
          "set bookkeeperTLSCertificateFilePath in broker.conf, or BookKeeper's "
              + TLS_CERTIFICATE);
    }
    if (passwordFile.isEmpty()) {
      KeyFiles.requirePair(settings.said(TLS_CERTIFICATE), certificate, said, file);
    } else {
      // Only BookKeeper opens a key with a password: it is asked next.
      KeyFiles.requireReadable(said, file);
      KeyFiles.requireInTime(
          settings.said(TLS_CERTIFICATE),
          KeyFiles.certificates(settings.said(TLS_CERTIFICATE), certificate).get(0));
    }
  }

  private void keyStore(String name, String said, String file, String type, String passwordFile) {
    try (InputStream read = Files.newInputStream(Path.of(file))) {
      String password = passwordFile.isEmpty() ? "" : Files.readString(Path.of(passwordFile));
      KeyStore store = KeyStore.getInstance(type);
      store.load(read, password.strip().toCharArray());
      KeyFiles.requireInTime(said, store);
    } catch (IOException | GeneralSecurityException wrong) {
      throw Failures.wrong(
          said,
          Failures.text(Failures.innermost(wrong)),
          "name a key store of type "
              + type
              + ", and the file of its password ("
              + settings.said(name + PASSWORD)
              + ")");
    }
  }

  private void checkLogin() {
    requireClass(ClientSettings.AUTH_FACTORY, ClientAuthProvider.Factory.class, "authentication");
    if (isSasl() && !logins.has(section())) {
      throw Failures.wrong(
          settings.said(ClientSettings.AUTH_FACTORY),
          "there is no JAAS section " + section() + " to log in with",
          "name the file that a broker is given with -Djava.security.auth.login.config with"
              + " --jaas-file, or a user with --bookkeeper-auth-file");
    }
    if (hasKerberos()) {
      Kerberos.check(logins, section());
    }
  }

  boolean hasKerberos() {
    return hasLogin() && isSasl() && logins.isKerberos(section());
  }

  /** Why there is no ticket for a bookie; empty: there is one. */
  String whyNoTicket(InetSocketAddress bookie) {
    return Kerberos.whyNoTicket(
        logins,
        section(),
        // BookKeeper's own name for it, and what it is without.
        System.getProperty("bookkeeper.sasl.servicename", "bookkeeper"),
        bookie.getHostName());
  }

  private boolean isSasl() {
    return settings
        .value(ClientSettings.AUTH_FACTORY)
        .equals(SASLClientProviderFactory.class.getName());
  }

  private String section() {
    String given = settings.value(ClientSettings.JAAS_SECTION);
    return given.isEmpty() ? ClientSettings.JAAS_SECTION_DEFAULT : given;
  }

  private void requireClass(String name, Class<?> kind, String what) {
    String known = "it is not a class of " + what + " that this gateway has";
    try {
      // Not initialised: what its beginning needs is seen to later.
      Class<?> found =
          Class.forName(settings.value(name), false, BookieSecurity.class.getClassLoader());
      if (kind.isAssignableFrom(found)) {
        return;
      }
    } catch (ClassNotFoundException | LinkageError unknown) {
      // Told below.
    }
    throw Failures.wrong(
        settings.said(name),
        known,
        what.equals("tls")
            ? "use " + ClientSettings.TLS_FACTORY
            : "use " + SASLClientProviderFactory.class.getName() + ", or correct the name");
  }

  private static String brokerName(String name) {
    return name.equals(TLS_TRUST_STORE)
        ? "bookkeeperTLSTrustCertsFilePath"
        : "bookkeeperTLSKeyFilePath";
  }

  /** A handler of TLS as BookKeeper's client would use it. */
  SslHandler handler(String host, int port) throws Exception {
    return factory(new ClientConfiguration()).newTLSHandler(host, port);
  }

  private SecurityHandlerFactory factory(ClientConfiguration config) throws Exception {
    config.setProperty(ClientSettings.TLS_PROVIDER, "JDK");
    settings.configure(config);
    SecurityHandlerFactory factory =
        Class.forName(settings.value(ClientSettings.TLS_FACTORY_CLASS))
            .asSubclass(SecurityHandlerFactory.class)
            .getDeclaredConstructor()
            .newInstance();
    factory.init(SecurityHandlerFactory.NodeType.Client, config, ByteBufAllocator.DEFAULT);
    return factory;
  }
}
