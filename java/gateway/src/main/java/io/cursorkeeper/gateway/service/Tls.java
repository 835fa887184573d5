package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.systems.KeyFiles;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.util.AdvancedTlsX509KeyManager;
import io.grpc.util.AdvancedTlsX509TrustManager;
import io.grpc.util.CertificateUtils;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.X509ExtendedTrustManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the gateway shows to callers, and whose certificates it believes: PEM files, under Pulsar's
 * names, that are read again when they have changed. Files that were changed and cannot be used
 * leave what was read before in use.
 *
 * @param trustCerts empty: callers show no certificate
 * @param callersMay a certificate is asked for, and says who calls
 */
record Tls(
    String certificate,
    String key,
    String trustCerts,
    boolean callersMust,
    boolean callersMay,
    int refreshSeconds) {

  private static final Logger LOG = LoggerFactory.getLogger(Tls.class);
  private static final int SESSION_SECONDS = 300;
  private static final String CERTIFICATE = "tls-certificate-file-path";
  private static final String KEY = "tls-key-file-path";
  private static final String TRUST_CERTS = "tls-trust-certs-file-path";
  private static final String CALLERS_MUST = "tls-require-trusted-client-cert-on-connect";
  private static final String REFRESH = "tls-cert-refresh-check-duration-sec";

  static final List<Flag> FLAGS =
      List.of(
          Flag.text(CERTIFICATE, "", "PEM; with it every port speaks TLS only"),
          Flag.text(KEY, "", "the certificate's key, PEM, not encrypted"),
          Flag.text(TRUST_CERTS, "", "authorities of callers' certificates, PEM"),
          Flag.yesNo(CALLERS_MUST, "refuse who shows no certificate of such an authority"),
          Flag.number(REFRESH, 300, "how often it is looked whether the files have changed"));

  /** How often files are looked at that may have changed, these and others. */
  static int refreshSeconds(Flags flags) {
    return flags.integer(REFRESH, 1, 1_000_000_000);
  }

  /** Empty: plain text. Throws IllegalArgumentException with a message for people. */
  static Optional<Tls> of(Flags flags, boolean callersAreNamed) {
    Tls tls =
        new Tls(
            flags.text(CERTIFICATE),
            flags.text(KEY),
            flags.text(TRUST_CERTS),
            flags.yes(CALLERS_MUST),
            callersAreNamed && !flags.text(TRUST_CERTS).isEmpty(),
            refreshSeconds(flags));
    if (tls.certificate.isEmpty() && tls.key.isEmpty()) {
      require(!tls.callersMust, "--" + CALLERS_MUST + " without --" + CERTIFICATE);
      return Optional.empty();
    }
    require(!tls.key.isEmpty(), "--" + CERTIFICATE + " without its key: name --" + KEY);
    require(!tls.certificate.isEmpty(), "--" + KEY + " without its certificate: --" + CERTIFICATE);
    require(
        !tls.callersMust || !tls.trustCerts.isEmpty(),
        "--" + CALLERS_MUST + " needs the authorities that are believed: --" + TRUST_CERTS);
    tls.check();
    return Optional.of(tls);
  }

  private void check() {
    Read read = read();
    X509Certificate own = read.chain[0];
    try {
      own.checkValidity();
    } catch (CertificateException outside) {
      throw new IllegalArgumentException(
          "--"
              + CERTIFICATE
              + " "
              + certificate
              + " is valid from "
              + own.getNotBefore()
              + " to "
              + own.getNotAfter()
              + ": renew it, or set this machine's clock");
    }
  }

  /**
   * What the files hold, fit to be used together.
   *
   * @param believed empty: nobody is
   */
  private record Read(X509Certificate[] chain, PrivateKey key, X509Certificate[] believed) {}

  private Read read() {
    List<X509Certificate> chain = certificates(CERTIFICATE, certificate);
    PrivateKey own = readKey();
    require(
        KeyFiles.belongTogether(own, chain.get(0)),
        "--"
            + KEY
            + " "
            + key
            + " is not the key of "
            + certificate
            + ": name files that were made together");
    List<X509Certificate> believed =
        trustCerts.isEmpty() ? List.of() : certificates(TRUST_CERTS, trustCerts);
    return new Read(
        chain.toArray(X509Certificate[]::new), own, believed.toArray(X509Certificate[]::new));
  }

  private static List<X509Certificate> certificates(String flag, String file) {
    try (InputStream read = Files.newInputStream(Path.of(file))) {
      List<X509Certificate> found = List.of(CertificateUtils.getX509Certificates(read));
      require(!found.isEmpty(), "--" + flag + " " + file + " holds no certificate in PEM");
      return found;
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          "--"
              + flag
              + " "
              + file
              + " cannot be read: "
              + unreadable.getMessage()
              + "; make it readable for this user, or name another");
    } catch (CertificateException wrong) {
      throw new IllegalArgumentException("--" + flag + " " + file + " holds no certificate in PEM");
    }
  }

  private PrivateKey readKey() {
    try (InputStream read = Files.newInputStream(Path.of(key))) {
      return CertificateUtils.getPrivateKey(read);
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          "--"
              + KEY
              + " "
              + key
              + " cannot be read: "
              + unreadable.getMessage()
              + "; make it readable for this user, or name another");
    } catch (GeneralSecurityException | RuntimeException wrong) {
      throw new IllegalArgumentException(
          "--"
              + KEY
              + " "
              + key
              + " is no PKCS #8 key in PEM without a password:"
              + " `openssl pkcs8 -topk8 -nocrypt` makes one");
    }
  }

  /** Made once; the timer looks at the files. */
  Contexts contexts(ScheduledExecutorService timer) throws GeneralSecurityException, IOException {
    var keys = new AdvancedTlsX509KeyManager();
    AdvancedTlsX509TrustManager believed =
        trustCerts.isEmpty()
            ? null
            : AdvancedTlsX509TrustManager.newBuilder()
                .setVerification(
                    AdvancedTlsX509TrustManager.Verification.CERTIFICATE_ONLY_VERIFICATION)
                .build();
    String stamp = stamp();
    show(read(), keys, believed);
    timer.scheduleWithFixedDelay(
        new Renewal(this, stamp, keys, believed), refreshSeconds, refreshSeconds, TimeUnit.SECONDS);
    return new Contexts(keys, new OwnAndBelieved(keys, believed), callersMust, callersMay);
  }

  private static void show(
      Read read, AdvancedTlsX509KeyManager keys, AdvancedTlsX509TrustManager believed)
      throws GeneralSecurityException, IOException {
    keys.updateIdentityCredentials(read.chain, read.key);
    if (believed != null) {
      believed.updateTrustCredentials(read.believed);
    }
  }

  /** It differs when a file was changed or replaced. */
  private String stamp() throws IOException {
    StringBuilder all = new StringBuilder();
    for (String file : List.of(certificate, key, trustCerts)) {
      if (!file.isEmpty()) {
        Path path = Path.of(file);
        all.append(Files.getAttribute(path, "unix:ino"))
            .append(Files.getLastModifiedTime(path))
            .append(Files.size(path))
            .append(' ');
      }
    }
    return all.toString();
  }

  /** Shows what has changed. Never throws, because its timer would end with it. */
  private static final class Renewal implements Runnable {
    private final Tls files;
    private final AdvancedTlsX509KeyManager keys;
    private final AdvancedTlsX509TrustManager believed;
    private String shown;

    Renewal(
        Tls files,
        String shown,
        AdvancedTlsX509KeyManager keys,
        AdvancedTlsX509TrustManager believed) {
      this.files = files;
      this.shown = shown;
      this.keys = keys;
      this.believed = believed;
    }

    @Override
    public void run() {
      try {
        String now = files.stamp();
        if (!now.equals(shown)) {
          show(files.read(), keys, believed);
          shown = now;
          LOG.info("the certificates were renewed");
        }
      } catch (GeneralSecurityException | IOException | RuntimeException wrong) {
        LOG.warn("the certificates are not renewed: {}", Failed.inOneLine(wrong));
      }
    }
  }

  /** For each kind of port. */
  record Contexts(
      AdvancedTlsX509KeyManager keys,
      OwnAndBelieved trust,
      boolean callersMust,
      boolean callersMay) {

    SslContext ofCalls() throws SSLException {
      ClientAuth asked =
          callersMust ? ClientAuth.REQUIRE : callersMay ? ClientAuth.OPTIONAL : ClientAuth.NONE;
      return GrpcSslContexts.configure(server(asked), SslProvider.JDK).build();
    }

    SslContext ofPages() throws SSLException {
      // probes show no certificate, and a page names no cursor
      return server(ClientAuth.NONE).sslProvider(SslProvider.JDK).build();
    }

    /** Of this gateway's own calls to itself. */
    SslContext ofItself() throws SSLException {
      SslContextBuilder client = SslContextBuilder.forClient().keyManager(keys).trustManager(trust);
      return GrpcSslContexts.configure(client, SslProvider.JDK).build();
    }

    private SslContextBuilder server(ClientAuth asked) {
      return SslContextBuilder.forServer(keys)
          .trustManager(trust)
          // who resumes a session is not looked at again
          .sessionTimeout(SESSION_SECONDS)
          .clientAuth(asked);
    }
  }

  /**
   * Believes the authorities of the file, and the gateway's own certificate: whoever holds its key
   * is the gateway, whatever uses and names the certificate is for.
   */
  static final class OwnAndBelieved extends X509ExtendedTrustManager {
    private final AdvancedTlsX509KeyManager keys;
    private final AdvancedTlsX509TrustManager believed;

    OwnAndBelieved(AdvancedTlsX509KeyManager keys, AdvancedTlsX509TrustManager believed) {
      this.keys = keys;
      this.believed = believed;
    }

    private boolean isOwn(X509Certificate[] chain) {
      // by the name that the manager has for its pair now: each renewal has another one
      X509Certificate[] own =
          keys.getCertificateChain(keys.chooseEngineServerAlias("", null, null));
      return own != null && own.length > 0 && chain.length > 0 && own[0].equals(chain[0]);
    }

    private AdvancedTlsX509TrustManager believed() throws CertificateException {
      if (believed == null) {
        throw new CertificateException("no authorities are named: --" + TRUST_CERTS);
      }
      return believed;
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
        throws CertificateException {
      if (!isOwn(chain)) {
        believed().checkClientTrusted(chain, kind, engine);
      }
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
        throws CertificateException {
      if (!isOwn(chain)) {
        throw new CertificateException("the gateway dials nobody but itself");
      }
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, Socket socket)
        throws CertificateException {
      throw new CertificateException("there are no such connections");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, Socket socket)
        throws CertificateException {
      throw new CertificateException("there are no such connections");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind)
        throws CertificateException {
      throw new CertificateException("there are no such connections");
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind)
        throws CertificateException {
      throw new CertificateException("there are no such connections");
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return believed == null ? new X509Certificate[0] : believed.getAcceptedIssuers();
    }
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
