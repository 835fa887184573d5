package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.servers.Jwt;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.gateway.systems.Systems;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A gateway takes the keys of signed tokens from the brokers' own settings. */
class BrokersTokensTest {
  private static final String PROVIDERS =
      "authenticationProviders=a.Other, "
          + "org.apache.pulsar.broker.authentication.AuthenticationProviderToken\n";
  private static final byte[] SECRET =
      "0123456789abcdef0123456789abcdef".getBytes(StandardCharsets.US_ASCII);
  private static final String BASE64 = Base64.getEncoder().encodeToString(SECRET);
  private static final double NOW = 1_000;

  @TempDir Path folder;

  private Optional<SignedTokens> of(String conf, String... more) throws Exception {
    Path file = Files.writeString(folder.resolve("broker.conf"), conf);
    Path identities = Files.writeString(folder.resolve("identities.json"), "{\"identities\":[]}");
    List<String> args =
        new ArrayList<>(
            List.of("--broker-conf", file.toString(), "--identities-file", identities.toString()));
    args.addAll(Arrays.asList(more));
    return ofFlags(args.toArray(String[]::new));
  }

  private static Optional<SignedTokens> ofFlags(String... args) {
    List<Flag> known = new ArrayList<>(Systems.FLAGS);
    known.addAll(GatewaySettings.FLAGS);
    known.add(Flags.CONFIG);
    return SignedTokens.of(Systems.withBrokersTokens(Flags.parse(known, args)));
  }

  private static String subject(Optional<SignedTokens> tokens, String token) throws Exception {
    return tokens.orElseThrow().verified(token, NOW).subject();
  }

  private String wrong(String conf) {
    return assertThrows(IllegalArgumentException.class, () -> of(conf)).getMessage();
  }

  @Test
  void aSecretInEveryFormThatABrokerTakes() throws Exception {
    Path file = Files.write(folder.resolve("secret.key"), SECRET);
    String token = Jwt.mac("HS256", SECRET, "{\"sub\":\"s\"}");
    for (String form :
        List.of("file://" + file, file.toString(), "data:;base64," + BASE64, BASE64)) {
      assertEquals("s", subject(of(PROVIDERS + "tokenSecretKey=" + form), token), form);
    }
  }

  @Test
  void aPublicKeyItsKindTheClaimAndTheAudience() throws Exception {
    KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
    generator.initialize(2_048);
    KeyPair pair = generator.generateKeyPair();
    Path file = Files.write(folder.resolve("public.key"), pair.getPublic().getEncoded());
    Optional<SignedTokens> tokens =
        of(
            PROVIDERS
                + "tokenPublicKey=file://"
                + file
                + "\ntokenPublicAlg=RS256\ntokenAuthClaim=role\ntokenAudienceClaim=aud\n"
                + "tokenAudience=us\n");
    String claims = "{\"role\":\"r\",\"aud\":\"us\"}";
    assertEquals(
        "r", subject(tokens, Jwt.signed("RS256", "SHA256withRSA", pair.getPrivate(), claims)));
    String forOthers = Jwt.signed("RS256", "SHA256withRSA", pair.getPrivate(), "{\"role\":\"r\"}");
    assertThrows(SignedTokens.WrongTokenException.class, () -> subject(tokens, forOthers));
  }

  @Test
  void whoAsksForNoTokensOrKnowsNobodyTakesNone() throws Exception {
    String key = "tokenSecretKey=" + BASE64;
    assertTrue(of(key).isEmpty());
    assertTrue(of("authenticationProviders=a.Other\n" + key).isEmpty());
    Path file = Files.writeString(folder.resolve("other.conf"), PROVIDERS + key);
    assertTrue(ofFlags("--broker-conf", file.toString()).isEmpty());
  }

  @Test
  void oneFlagOfTokensAndAllOfTheFileCountsNot() throws Exception {
    byte[] own = new byte[32];
    Optional<SignedTokens> tokens =
        of(
            PROVIDERS + "tokenSecretKey=" + BASE64 + "\ntokenAuthClaim=role\n",
            "--token-secret-key",
            "data:;base64," + Base64.getEncoder().encodeToString(own));
    assertEquals("s", subject(tokens, Jwt.mac("HS256", own, "{\"sub\":\"s\"}")));
    assertThrows(
        SignedTokens.WrongTokenException.class,
        () -> subject(tokens, Jwt.mac("HS256", SECRET, "{\"sub\":\"s\",\"role\":\"r\"}")));
  }

  @Test
  void aWrongLineIsToldByItsNameInTheFile() {
    String file = folder + "/broker.conf: ";
    assertTrue(
        wrong(PROVIDERS + "tokenSecretKey=file:///none").contains(file + "tokenSecretKey /none"));
    assertTrue(wrong(PROVIDERS + "tokenSecretKey=c2hvcnQ=").contains("tokenSecretKey has 5 bytes"));
    assertTrue(
        wrong(PROVIDERS + "tokenSecretKey=" + BASE64 + "\ntokenPublicKey=" + BASE64)
            .startsWith(file + "tokenSecretKey and " + file + "tokenPublicKey: name one"));
    assertTrue(
        wrong(PROVIDERS + "tokenSecretKey=" + BASE64 + "\ntokenAudience=us")
            .contains(file + "tokenAudience go together"));
  }
}
