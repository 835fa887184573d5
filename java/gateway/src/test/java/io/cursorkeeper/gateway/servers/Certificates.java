package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Certificates of an authority of a test's own, made by the JDK's keytool; PEM files in a folder.
 */
final class Certificates {
  private static final String PASSWORD = "only-in-tests";
  private final Path folder;
  private final Path store;

  Certificates(Path folder, String authority) throws Exception {
    this.folder = folder;
    store = folder.resolve(authority + ".p12");
    keytool("-alias", "authority", "-dname", "CN=" + authority, "-ext", "bc:critical=ca:true");
    pem(authority + ".pem", "CERTIFICATE", of("authority").getEncoded());
  }

  /** NAME.pem and NAME-key.pem of this subject, for 127.0.0.1. */
  void issue(String name, String subject) throws Exception {
    keytool("-alias", name, "-dname", subject, "-signer", "authority", "-ext", "san=ip:127.0.0.1");
    pem(name + ".pem", "CERTIFICATE", of(name).getEncoded());
    Key key = loaded().getKey(name, PASSWORD.toCharArray());
    pem(name + "-key.pem", "PRIVATE KEY", key.getEncoded());
  }

  String path(String file) {
    return folder.resolve(file).toString();
  }

  private Certificate of(String alias) throws Exception {
    return loaded().getCertificate(alias);
  }

  private KeyStore loaded() throws Exception {
    KeyStore loaded = KeyStore.getInstance("PKCS12");
    try (InputStream file = Files.newInputStream(store)) {
      loaded.load(file, PASSWORD.toCharArray());
    }
    return loaded;
  }

  private void keytool(String... more) throws Exception {
    List<String> command =
        new ArrayList<>(
            List.of(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                "-genkeypair",
                "-keyalg",
                "EC",
                "-groupname",
                "secp256r1",
                "-validity",
                "2",
                "-storetype",
                "PKCS12",
                "-keystore",
                store.toString(),
                "-storepass",
                PASSWORD));
    command.addAll(List.of(more));
    Process process =
        new ProcessBuilder(command)
            .redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .start();
    assertEquals(true, process.waitFor(60, TimeUnit.SECONDS));
    assertEquals(0, process.exitValue(), String.join(" ", more));
  }

  private void pem(String file, String kind, byte[] der) throws Exception {
    String body =
        Base64.getMimeEncoder(64, "\n".getBytes(StandardCharsets.UTF_8)).encodeToString(der);
    Files.writeString(
        folder.resolve(file),
        "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n");
  }
}
