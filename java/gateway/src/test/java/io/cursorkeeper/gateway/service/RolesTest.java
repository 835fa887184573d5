package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.process.Flags;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class RolesTest {
  private static GatewaySettings settings(String... args) {
    return GatewaySettings.of(Flags.parse(GatewaySettings.FLAGS, args));
  }

  private static String reason(Roles roles, String method, String role, String token) {
    return assertThrows(LedgerFailure.class, () -> roles.check(method, role, token))
        .failure()
        .getReason();
  }

  @Test
  void readersReadAndWritersDoEverything() {
    Roles roles = new Roles(settings(), failure -> {});
    for (String method : new String[] {"Create", "Append", "Fence", "Close", "Delete"}) {
      assertDoesNotThrow(() -> roles.check(method, "writer", null));
      assertEquals("READERS_MAY_NOT", reason(roles, method, "reader", null));
      assertEquals("READERS_MAY_NOT", reason(roles, method, null, null));
    }
    for (String method : new String[] {"Read", "List", "Metadata", "Describe"}) {
      assertDoesNotThrow(() -> roles.check(method, null, null));
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
    Roles roles = new Roles(settings(tokens(folder, "writer", "reader")), failure -> {});
    assertDoesNotThrow(() -> roles.check("Fence", "writer", "s3cret-writer"));
    assertDoesNotThrow(() -> roles.check("Read", null, "s3cret-reader"));
    // Whoever may write may read; a reader may not write.
    assertDoesNotThrow(() -> roles.check("Read", "reader", "s3cret-writer"));
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
    assertEquals(
        "ROLE_OFF", reason(new Roles(settings(), failure -> {}), "Create", "migrator", null));
    assertDoesNotThrow(
        () -> new Roles(settings("--migrator"), failure -> {}).check("Create", "migrator", null));
    Roles roles =
        new Roles(settings(tokens(folder, "writer", "reader", "migrator")), failure -> {});
    assertDoesNotThrow(() -> roles.check("Create", "migrator", "s3cret-migrator"));
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
    String[] tokens = tokens(folder, "writer", "reader");
    assertDoesNotThrow(
        () -> settings("--host", "0.0.0.0", tokens[0], tokens[1], tokens[2], tokens[3]));
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
