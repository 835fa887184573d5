package io.cursorkeeper.gateway.servers;

import java.nio.charset.StandardCharsets;
import java.security.PrivateKey;
import java.security.Signature;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Signed tokens as an issuer makes them, right ones and wrong ones. */
public final class Jwt {
  private static final Base64.Encoder URL = Base64.getUrlEncoder().withoutPadding();

  private Jwt() {}

  static String part(String json) {
    return URL.encodeToString(json.getBytes(StandardCharsets.UTF_8));
  }

  /** {@code jdk}: the JDK's name of the algorithm. */
  public static String signed(String algorithm, String jdk, PrivateKey key, String claims)
      throws Exception {
    return signed("{\"alg\":\"" + algorithm + "\"}", claims, jdk, key);
  }

  static String signed(String header, String claims, String jdk, PrivateKey key) throws Exception {
    String text = part(header) + "." + part(claims);
    Signature signing = Signature.getInstance(jdk);
    signing.initSign(key);
    signing.update(text.getBytes(StandardCharsets.US_ASCII));
    return text + "." + URL.encodeToString(signing.sign());
  }

  public static String mac(String algorithm, byte[] secret, String claims) throws Exception {
    String text = part("{\"alg\":\"" + algorithm + "\"}") + "." + part(claims);
    String name = "HmacSHA" + algorithm.substring(2);
    Mac mac = Mac.getInstance(name);
    mac.init(new SecretKeySpec(secret, name));
    return text + "." + URL.encodeToString(mac.doFinal(text.getBytes(StandardCharsets.US_ASCII)));
  }
}
