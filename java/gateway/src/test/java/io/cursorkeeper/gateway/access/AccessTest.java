package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
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
    assertTrue(ACCESS.mayAppend(writer, Role.WRITER, ours("here")));
    assertFalse(ACCESS.mayAppend(writer, Role.WRITER, ours("there")));
    assertFalse(ACCESS.mayAppend(writer, Role.MIGRATOR, whose(PULSAR_CURSOR)));
    assertTrue(ACCESS.mayAppend(caller(Role.MIGRATOR), Role.MIGRATOR, whose(PULSAR_CURSOR)));
    assertFalse(ACCESS.mayAppend(caller(Role.MIGRATOR), Role.WRITER, ours("here")));
    assertFalse(ACCESS.mayAppend(nobody, Role.WRITER, ours("here")));
    assertTrue(new Access(true).mayAppend(nobody, Role.WRITER, ours("here")));
    // A daemon of release 0.1 names none, and is taken at its word while an upgrade lasts.
    new Access(true).mayFence(nobody, 1, ours("here"));
    assertEquals(
        "OTHER_DEPLOYMENT", refused(() -> new Access(true).mayFence(writer, 1, ours("there"))));
  }

  private static Caller of(Role role, String topics, String... deployments) {
    Identity identity =
        new Identity("one", Set.of(role), Set.of(topics), Set.of(deployments), Map.of());
    return new Caller(identity, role, "here", "");
  }

  @Test
  void anIdentityHasToDoWithItsOwnDeploymentsAndTopicsOnly() {
    Caller writer = of(Role.WRITER, "none", "here", "near");
    ACCESS.mayFence(writer, 1, ours("here"));
    ACCESS.mayCreate(writer, ours("here"));
    ACCESS.mayRead(writer, 1, ours("near"));
    // It has both, and acts for the one that it names.
    assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayCreate(writer, ours("near"))));
    for (String other : new String[] {"there", ""}) {
      assertFalse(ACCESS.sees(writer, ours(other)));
      assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayRead(writer, 1, ours(other))));
      assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayCreate(writer, ours(other))));
      assertEquals("OTHER_DEPLOYMENT", refused(() -> ACCESS.mayEnd(writer, 1, ours(other))));
      // Also while callers may name no deployment.
      Caller old = new Caller(writer.identity(), Role.WRITER, "", "");
      assertEquals(
          "OTHER_DEPLOYMENT", refused(() -> new Access(true).mayFence(old, 1, ours(other))));
      assertFalse(new Access(true).mayAppend(old, Role.WRITER, ours(other)));
    }
    Whose cursor = whose(PULSAR_CURSOR);
    Whose messages = pulsarCursorBut("pulsar/cursor", null);
    for (String topics : new String[] {"persistent://public/", "persistent://public/default/t"}) {
      ACCESS.mayRead(of(Role.READER, topics), 1, cursor);
      ACCESS.maySeeTheEnd(of(Role.READER, topics), 1, messages);
      ACCESS.mayCreate(of(Role.MIGRATOR, topics), cursor);
      ACCESS.mayEnd(of(Role.MIGRATOR, topics), 1, cursor);
      assertTrue(ACCESS.mayAppend(of(Role.MIGRATOR, topics), Role.MIGRATOR, cursor));
      assertEquals("NOT_OURS", refused(() -> ACCESS.mayRead(of(Role.READER, topics), 1, messages)));
    }
    for (String topics : new String[] {"persistent://public/default/u", "persistent://pub"}) {
      assertFalse(ACCESS.sees(of(Role.READER, topics), cursor));
      assertEquals(
          "OTHER_TOPIC", refused(() -> ACCESS.mayRead(of(Role.READER, topics), 1, cursor)));
      assertEquals(
          "OTHER_TOPIC", refused(() -> ACCESS.maySeeTheEnd(of(Role.READER, topics), 1, messages)));
      assertEquals(
          "OTHER_TOPIC", refused(() -> ACCESS.mayCreate(of(Role.MIGRATOR, topics), cursor)));
      assertFalse(ACCESS.mayAppend(of(Role.MIGRATOR, topics), Role.MIGRATOR, cursor));
    }
    // What it may not know, a refusal does not tell.
    String said =
        assertThrows(
                LedgerFailure.class,
                () -> ACCESS.mayRead(of(Role.READER, "persistent://else/"), 7, cursor))
            .getMessage();
    assertFalse(said.contains("public"), said);
  }

  @Test
  void topicsOfPulsarsLedgersAreNamedAsPulsarNamesThem() {
    assertEquals("persistent://a/b/t", Whose.topic("a/b/persistent/t"));
    assertEquals("persistent://a/b/x/y z", Whose.topic("a/b/persistent/x%2Fy+z"));
    assertEquals("persistent://a/cluster/b/t", Whose.topic("a/cluster/b/persistent/t"));
    for (String none : new String[] {"", "t", "a/b/t", "a//persistent/t", "a/b/persistent/%zz"}) {
      assertEquals("", Whose.topic(none));
    }
    Identity one =
        new Identity(
            "one", Set.of(), Set.of("persistent://a/b/t", "persistent://c/"), Set.of(), Map.of());
    assertTrue(one.hasTopic("persistent://a/b/t"));
    assertTrue(one.hasTopic("persistent://a/b/t-partition-12"));
    assertTrue(one.hasTopic("persistent://c/d/u"));
    for (String other :
        new String[] {
          "", "persistent://a/b/t2", "persistent://a/b/t-partition-x", "persistent://c"
        }) {
      assertFalse(one.hasTopic(other), other);
    }
    // Names that are alike in their first two hundred characters are two names.
    String far = "x".repeat(300);
    assertEquals(far + "1", ours(far + "1").deployment());
  }
}
