package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.process.Flags;
import io.cursorkeeper.gateway.service.GatewaySettings;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class CallersTest {
  private static GatewaySettings settings(String... args) {
    return GatewaySettings.of(Flags.parse(GatewaySettings.FLAGS, args));
  }

  private static Callers callers(GatewaySettings settings) {
    return new Callers(settings.access(), new AuditLog("", lost -> {}), failure -> {}, peer -> {});
  }

  // As the interceptor does it where there is no identities file.
  private static void check(Callers callers, String method, String word, String token) {
    Role role = Callers.role(word);
    callers.checkToken(role, token);
    Callers.allowed(LedgersGrpc.SERVICE_NAME, method, new Caller(role, ""));
  }

  private static String reason(Callers callers, String method, String role, String token) {
    return assertThrows(LedgerFailure.class, () -> check(callers, method, role, token))
        .failure()
        .getReason();
  }

  @Test
  void readersReadAndWritersDoEverything() {
    Callers roles = callers(settings());
    for (String method : new String[] {"Create", "Append", "Fence", "Close", "Delete"}) {
      assertDoesNotThrow(() -> check(roles, method, "writer", null));
      assertEquals("READERS_MAY_NOT", reason(roles, method, "reader", null));
      assertEquals("READERS_MAY_NOT", reason(roles, method, null, null));
    }
    for (String method : new String[] {"Read", "List", "Metadata", "Describe"}) {
      assertDoesNotThrow(() -> check(roles, method, null, null));
    }
    assertEquals("BAD_ROLE", reason(roles, "Read", "admin", null));
  }

  private static String[] tokens(Path folder, String... roles) throws Exception {
    String[] args = new String[2 * roles.length];
    for (int at = 0; at < roles.length; at++) {
      args[2 * at] = "--" + roles[at] + "-token-file";
      args[2 * at + 1] =
          Files.writeString(folder.resolve(roles[at]), "s3cret-" + roles[at] + "\n").toString();
    }
    return args;
  }

  private static String wrong(String... args) {
    return assertThrows(IllegalArgumentException.class, () -> settings(args)).getMessage();
  }

  @Test
  void everyRoleMustProveItself(@TempDir Path folder) throws Exception {
    Callers roles = callers(settings(tokens(folder, "writer", "reader")));
    assertDoesNotThrow(() -> check(roles, "Fence", "writer", "s3cret-writer"));
    assertDoesNotThrow(() -> check(roles, "Read", null, "s3cret-reader"));
    // Whoever may write may read; a reader may not write.
    assertDoesNotThrow(() -> check(roles, "Read", "reader", "s3cret-writer"));
    for (String token : new String[] {null, "", "other", "s3cret-reader"}) {
      assertEquals("BAD_TOKEN", reason(roles, "Fence", "writer", token));
    }
    for (String method : new String[] {"Read", "List", "Metadata", "End", "Describe"}) {
      assertEquals("BAD_TOKEN", reason(roles, method, "reader", null));
    }
    assertEquals("ROLE_OFF", reason(roles, "Create", "migrator", "s3cret-writer"));
  }

  @Test
  void theRoleMigratorIsOffUntilItIsSwitchedOn(@TempDir Path folder) throws Exception {
    assertEquals("ROLE_OFF", reason(callers(settings()), "Create", "migrator", null));
    assertDoesNotThrow(() -> check(callers(settings("--migrator")), "Create", "migrator", null));
    Callers roles = callers(settings(tokens(folder, "writer", "reader", "migrator")));
    assertDoesNotThrow(() -> check(roles, "Create", "migrator", "s3cret-migrator"));
    assertEquals("BAD_TOKEN", reason(roles, "Create", "migrator", "s3cret-writer"));
    assertEquals("BAD_TOKEN", reason(roles, "Create", "writer", "s3cret-migrator"));
  }

  @Test
  void aTokenThatLeavesAnotherRoleOpenIsRefusedAtTheStart(@TempDir Path folder) throws Exception {
    assertTrue(wrong(tokens(folder, "reader")).contains("--writer-token-file is missing"));
    assertTrue(wrong(tokens(folder, "writer")).contains("--reader-token-file is missing"));
    assertTrue(wrong(tokens(folder, "migrator")).contains("is missing"));
    String[] same = tokens(folder, "writer", "reader");
    Files.writeString(Path.of(same[1]), "s3cret-reader");
    assertTrue(wrong(same).contains("the same token"));
    Files.writeString(Path.of(same[1]), "example-writer-token-change-me\n");
    assertTrue(wrong(same).contains("placeholder 'example-writer-token-change-me'"));
  }

  @Test
  void onlyThisMachineMayConnectWithoutAToken(@TempDir Path folder) throws Exception {
    for (String host : new String[] {"127.0.0.1", "localhost", "127.0.0.5"}) {
      assertDoesNotThrow(() -> settings("--host", host));
    }
    assertTrue(wrong("--host", "0.0.0.0").contains("--insecure"));
    assertDoesNotThrow(() -> settings("--host", "0.0.0.0", "--insecure"));
    assertDoesNotThrow(() -> settings("--insecure", "true", "--host", "0.0.0.0"));
    // A token in plain text is anybody's who listens.
    String[] tokens = tokens(folder, "writer", "reader");
    String said = wrong("--host", "0.0.0.0", tokens[0], tokens[1], tokens[2], tokens[3]);
    assertTrue(said.contains("plain text") && said.contains("--insecure"), said);
    assertDoesNotThrow(
        () ->
            settings(
                "--host", "0.0.0.0", tokens[0], tokens[1], tokens[2], tokens[3], "--insecure"));
    AccessSettings with = settings(tokens).access();
    assertDoesNotThrow(() -> with.requireSafe("0.0.0.0", true, false, false));
    AccessSettings without = settings().access();
    assertDoesNotThrow(() -> without.requireSafe("0.0.0.0", true, true, false));
    assertThrows(
        IllegalArgumentException.class, () -> without.requireSafe("0.0.0.0", true, false, false));
  }

  @Test
  void everyCallOfTheContractHasARowAndNothingElseHas() {
    Caller writer = new Caller(Role.WRITER, "");
    LedgersGrpc.getServiceDescriptor()
        .getMethods()
        .forEach(
            method ->
                assertDoesNotThrow(
                    () ->
                        Callers.allowed(
                            LedgersGrpc.SERVICE_NAME, method.getBareMethodName(), writer)));
    assertEquals(Rpc.values().length, LedgersGrpc.getServiceDescriptor().getMethods().size());
    for (String[] other :
        new String[][] {{LedgersGrpc.SERVICE_NAME, "Truncate"}, {"other.Ledgers", "Read"}}) {
      assertEquals(
          "UNKNOWN_CALL",
          assertThrows(LedgerFailure.class, () -> Callers.allowed(other[0], other[1], writer))
              .failure()
              .getReason());
    }
  }

  @Test
  void withIdentitiesOlderWaysAreRefusedAtTheStart(@TempDir Path folder) throws Exception {
    Path file = folder.resolve("identities.json");
    Files.writeString(file, "{\"identities\": []}");
    String[] tokens = tokens(folder, "writer", "reader");
    String both =
        wrong("--identities-file", file.toString(), tokens[0], tokens[1], tokens[2], tokens[3]);
    assertTrue(
        both.contains("--identities-file")
            && both.contains("-token-file")
            && both.contains("leave"),
        both);
    assertTrue(wrong("--identities-file", file.toString(), "--migrator").contains("leave"));
    assertTrue(
        wrong("--token-secret-key", "data:;base64," + "A".repeat(44))
            .contains("--identities-file"));
    assertTrue(
        wrong("--identities-file", folder.resolve("none").toString()).contains("cannot be read"));
    Files.writeString(file, "{\"identities\": [{}]}");
    assertTrue(wrong("--identities-file", file.toString()).contains("\"name\""));
  }

  @Test
  void limitsMustFitEachOther() {
    assertThrows(IllegalArgumentException.class, () -> settings("--message-bytes-max", "4194304"));
    assertThrows(
        IllegalArgumentException.class,
        () -> settings("--entry-bytes-max", "5242880", "--message-bytes-max", "8388608"));
    assertThrows(IllegalArgumentException.class, () -> settings("--read-chunk-bytes", "8388608"));
    // The default fits the frame of a bookie that nobody configured, and one that Pulsar did.
    assertEquals((5 << 20) - (64 << 10), settings().entryBytesMax());
    assertEquals(5_253_120, settings().bookieFrameBytesMax());
    assertEquals(
        8 << 20,
        settings(
                "--entry-bytes-max",
                "8388608",
                "--message-bytes-max",
                "16777216",
                "--bookie-frame-bytes-max",
                "134217728")
            .entryBytesMax());
  }
}
