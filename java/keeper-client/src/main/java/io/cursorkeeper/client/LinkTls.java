package io.cursorkeeper.client;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Optional;

/**
 * How a link proves what it is, and whom it believes: PEM files, read at every connection.
 *
 * @param trustCerts authorities of the daemon's certificate; empty: those of the JVM
 * @param certificate of this source, and those between it and its authority; empty: it has none
 * @param key the certificate's, PKCS #8, not encrypted
 * @param serverName a name in the daemon's certificate, if that is not the host that is dialled;
 *     empty: it is
 */
public record LinkTls(
    Optional<Path> trustCerts, Optional<Path> certificate, Optional<Path> key, String serverName) {

  public LinkTls {
    if (certificate.isPresent() != key.isPresent()) {
      throw new IllegalArgumentException("a certificate and its key belong together: name both");
    }
  }

  /** From the files as they are now. */
  ChannelCredentials credentials() throws IOException {
    TlsChannelCredentials.Builder made = TlsChannelCredentials.newBuilder();
    if (trustCerts.isPresent()) {
      made.trustManager(trustCerts.get().toFile());
    }
    if (certificate.isPresent()) {
      made.keyManager(certificate.get().toFile(), key.get().toFile());
    }
    return made.build();
  }
}
