package io.cursorkeeper.gateway.servers;

import java.nio.charset.StandardCharsets;
import java.security.PrivateKey;
import java.security.Signature;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PSSParameterSpec;
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
    return headed("{\"alg\":\"" + algorithm + "\"}", claims, jdk, key);
  }

  /** Of PS256 and its like; {@code bits} of the hash. */
  public static String padded(int bits, PrivateKey key, String claims) throws Exception {
    Signature signing = Signature.getInstance("RSASSA-PSS");
    signing.setParameter(
        new PSSParameterSpec(
            "SHA-" + bits, "MGF1", new MGF1ParameterSpec("SHA-" + bits), bits / 8, 1));
    return signed("{\"alg\":\"PS" + bits + "\"}", claims, signing, key);
  }

  /** With a header of one's own. */
  public static String headed(String header, String claims, String jdk, PrivateKey key)
      throws Exception {
    return signed(header, claims, Signature.getInstance(jdk), key);
  }

  private static String signed(String header, String claims, Signature signing, PrivateKey key)
      throws Exception {
    String text = part(header) + "." + part(claims);
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
