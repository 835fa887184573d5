package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

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
    return assertThrows(LedgerFailure.class, () -> roles.check(method, role, token)).failure().getReason();
  }

  @Test
  void readersReadAndWritersDoEverything() {
    Roles roles = new Roles(settings(), failure -> { });
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

  @Test
  void aRoleWithATokenMustProveItself(@TempDir Path folder) throws Exception {
    Path file = Files.writeString(folder.resolve("token"), "s3cret\n");
    Roles roles = new Roles(settings("--writer-token-file", file.toString()), failure -> { });
    assertDoesNotThrow(() -> roles.check("Fence", "writer", "s3cret"));
    assertEquals("BAD_TOKEN", reason(roles, "Fence", "writer", "other"));
    assertEquals("BAD_TOKEN", reason(roles, "Fence", "writer", null));
    assertDoesNotThrow(() -> roles.check("Read", "reader", null));
  }

  @Test
  void limitsMustFitEachOther() {
    assertThrows(IllegalArgumentException.class, () -> settings("--message-bytes-max", "4194304"));
    assertThrows(IllegalArgumentException.class,
        () -> settings("--entry-bytes-max", "5242880", "--message-bytes-max", "8388608"));
    assertThrows(IllegalArgumentException.class, () -> settings("--read-chunk-bytes", "8388608"));
    // The default fits the frame of a bookie that nobody configured, and one that Pulsar did.
    assertEquals((5 << 20) - (64 << 10), settings().entryBytesMax());
    assertEquals(5_253_120, settings().bookieFrameBytesMax());
    assertEquals(8 << 20, settings("--entry-bytes-max", "8388608", "--message-bytes-max", "16777216",
        "--bookie-frame-bytes-max", "134217728").entryBytesMax());
  }
}
