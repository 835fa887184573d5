package io.cursorkeeper.gateway;

import java.io.IOException;
import java.net.Socket;
import java.net.URI;
import java.security.GeneralSecurityException;
import java.security.cert.X509Certificate;
import javax.net.ssl.HttpsURLConnection;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * The health check of the gateway's image where the gateway has a certificate: asks this machine's
 * own /health through TLS, and ends with 0 if the gateway serves.
 *
 * <p>Which certificate it is shown does not matter: it sends nothing that is secret, and asks
 * nobody but the container that it runs in.
 */
public final class HealthCheck {
  private static final int ANSWER_MAX_MS = 3_000;
  private static final int OK = 200;

  private HealthCheck() {}

  /** Usage: {@code HealthCheck PORT}. */
  public static void main(String[] args) throws IOException, GeneralSecurityException {
    SSLContext anybody = SSLContext.getInstance("TLS");
    anybody.init(null, new TrustManager[] {new Anybody()}, null);
    var asked =
        (HttpsURLConnection)
            URI.create("https://127.0.0.1:" + args[0] + "/health").toURL().openConnection();
    asked.setSSLSocketFactory(anybody.getSocketFactory());
    asked.setHostnameVerifier((host, session) -> true);
    asked.setConnectTimeout(ANSWER_MAX_MS);
    asked.setReadTimeout(ANSWER_MAX_MS);
    int status = asked.getResponseCode();
    System.out.println(status);
    Runtime.getRuntime().halt(status == OK ? 0 : 1);
  }

  private static final class Anybody extends X509ExtendedTrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, Socket socket) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, Socket socket) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine) {}

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind) {}

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return new X509Certificate[0];
    }
  }
}
