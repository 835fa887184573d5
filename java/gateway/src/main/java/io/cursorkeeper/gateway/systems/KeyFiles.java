package io.cursorkeeper.gateway.systems;

import io.grpc.util.CertificateUtils;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.List;

/**
 * Looks at files of keys and certificates before anything uses them, so that an operator is told
 * which one is wrong. Owns nothing: what is used is read again by who uses it.
 */
public final class KeyFiles {
  private static final String READABLE = "make it readable for this user, or name another";

  private KeyFiles() {}

  /** Throws IllegalArgumentException unless it can be read. */
  static void requireReadable(String said, String file) {
    try (InputStream read = Files.newInputStream(Path.of(file))) {
      if (read.read() < 0) {
        throw Failures.wrong(said, "it is empty", "name another");
      }
    } catch (IOException unreadable) {
      throw Failures.wrong(said, Failures.ofFile(unreadable), READABLE);
    }
  }

  /** The certificates of a PEM file; throws IllegalArgumentException if there is none. */
  static List<X509Certificate> certificates(String said, String file) {
    requireReadable(said, file);
    try (InputStream read = Files.newInputStream(Path.of(file))) {
      List<X509Certificate> found = List.of(CertificateUtils.getX509Certificates(read));
      if (!found.isEmpty()) {
        return found;
      }
    } catch (IOException unreadable) {
      throw Failures.wrong(said, Failures.ofFile(unreadable), READABLE);
    } catch (CertificateException none) {
      // Told below.
    }
    throw Failures.wrong(said, "it holds no certificate in PEM", "name a PEM file");
  }

  /** A certificate in PEM and its key, which has no password. */
  static void requirePair(String saidCertificate, String certificate, String saidKey, String key) {
    X509Certificate own = certificates(saidCertificate, certificate).get(0);
    requireInTime(saidCertificate, own);
    requireReadable(saidKey, key);
    PrivateKey read;
    try (InputStream stream = Files.newInputStream(Path.of(key))) {
      read = CertificateUtils.getPrivateKey(stream);
    } catch (IOException | GeneralSecurityException | RuntimeException wrong) {
      throw Failures.wrong(
          saidKey,
          "it is no PKCS #8 key in PEM without a password",
          "`openssl pkcs8 -topk8 -nocrypt` makes one");
    }
    if (!belongTogether(read, own)) {
      throw Failures.wrong(
          saidKey, "it is not the key of " + certificate, "name files that were made together");
    }
  }

  /** What a key store holds must be in time. */
  static void requireInTime(String said, KeyStore store) throws GeneralSecurityException {
    for (String alias : Collections.list(store.aliases())) {
      Certificate[] chain = store.getCertificateChain(alias);
      if (chain != null && chain.length > 0 && chain[0] instanceof X509Certificate own) {
        requireInTime(said, own);
      }
    }
  }

  static void requireInTime(String said, X509Certificate own) {
    try {
      own.checkValidity();
    } catch (CertificateException outside) {
      throw Failures.wrong(
          said,
          "it is valid from " + own.getNotBefore() + " to " + own.getNotAfter(),
          "renew it, or set this machine's clock");
    }
  }

  /** Whether a signature of the one is good for the other. */
  public static boolean belongTogether(PrivateKey key, X509Certificate certificate) {
    String algorithm = key.getAlgorithm().equals("EC") ? "SHA256withECDSA" : "SHA256withRSA";
    try {
      Signature signing = Signature.getInstance(algorithm);
      signing.initSign(key);
      signing.update(certificate.getEncoded());
      Signature looking = Signature.getInstance(algorithm);
      looking.initVerify(certificate.getPublicKey());
      looking.update(certificate.getEncoded());
      return looking.verify(signing.sign());
    } catch (GeneralSecurityException other) {
      return false;
    }
  }
}
