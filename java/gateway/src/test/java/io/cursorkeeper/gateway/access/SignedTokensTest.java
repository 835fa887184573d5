package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.servers.Jwt;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.spec.ECGenParameterSpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SignedTokensTest {
  private static final double NOW = 1_000;
  private static final String SUBJECT = "{\"sub\":\"s\"}";

  @TempDir Path folder;

  private static SignedTokens of(String... args) {
    return SignedTokens.of(Flags.parse(withConfig(), args)).orElseThrow();
  }

  private static List<io.cursorkeeper.gateway.process.Flag> withConfig() {
    List<io.cursorkeeper.gateway.process.Flag> flags = new ArrayList<>(SignedTokens.FLAGS);
    flags.add(Flags.CONFIG);
    return flags;
  }

  private static String data(byte[] bytes) {
    return "data:;base64," + Base64.getEncoder().encodeToString(bytes);
  }

  private static KeyPair curve(String name) throws Exception {
    KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
    generator.initialize(new ECGenParameterSpec(name));
    return generator.generateKeyPair();
  }

  private static void refused(SignedTokens tokens, String token) {
    assertThrows(SignedTokens.WrongTokenException.class, () -> tokens.verified(token, NOW), token);
  }

  private static String wrong(String... args) {
    return assertThrows(IllegalArgumentException.class, () -> of(args)).getMessage();
  }

  @Test
  void whichAlgorithmsCountFollowsFromTheKey() throws Exception {
    byte[] secret = new byte[48];
    SignedTokens secrets = of("--token-secret-key", data(secret));
    assertEquals("s", secrets.verified(Jwt.mac("HS256", secret, SUBJECT), NOW).subject());
    assertEquals("s", secrets.verified(Jwt.mac("HS384", secret, SUBJECT), NOW).subject());
    // Too short a key for what it would have to be.
    refused(secrets, Jwt.mac("HS512", secret, SUBJECT));
    refused(secrets, Jwt.mac("HS256", new byte[32], SUBJECT) + "x");
    SignedTokens alone = of("--token-secret-key", Base64.getEncoder().encodeToString(secret));
    assertEquals("s", alone.verified(Jwt.mac("HS256", secret, SUBJECT), NOW).subject());

    KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
    generator.initialize(2_048);
    KeyPair rsa = generator.generateKeyPair();
    Path der = Files.write(folder.resolve("rsa.der"), rsa.getPublic().getEncoded());
    SignedTokens published = of("--token-public-key", der.toString());
    assertEquals(
        "s",
        published
            .verified(Jwt.signed("RS512", "SHA512withRSA", rsa.getPrivate(), SUBJECT), NOW)
            .subject());
    for (int bits : new int[] {256, 384, 512}) {
      assertEquals(
          "s", published.verified(Jwt.padded(bits, rsa.getPrivate(), SUBJECT), NOW).subject());
    }
    String words = "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"1\"%s}";
    assertEquals(
        "s",
        published
            .verified(
                Jwt.headed(words.formatted(""), SUBJECT, "SHA256withRSA", rsa.getPrivate()), NOW)
            .subject());
    for (String more : new String[] {",\"crit\":[\"x\"]", ",\"alg\":\"RS256\""}) {
      refused(
          published, Jwt.headed(words.formatted(more), SUBJECT, "SHA256withRSA", rsa.getPrivate()));
    }
    refused(published, Jwt.signed("RS256", "SHA512withRSA", rsa.getPrivate(), SUBJECT));
    refused(published, Jwt.mac("HS256", rsa.getPublic().getEncoded(), SUBJECT));
    refused(published, Jwt.signed("none", "SHA256withRSA", rsa.getPrivate(), SUBJECT));

    for (String[] kind :
        new String[][] {
          {"ES256", "secp256r1", "SHA256"},
          {"ES384", "secp384r1", "SHA384"},
          {"ES512", "secp521r1", "SHA512"}
        }) {
      KeyPair own = curve(kind[1]);
      Path pem =
          Files.writeString(
              folder.resolve(kind[0]),
              "-----BEGIN PUBLIC KEY-----\n"
                  + Base64.getMimeEncoder().encodeToString(own.getPublic().getEncoded())
                  + "\n-----END PUBLIC KEY-----\n");
      SignedTokens tokens =
          of("--token-public-key", "file://" + pem, "--token-public-alg", kind[0]);
      String jdk = kind[2] + "withECDSAinP1363Format";
      String good = Jwt.signed(kind[0], jdk, own.getPrivate(), SUBJECT);
      assertEquals("s", tokens.verified(good, NOW).subject());
      refused(tokens, Jwt.signed("RS256", jdk, own.getPrivate(), SUBJECT));
      refused(tokens, Jwt.signed(kind[0], jdk, curve(kind[1]).getPrivate(), SUBJECT));
      byte[] zeros = new byte[Base64.getUrlDecoder().decode(good.split("\\.")[2]).length];
      refused(
          tokens,
          good.substring(0, good.lastIndexOf('.') + 1)
              + Base64.getUrlEncoder().withoutPadding().encodeToString(zeros));
    }
  }

  @Test
  void atWhichTimeAndForWhom() throws Exception {
    byte[] secret = new byte[32];
    SignedTokens tokens =
        of(
            "--token-secret-key",
            data(secret),
            "--token-auth-claim",
            "name",
            "--token-audience-claim",
            "for",
            "--token-audience",
            "us");
    String good = "{\"name\":[\"n\",\"m\"],\"for\":[\"them\",\"us\"],\"exp\":1001,\"nbf\":1000}";
    String token = Jwt.mac("HS256", secret, good);
    assertEquals("n", tokens.verified(token, NOW).subject());
    // Also what was verified before.
    assertTrue(
        assertThrows(SignedTokens.WrongTokenException.class, () -> tokens.verified(token, 1_001))
            .isExpired());
    assertFalse(
        assertThrows(SignedTokens.WrongTokenException.class, () -> tokens.verified(token, 999))
            .isExpired());
    for (String claims :
        new String[] {
          "{\"sub\":\"n\",\"for\":\"us\"}",
          "{\"name\":\"n\"}",
          "{\"name\":\"n\",\"for\":\"them\"}",
          "{\"name\":1,\"for\":\"us\"}",
          "{\"name\":\"\",\"for\":\"us\"}",
          "{\"name\":[],\"for\":\"us\"}",
          "{\"name\":\"n\",\"for\":\"us\",\"exp\":\"1001\"}",
          "{\"name\":\"n\",\"for\":\"us\",\"exp\":null}",
          "{\"name\":\"n\",\"name\":\"m\",\"for\":\"us\"}",
          "[]",
          ""
        }) {
      refused(tokens, Jwt.mac("HS256", secret, claims));
    }
    for (String other : new String[] {"..", "a.b.c", token + "=.", "." + token.substring(1)}) {
      refused(tokens, other);
    }
    assertTrue(SignedTokens.isSigned(token));
    assertFalse(SignedTokens.isSigned("a.b") || SignedTokens.isSigned("a.b.c.d"));
  }

  @Test
  void aSecretInBase64ThatBeginsWithASlashIsNoPath() throws Exception {
    byte[] secret = new byte[32];
    secret[0] = (byte) 0xff;
    String text = Base64.getEncoder().encodeToString(secret);
    assertTrue(text.startsWith("/"));
    SignedTokens tokens = of("--token-secret-key", text);
    assertEquals("s", tokens.verified(Jwt.mac("HS256", secret, SUBJECT), NOW).subject());
  }

  @Test
  void aPathOfNoFileIsNoSecret() {
    // All characters are base64's, and Java's decoder takes 46 of them, too.
    List<String> paths = new ArrayList<>(List.of("etc/pulsar/keys/of/this/cluster/tokensecretkey"));
    String path = "/" + folder.getName(0) + "/a/folder/of/the/keys/of/this/cluster/key";
    for (int more = 0; more < 4; more++) {
      paths.add(path + "k".repeat(more));
    }
    for (String one : paths) {
      String said = wrong("--token-secret-key", one);
      assertTrue(
          said.startsWith(
              "--token-secret-key has " + one.length() + " characters, and is neither a file"),
          said);
    }
  }

  @Test
  void noMessageHasASecret() throws Exception {
    Random random = new Random(7);
    for (int run = 0; run < 300; run++) {
      byte[] secret = new byte[32 + 16 * (run % 3)];
      random.nextBytes(secret);
      secret[0] = (byte) (run % 2 == 0 ? 0xff : secret[0]);
      String text = Base64.getEncoder().encodeToString(secret);
      // Cut off, mistyped, or in the place of the public one.
      for (String[] args :
          new String[][] {
            {"--token-secret-key", text.substring(0, 41)},
            {"--token-secret-key", text.substring(0, 40)},
            {"--token-secret-key", text.substring(0, 20) + "-" + text.substring(21)},
            {"--token-secret-key", "data:;base64," + text.substring(0, 41)},
            {"--token-secret-key", "data:" + text},
            {"--token-public-key", "M" + text.substring(1)},
            {"--token-public-key", "data:;base64," + text},
            {"--token-secret-key", text, "--token-public-key", text},
            {"--token-secret-key", text, "--token-audience", "us"}
          }) {
        Throwable wrong = assertThrows(IllegalArgumentException.class, () -> of(args));
        String said = wrong.getMessage();
        assertTrue(said.contains("--token-"), said);
        assertNull(wrong.getCause(), said);
        assertFalse(said.contains(text.substring(1, 12)), said);
      }
    }
  }

  @Test
  void aKeyThatCannotBeUsedEndsTheStart() throws Exception {
    assertTrue(wrong("--token-secret-key", data(new byte[16])).contains("16 bytes"));
    assertTrue(wrong("--token-secret-key", "data:,abc").contains("base64"));
    assertTrue(wrong("--token-secret-key", "file://" + folder + "/n").contains("cannot be read"));
    assertTrue(wrong("--token-public-key", folder + "/none").contains("/none cannot be read"));
    assertTrue(
        wrong("--token-secret-key", "no key")
            .startsWith("--token-secret-key has 6 characters, and is neither a file"));
    assertTrue(
        wrong(
                "--token-public-key",
                data("no key".getBytes(StandardCharsets.UTF_8)),
                "--token-public-alg",
                "ES256")
            .contains("no public key of EC"));
    assertTrue(wrong("--token-public-alg", "RS256").contains("without a key"));
    assertTrue(wrong("--token-audience", "us").contains("go together"));
    String key = data(new byte[32]);
    assertTrue(wrong("--token-secret-key", key, "--token-public-key", key).contains("one of them"));
  }
}
