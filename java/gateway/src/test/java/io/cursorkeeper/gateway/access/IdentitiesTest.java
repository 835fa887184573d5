package io.cursorkeeper.gateway.access;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import javax.security.auth.x500.X500Principal;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class IdentitiesTest {
  private static final String HASH = "sha256:" + "ab".repeat(32);

  private static Identities read(String... all) {
    String text = "{\"identities\":[" + String.join(",", all) + "]}";
    return Identities.of(text.replace('\'', '"').getBytes(StandardCharsets.UTF_8));
  }

  private static String wrong(String... all) {
    return assertThrows(IllegalArgumentException.class, () -> read(all)).getMessage();
  }

  private static String one(String more) {
    return "{'name':'one','roles':['reader'],'token_subjects':['s']" + more + "}";
  }

  @Test
  void anIdentityIsFoundByEverythingThatItProvesItselfWith() {
    Identities all =
        read(
            "{'name':'broker-1','roles':['source','writer'],'certificates':['CN=b, O=Acme'],"
                + "'token_hashes':['"
                + HASH
                + "'],'token_subjects':['b'],'topics':['persistent://acme/'],"
                + "'deployments':['d'],'quotas':{'streams':8,'cursors':1,'read_bytes':4294967296}}",
            one(""));
    Identity broker = all.byTokenSubject("b").orElseThrow();
    assertEquals("broker-1", broker.name());
    assertEquals(Set.of(Role.WRITER), broker.roles());
    assertEquals(broker, all.byTokenHash("ab".repeat(32)).orElseThrow());
    // Names are compared as names: spaces and capitals of attributes do not matter, the order does.
    assertEquals(broker, all.byCertificate(new X500Principal("cn=b,o=acme")).orElseThrow());
    assertTrue(all.byCertificate(new X500Principal("O=Acme,CN=b")).isEmpty());
    assertTrue(all.byCertificate(new X500Principal("CN=b")).isEmpty());
    assertEquals(8, broker.limit(Quota.STREAMS).orElseThrow());
    assertEquals(4_294_967_296L, broker.limit(Quota.READ_BYTES).orElseThrow());
    assertTrue(broker.limit(Quota.READS).isEmpty());
    Identity other = all.byTokenSubject("s").orElseThrow();
    assertFalse(other.hasDeployment("d") || other.hasTopic("persistent://acme/n/t"));
    assertFalse(other.hasDeployment(""), "absent: none");
  }

  /** A daemon's tests have these cases, too. */
  @Test
  void aDaemonTakesTheSameFiles() throws Exception {
    JsonNode cases =
        new ObjectMapper().readTree(Path.of("../../testdata/identities/cases.json").toFile());
    assertTrue(cases.size() > 50);
    for (JsonNode one : cases) {
      byte[] file = one.get("file").asText().getBytes(StandardCharsets.UTF_8);
      String what = one.get("what").asText();
      if (one.get("is_good").asBoolean()) {
        assertDoesNotThrow(() -> Identities.of(file), what);
      } else {
        assertThrows(IllegalArgumentException.class, () -> Identities.of(file), what);
      }
    }
  }

  @Test
  void theFileOfThePageIsOne() throws Exception {
    String page = Files.readString(Path.of("..", "..", "docs", "run", "rights-gateway.md"));
    int begins = page.indexOf("```json") + "```json".length();
    Identities all =
        Identities.of(
            page.substring(begins, page.indexOf("```", begins)).getBytes(StandardCharsets.UTF_8));
    assertEquals(2, all.all().size());
    Identity jobs = all.byTokenSubject("jobs").orElseThrow();
    assertEquals(8, jobs.limit(Quota.READS).orElseThrow());
  }

  @Test
  void whatIsWrongIsNamed() {
    assertTrue(wrong(one(",'x':1")).contains("\"x\""));
    assertTrue(wrong(one(",'topics':'*'")).contains("list of strings"));
    assertTrue(wrong(one(",'topics':[1]")).contains("list of strings"));
    assertTrue(wrong(one(",'topics':['a','a']")).contains("twice"));
    assertTrue(wrong(one(",'quotas':{'streams':0}")).contains("above 0"));
    assertTrue(wrong(one(",'quotas':{'streams':1.5}")).contains("above 0"));
    assertTrue(wrong(one(",'quotas':{'stream':1}")).contains("\"stream\""));
    assertTrue(wrong(one(",'certificates':['b']")).contains("no subject"));
    assertTrue(wrong(one(",'token_hashes':['" + HASH.toUpperCase() + "']")).contains("sha256:"));
    assertTrue(wrong(one(",'name':'two'")).contains("twice"));
    assertTrue(wrong(one(""), one("")).contains("another identity's"));
    assertTrue(wrong(one(""), one("").replace("'one'", "'two'")).contains("one and of two"));
    assertTrue(wrong("{'name':'a b','roles':['reader']}").contains("\"name\""));
    assertTrue(wrong("{'name':'a','roles':[],'token_subjects':['s']}").contains("no role"));
    assertTrue(wrong("{'name':'a','roles':['root'],'token_subjects':['s']}").contains("\"root\""));
    assertTrue(wrong("{'name':'a','roles':['reader']}").contains("prove itself"));
    for (String text :
        new String[] {"", "[]", "{}", "{\"identities\":{}}", "{\"identities\":[]} 1"}) {
      assertThrows(
          IllegalArgumentException.class,
          () -> Identities.of(text.getBytes(StandardCharsets.UTF_8)),
          text);
    }
    // The same in another spelling is the same.
    assertTrue(
        wrong(
                "{'name':'a','roles':['reader'],'certificates':['CN=x,O=y']}",
                "{'name':'b','roles':['reader'],'certificates':['cn=X, o=Y']}")
            .contains("a and of b"));
  }

  @Test
  void aFileIsReadAgainWhenItChangesAndIsNotTooLarge(@TempDir Path folder) throws Exception {
    Path path = folder.resolve("identities.json");
    Files.writeString(path, "{\"identities\":[]}");
    IdentitiesFile file = new IdentitiesFile(path.toString());
    assertFalse(file.look());
    Files.writeString(path, ("{'identities':[" + one("") + "]}").replace('\'', '"'));
    assertTrue(file.look());
    assertEquals(1, file.current().all().size());
    for (String broken : new String[] {"{", " ".repeat(1 << 20) + "{\"identities\":[]}"}) {
      Files.writeString(path, broken);
      assertFalse(file.look());
      assertFalse(file.look());
      assertEquals(1, file.current().all().size());
    }
    Files.delete(path);
    assertFalse(file.look());
    Files.writeString(path, "{\"identities\":[]}");
    assertTrue(file.look());
    assertEquals(0, file.current().all().size());
  }

  @Test
  void filesOfOthersAreTold(@TempDir Path folder) throws Exception {
    Path path = Files.writeString(folder.resolve("token"), "t");
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-r-----"));
    assertFalse(Secrets.othersRead(path));
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-r--r--"));
    assertTrue(Secrets.othersRead(path));
    assertFalse(Secrets.othersWrite(path));
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString("rw-r---w-"));
    assertTrue(Secrets.othersWrite(path));
    assertFalse(Secrets.othersRead(folder.resolve("none")));
  }

  @Test
  void aQuotaCountsWhatIsOpen() {
    Quotas quotas = new Quotas();
    Identity one =
        new Identity("one", Set.of(), Set.of(), Set.of(), java.util.Map.of(Quota.STREAMS, 2L));
    Runnable first = quotas.enter(one, Rpc.APPEND);
    quotas.enter(one, Rpc.APPEND);
    for (int at = 0; at < 3; at++) {
      assertThrows(RuntimeException.class, () -> quotas.enter(one, Rpc.APPEND));
    }
    quotas.enter(one, Rpc.READ).run();
    first.run();
    first.run();
    quotas.enter(one, Rpc.APPEND);
    assertThrows(RuntimeException.class, () -> quotas.enter(one, Rpc.APPEND));
    assertEquals(2, quotas.open());
  }
}
