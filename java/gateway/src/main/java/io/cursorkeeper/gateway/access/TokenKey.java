package io.cursorkeeper.gateway.access;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.MessageDigest;
import java.security.PublicKey;
import java.security.Signature;
import java.security.interfaces.ECPublicKey;
import java.security.interfaces.RSAPublicKey;
import java.security.spec.MGF1ParameterSpec;
import java.security.spec.PSSParameterSpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * The one key that signed tokens are checked with, under Pulsar's names and in Pulsar's forms.
 * Which algorithms a token may name follows from the key, and never from the token: a secret takes
 * HS*, a key of RSA takes RS* and PS*, one of a curve takes the ES* of that curve.
 */
final class TokenKey {
  private static final int BYTES_MAX = 64 << 10;
  private static final int RSA_BITS_MIN = 2_048;
  private static final int HMAC_BYTES_MIN = 32;
  private static final String PEM_BEGINS = "-----BEGIN PUBLIC KEY-----";
  private static final String PEM_ENDS = "-----END PUBLIC KEY-----";

  /** Null where the key is a public one. */
  private final byte[] secret;

  /** Null where the key is a secret. */
  private final PublicKey publicKey;

  private TokenKey(byte[] secret, PublicKey publicKey) {
    this.secret = secret;
    this.publicKey = publicKey;
  }

  /** {@code said}: who named it. Throws IllegalArgumentException with a message for people. */
  static TokenKey secret(String said, String where) {
    byte[] bytes = bytes(said, where, true);
    require(
        bytes.length >= HMAC_BYTES_MIN,
        said
            + " has "
            + bytes.length
            + " bytes, which can be guessed: make one of "
            + HMAC_BYTES_MIN
            + " or more, as `pulsar tokens create-secret-key` does");
    return new TokenKey(bytes, null);
  }

  /**
   * {@code kind}: Pulsar's tokenPublicAlg, of which only the kind of key counts; empty: whichever
   * the key is of. {@code said}, {@code saidOfKind}: who named them. Throws
   * IllegalArgumentException with a message for people.
   */
  static TokenKey published(String said, String where, String saidOfKind, String kind) {
    byte[] bytes = bytes(said, where, false);
    String text = new String(bytes, StandardCharsets.ISO_8859_1).trim();
    if (text.startsWith(PEM_BEGINS) && text.endsWith(PEM_ENDS)) {
      bytes =
          Base64.getMimeDecoder()
              .decode(text.substring(PEM_BEGINS.length(), text.length() - PEM_ENDS.length()));
    }
    require(
        kind.isEmpty() || kind.matches("(RS|PS|ES)(256|384|512)"),
        saidOfKind + " is " + kind + ": RS256, PS256, ES256 or the like, as the key is");
    List<String> families =
        kind.isEmpty() ? List.of("RSA", "EC") : List.of(kind.startsWith("ES") ? "EC" : "RSA");
    for (String family : families) {
      try {
        PublicKey key =
            KeyFactory.getInstance(family).generatePublic(new X509EncodedKeySpec(bytes));
        require(
            !(key instanceof RSAPublicKey rsa) || rsa.getModulus().bitLength() >= RSA_BITS_MIN,
            said + " has fewer than " + RSA_BITS_MIN + " bits: make a longer one");
        return new TokenKey(null, key);
      } catch (GeneralSecurityException other) {
        // Of another family, or no key at all: told below.
      }
    }
    throw new IllegalArgumentException(
        said
            + (isFile(where, false) ? " " + where : "")
            + " is no public key of "
            + String.join(" or ", families)
            + " in X.509's form (DER, as Pulsar's, or PEM); name the file that `pulsar tokens"
            + " create-key-pair` wrote, and its kind as "
            + saidOfKind);
  }

  /** Whether the key signed the text, by an algorithm that the key is for. */
  boolean signed(String algorithm, byte[] text, byte[] signature) {
    try {
      return secret != null
          ? hmac(algorithm, text, signature)
          : publicKey instanceof RSAPublicKey
              ? rsa(algorithm, text, signature)
              : publicKey instanceof ECPublicKey curve && ec(curve, algorithm, text, signature);
    } catch (GeneralSecurityException broken) {
      // A signature of the wrong length or form: none.
      return false;
    }
  }

  private boolean hmac(String algorithm, byte[] text, byte[] signature)
      throws GeneralSecurityException {
    int bits = bits(algorithm, "HS");
    if (bits == 0 || secret.length * 8 < bits) {
      return false;
    }
    String name = "HmacSHA" + bits;
    Mac mac = Mac.getInstance(name);
    mac.init(new SecretKeySpec(secret, name));
    return MessageDigest.isEqual(mac.doFinal(text), signature);
  }

