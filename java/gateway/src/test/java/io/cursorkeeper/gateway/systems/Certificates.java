package io.cursorkeeper.gateway.systems;

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Self-signed certificates of tests, made by the JDK's own tool. */
record Certificates(Path certificate, Path key, Path store) {
  static final String PASSWORD = "secret1";
  private static final String ALIAS = "own";

  /** NAME.pem, NAME-key.pem and NAME.p12; {@code start} as keytool takes it, for one day. */
  static Certificates make(Path folder, String name, String start) throws Exception {
    Path store = folder.resolve(name + ".p12");
    Process tool =
        new ProcessBuilder(
                List.of(
                    Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                    "-genkeypair",
                    "-alias",
                    ALIAS,
                    "-keyalg",
                    "EC",
                    "-dname",
                    "CN=" + name,
                    "-startdate",
                    start,
                    "-validity",
                    "1",
                    "-keystore",
                    store.toString(),
                    "-storetype",
                    "PKCS12",
                    "-storepass",
                    PASSWORD))
            .redirectErrorStream(true)
            .start();
    String said = new String(tool.getInputStream().readAllBytes());
    if (!tool.waitFor(60, TimeUnit.SECONDS) || tool.exitValue() != 0) {
      throw new IllegalStateException("keytool failed: " + said);
    }
    KeyStore read = KeyStore.getInstance(store.toFile(), PASSWORD.toCharArray());
    Key key = read.getKey(ALIAS, PASSWORD.toCharArray());
    return new Certificates(
        pem(folder.resolve(name + ".pem"), "CERTIFICATE", read.getCertificate(ALIAS).getEncoded()),
        pem(folder.resolve(name + "-key.pem"), "PRIVATE KEY", key.getEncoded()),
        store);
  }

  private static Path pem(Path file, String what, byte[] content) throws Exception {
    String lines = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
    return Files.writeString(
        file, "-----BEGIN " + what + "-----\n" + lines + "\n-----END " + what + "-----\n");
  }
}
