package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class AccessTest {
  private static final Map<String, String> PULSAR_CURSOR =
      Map.of(
          "application",
          "pulsar",
          "component",
          "managed-ledger",
          "pulsar/managed-ledger",
          "public/default/persistent/t",
          "pulsar/cursor",
          "s");
  private static final Access ACCESS = new Access(false);

  private static Whose whose(Map<String, String> pairs) {
    Map<String, byte[]> bytes = new HashMap<>();
    pairs.forEach((key, value) -> bytes.put(key, value.getBytes(StandardCharsets.UTF_8)));
    return Whose.of(bytes);
  }

  private static Whose pulsarCursorBut(String key, String value) {
    Map<String, String> custom = new HashMap<>(PULSAR_CURSOR);
    custom.compute(key, (name, was) -> value);
    return whose(custom);
  }

  private static Whose ours(String deployment) {
    return whose(Map.of("application", "cursorkeeper", "deployment", deployment));
  }

  private static Caller caller(Role role) {
    return new Caller(role, "here");
  }

  private static String refused(org.junit.jupiter.api.function.Executable call) {
    return assertThrows(LedgerFailure.class, call).failure().getReason();
  }

  @Test
  void whateverIsNotCertainlyACursorIsGivenToNobody() {
    // A message ledger has everything but pulsar/cursor; schemas and compacted messages have
    // another component.
    for (String key : PULSAR_CURSOR.keySet()) {
      for (String value : new String[] {null, "", "schema"}) {
        Whose other = pulsarCursorBut(key, value);
        if (value == null
            || value.isEmpty()
            || key.equals("component")
            || key.equals("application")) {
          for (Role role : Role.values()) {
            assertFalse(ACCESS.sees(caller(role), other), other.said());
            assertEquals("NOT_OURS", refused(() -> ACCESS.mayRead(caller(role), 1, other)));
            assertEquals("NOT_OURS", refused(() -> ACCESS.mayEnd(caller(role), 1, other)));
            assertEquals("NOT_OURS", refused(() -> ACCESS.mayCreate(caller(role), other)));
            assertEquals("NOT_OURS", refused(() -> ACCESS.mayFence(caller(role), 1, other)));
          }
        }
      }
    }
    assertEquals(Whose.Kind.FOREIGN, whose(Map.of()).kind());
    String said =
        assertThrows(
                LedgerFailure.class,
                () ->
                    ACCESS.mayRead(caller(Role.READER), 7, pulsarCursorBut("pulsar/cursor", null)))
            .getMessage();
    assertTrue(
        said.contains("ledger 7 is of Pulsar's messages of public/default/persistent/t"), said);
  }

  @Test
  void pulsarsCursorsAreForReadersAndMigratorsAndNobodyFencesThem() {
    Whose cursor = whose(PULSAR_CURSOR);
    ACCESS.mayRead(caller(Role.READER), 1, cursor);
    ACCESS.mayRead(caller(Role.MIGRATOR), 1, cursor);
    ACCESS.mayCreate(caller(Role.MIGRATOR), cursor);
    ACCESS.mayEnd(caller(Role.MIGRATOR), 1, cursor);
    assertEquals("NOT_OURS", refused(() -> ACCESS.mayRead(caller(Role.WRITER), 1, cursor)));
    assertEquals("MIGRATORS_ONLY", refused(() -> ACCESS.mayEnd(caller(Role.WRITER), 1, cursor)));
    assertEquals("MIGRATORS_ONLY", refused(() -> ACCESS.mayCreate(caller(Role.WRITER), cursor)));
    for (Role role : Role.values()) {
      assertEquals("NOT_OURS", refused(() -> ACCESS.mayFence(caller(role), 1, cursor)));
    }
    // Of a topic's messages only the end is told, and not to daemons.
    Whose messages = pulsarCursorBut("pulsar/cursor", null);
    ACCESS.maySeeTheEnd(caller(Role.READER), 1, messages);
    ACCESS.maySeeTheEnd(caller(Role.MIGRATOR), 1, messages);
    assertEquals("NOT_OURS", refused(() -> ACCESS.maySeeTheEnd(caller(Role.WRITER), 1, messages)));
    assertEquals(
        "NOT_OURS", refused(() -> ACCESS.maySeeTheEnd(caller(Role.READER), 1, whose(Map.of()))));
  }

  @Test
  void oursAreEndedForTheirOwnDeploymentOnly() {
    Caller writer = caller(Role.WRITER);
    ACCESS.mayFence(writer, 1, ours("here"));
    ACCESS.mayEnd(writer, 1, ours("here"));
    ACCESS.mayRead(writer, 1, ours("there"));
    assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayFence(writer, 1, ours("there"))));
    assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayEnd(writer, 1, ours("there"))));
    assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayEnd(writer, 1, ours(""))));
    Caller nobody = new Caller(Role.WRITER, "");
    ACCESS.mayEnd(nobody, 1, ours(""));
    assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayFence(nobody, 1, ours("here"))));
    assertEquals(
        "WRITERS_ONLY", refused(() -> ACCESS.mayEnd(caller(Role.MIGRATOR), 1, ours("here"))));
    // A handle belongs to the role that created it and, if a daemon did, to the ledger's
    // deployment.
    assertTrue(ACCESS.mayAppend(writer, "writer", "here"));
    assertFalse(ACCESS.mayAppend(writer, "writer", "there"));
    assertFalse(ACCESS.mayAppend(writer, "migrator", ""));
    assertTrue(ACCESS.mayAppend(caller(Role.MIGRATOR), "migrator", ""));
    assertFalse(ACCESS.mayAppend(caller(Role.MIGRATOR), "writer", "here"));
    assertFalse(ACCESS.mayAppend(nobody, "writer", "here"));
    assertTrue(new Access(true).mayAppend(nobody, "writer", "here"));
    // A daemon of release 0.1 names none, and is taken at its word while an upgrade lasts.
    new Access(true).mayFence(nobody, 1, ours("here"));
    assertEquals(
        "OTHER_DEPLOYMENT", refused(() -> new Access(true).mayFence(writer, 1, ours("there"))));
  }
}