  private boolean rsa(String algorithm, byte[] text, byte[] signature)
      throws GeneralSecurityException {
    int plain = bits(algorithm, "RS");
    int padded = bits(algorithm, "PS");
    Signature verifying;
    if (plain != 0) {
      verifying = Signature.getInstance("SHA" + plain + "withRSA");
    } else if (padded != 0) {
      verifying = Signature.getInstance("RSASSA-PSS");
      verifying.setParameter(
          new PSSParameterSpec(
              "SHA-" + padded,
              "MGF1",
              new MGF1ParameterSpec("SHA-" + padded),
              padded / 8,
              PSSParameterSpec.TRAILER_FIELD_BC));
    } else {
      return false;
    }
    return verified(verifying, text, signature);
  }

  private boolean ec(ECPublicKey curve, String algorithm, byte[] text, byte[] signature)
      throws GeneralSecurityException {
    int bits = bits(algorithm, "ES");
    int order = curve.getParams().getOrder().bitLength();
    if (bits == 0 || order != (bits == 512 ? 521 : bits)) {
      return false;
    }
    int half = (order + 7) / 8;
    // Zeros are a signature of everything to a JDK that has not been updated for years.
    if (signature.length != 2 * half
        || isZero(signature, 0, half)
        || isZero(signature, half, 2 * half)) {
      return false;
    }
    return verified(
        Signature.getInstance("SHA" + bits + "withECDSAinP1363Format"), text, signature);
  }

  private boolean verified(Signature verifying, byte[] text, byte[] signature)
      throws GeneralSecurityException {
    verifying.initVerify(publicKey);
    verifying.update(text);
    return verifying.verify(signature);
  }

  private static boolean isZero(byte[] bytes, int from, int to) {
    for (int at = from; at < to; at++) {
      if (bytes[at] != 0) {
        return false;
      }
    }
    return true;
  }

  // 0: not of this family.
  private static int bits(String algorithm, String family) {
    for (int bits : new int[] {256, 384, 512}) {
      if (algorithm.equals(family + bits)) {
        return bits;
      }
    }
    return 0;
  }

  // As Pulsar's: a URL of a file, its path, the content as data:;base64,... or the content alone. A
  // text that may be a secret key is in no message.
  private static byte[] bytes(String said, String where, boolean isSecret) {
    if (where.startsWith("data:")) {
      int comma = where.indexOf(',');
      require(
          comma > 0 && where.substring(0, comma).endsWith(";base64"),
          said + " must be data:;base64, and the key in base64");
      return base64(said, where.substring(comma + 1), "holds no base64 after its comma");
    }
    if (!isFile(where, isSecret)) {
      return content(said, where.strip());
    }
    Path path = Path.of(where.replaceFirst("^file:(//)?", ""));
    try (InputStream file = Files.newInputStream(path)) {
      if (isSecret) {
        Secrets.warnIfOthersRead(said, path);
      }
      byte[] bytes = file.readNBytes(BYTES_MAX + 1);
      require(bytes.length <= BYTES_MAX, said + " " + path + " is no key: it is too long");
      return bytes;
    } catch (IOException unreadable) {
      throw new IllegalArgumentException(
          said
              + " "
              + path
              + " cannot be read: "
              + unreadable
              + "; write file:///PATH, a path, or data:;base64,KEY",
          unreadable);
    }
  }

  /** Whether a secret key is in a file of its own, and not said here. */
  static boolean isFile(String where) {
    return isFile(where, true);
  }

  // A secret key in base64 may begin with a slash, a public one never does.
  private static boolean isFile(String where, boolean isSecret) {
    return where.startsWith("file:")
        || (!isSecret && where.startsWith("/"))
        || path(where).map(Files::exists).orElse(false);
  }

  // Java's own decoder does without padding: a path would be the key.
  private static byte[] content(String said, String text) {
    String otherwise =
        "has "
            + text.length()
            + " characters, and is neither a file that is there for this user nor a key in base64"
            + " (of which four characters are three bytes, with = at the end): write file:///PATH,"
            + " or data:;base64,KEY";
    require(text.length() % 4 == 0 && !isBelowFolder(text), said + " " + otherwise);
    return base64(said, text, otherwise);
  }

  // The path of a file that is not there can be base64 throughout.
  private static boolean isBelowFolder(String text) {
    return path(text)
        .filter(path -> path.getNameCount() > 1)
        .map(path -> path.isAbsolute() ? path.getRoot().resolve(path.getName(0)) : path.getName(0))
        .map(Files::isDirectory)
        .orElse(false);
  }

  private static Optional<Path> path(String text) {
    try {
      return Optional.of(Path.of(text));
    } catch (InvalidPathException noPath) {
      return Optional.empty();
    }
  }

  private static byte[] base64(String said, String text, String otherwise) {
    try {
      return Base64.getDecoder().decode(text.trim());
    } catch (IllegalArgumentException wrong) {
      // Without the cause, which has characters of the text.
      throw new IllegalArgumentException(said + " " + otherwise);
    }
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
