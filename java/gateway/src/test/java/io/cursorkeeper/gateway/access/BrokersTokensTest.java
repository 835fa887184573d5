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
import java.nio.file.attribute.PosixFilePermissions;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A gateway takes the keys of signed tokens from the brokers' own settings. */
class BrokersTokensTest {
  private static final String PROVIDERS =
      "authenticationEnabled=true\nauthenticationProviders=a.Other, "
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
    assertTrue(of("authenticationEnabled=true\nauthenticationProviders=a.Other\n" + key).isEmpty());
    assertTrue(of(PROVIDERS + "authenticationEnabled=false\n" + key).isEmpty());
    assertTrue(of(PROVIDERS.substring(PROVIDERS.indexOf('\n') + 1) + key).isEmpty());
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
    // As in a broker, which does not start with it.
    assertTrue(
        wrong(PROVIDERS + "tokenSecretKey=" + BASE64 + "\ntokenAudienceClaim=aud")
            .startsWith(file + "tokenAudienceClaim and " + file + "tokenAudience go together"));
  }

  @Test
  void theSecretKeyCountsAndAnAudienceWithItsClaimOnly() throws Exception {
    Optional<SignedTokens> tokens =
        of(
            PROVIDERS
                + "tokenSecretKey="
                + BASE64
                + "\ntokenPublicKey=file:///none\ntokenPublicAlg=RS256\ntokenAudience=us\n");
    assertEquals("s", subject(tokens, Jwt.mac("HS256", SECRET, "{\"sub\":\"s\"}")));
  }

  @Test
  void namesHaveTheBrokersPrefix() throws Exception {
    String other = Base64.getEncoder().encodeToString(new byte[32]);
    String conf = PROVIDERS + "tokenSettingPrefix=new\ntokenSecretKey=" + other + "\n";
    String own = "newtokenSecretKey=" + BASE64 + "\nnewtokenAuthClaim=role\n";
    assertEquals("r", subject(of(conf + own), Jwt.mac("HS256", SECRET, "{\"role\":\"r\"}")));
    assertTrue(of(conf).isEmpty());
    assertTrue(
        wrong(conf + "newtokenSecretKey=c2hvcnQ=")
            .startsWith(folder + "/broker.conf: newtokenSecretKey has 5 bytes"));
  }

  @Test
  void aKeyThatIsOnBrokersHostsOnlyHasAWayOut() throws Exception {
    String conf = PROVIDERS + "tokenPublicKey=file:///nowhere/public.key\n";
    String said = wrong(conf);
    assertTrue(said.contains("tokenPublicKey /nowhere/public.key cannot be read"), said);
    assertTrue(said.contains("give --token-public-key= (empty)"), said);
    assertTrue(said.endsWith("is taken from " + folder + "/broker.conf"), said);
    assertTrue(of(conf, "--token-public-key=").isEmpty());
    String secret = PROVIDERS + "tokenSecretKey=/nowhere/secret.key\n";
    assertTrue(wrong(secret).contains("give --token-public-key= (empty)"));
    assertTrue(of(secret, "--token-public-key=").isEmpty());
  }

  @Test
  void aFileThatIsAKeyIsWarnedOfAsTheKeysOwn() throws Exception {
    Path file = folder.resolve("broker.conf");
    Path own = Files.write(folder.resolve("secret.key"), SECRET);
    Files.setPosixFilePermissions(own, PosixFilePermissions.fromString("rw-r-----"));
    for (String form : List.of(BASE64, "data:;base64," + BASE64)) {
      Files.deleteIfExists(file);
      Files.createFile(file);
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
      List<String> told = told(() -> of(PROVIDERS + "tokenSecretKey=" + form));
      assertEquals(
          List.of(
              "%1$s: tokenSecretKey is the key itself, and %1$s is open to every user of this machine: `chmod o= %1$s` closes it"
                  .formatted(file)),
          told);
      assertEquals(List.of(), told(() -> of(PROVIDERS + "tokenSecretKey=file://" + own)));
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r-----"));
      assertEquals(List.of(), told(() -> of(PROVIDERS + "tokenSecretKey=" + form)));
    }
    Path config = Files.writeString(folder.resolve("c"), "token-secret-key=" + BASE64);
    Files.setPosixFilePermissions(config, PosixFilePermissions.fromString("rw-r--r--"));
    assertEquals(1, told(() -> ofFlags("--config", config.toString())).size());
    assertEquals(List.of(), told(() -> ofFlags("--token-secret-key", BASE64)));
  }

  /** What the log is told meanwhile of files that are open to everybody. */
  private static List<String> told(Callable<?> what) throws Exception {
    List<String> told = new ArrayList<>();
    AbstractAppender appender =
        new AbstractAppender("told", null, null, true, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            told.add(event.getMessage().getFormattedMessage());
          }
        };
    appender.start();
    Logger logger = (Logger) LogManager.getLogger(Secrets.class);
    logger.addAppender(appender);
    try {
      what.call();
    } finally {
      logger.removeAppender(appender);
    }
    return told;
  }
}
