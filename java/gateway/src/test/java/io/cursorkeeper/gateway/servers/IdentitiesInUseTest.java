package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Identities while a gateway runs: a file that changes, quotas, the audit log, connections' age.
 */
@Timeout(300)
class IdentitiesInUseTest {
  private static final Map<String, byte[]> OURS =
      Map.of(
          "application",
          "cursorkeeper".getBytes(StandardCharsets.UTF_8),
          "deployment",
          "here".getBytes(StandardCharsets.UTF_8));
  private static final byte[] SECRET = new byte[32];

  @TempDir static Path folder;

  private static SmallCluster cluster;
  private final List<ManagedChannel> channels = new ArrayList<>();
  private Path identities;
  private Path audit;

  @BeforeAll
  static void start() throws Exception {
    cluster = new SmallCluster(Files.createDirectory(folder.resolve("data")));
  }

  @AfterAll
  static void stop() throws Exception {
    cluster.close();
  }

  @AfterEach
  void leave() {
    channels.forEach(ManagedChannel::shutdownNow);
  }

  private static String daemon(String... tokens) throws Exception {
    return daemonWith("", tokens);
  }

  private static String daemonWith(String more, String... tokens) throws Exception {
    List<String> hashes = new ArrayList<>();
    for (String token : tokens) {
      hashes.add("\"" + RightsTest.hash(token) + "\"");
    }
    return "{\"name\":\"daemon\",\"roles\":[\"writer\",\"reader\"],\"deployments\":[\"here\"],"
        + "\"token_subjects\":[\"daemon\"],\"token_hashes\":["
        + String.join(",", hashes)
        + "]"
        + more
        + "}";
  }

  // At once, as whoever keeps such a file should.
  private void write(String... all) throws Exception {
    Path draft =
        Files.writeString(
            identities.resolveSibling("draft"), "{\"identities\":[" + String.join(",", all) + "]}");
    Files.move(draft, identities, StandardCopyOption.ATOMIC_MOVE);
  }

  private Asking gateway(String name, String[] all, String... args) throws Exception {
    Path own = Files.createDirectory(folder.resolve(name));
    identities = own.resolve("identities.json");
    audit = own.resolve("audit.log");
    write(all);
    List<String> flags =
        new ArrayList<>(
            List.of(
                "--identities-file",
                identities.toString(),
                "--audit-log-file",
                audit.toString(),
                "--token-secret-key",
                "data:;base64," + java.util.Base64.getEncoder().encodeToString(SECRET),
                "--tls-cert-refresh-check-duration-sec",
                "1"));
    flags.addAll(List.of(args));
    int port = cluster.gateway(flags.toArray(String[]::new));
    ManagedChannel channel =
        NettyChannelBuilder.forAddress("127.0.0.1", port).usePlaintext().build();
    channels.add(channel);
    return Asking.over(channel).role("writer").deployment("here");
  }

  private static void await(String what, Callable<Boolean> holds) throws Exception {
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!holds.call()) {
      assertTrue(System.nanoTime() < until, what);
      Thread.sleep(20);
    }
  }

  private static String describe(Asking asking) throws Exception {
    return asking.answer("Describe", -1, OURS);
  }

  @Test
  void aFileThatChangesCountsAtTheNextLook() throws Exception {
    Asking asking = gateway("changes", new String[] {daemon("old", "new")});
    Asking old = asking.token("old");
    Asking fresh = asking.token("new");
    long first = old.create(OURS);
    long second = fresh.create(OURS);
    Asking.Stream ends = old.append();
    Asking.Stream goesOn = fresh.append();
    ends.send(first, 0);
    goesOn.send(second, 0);
    assertEquals(Asking.YES, ends.heard());
    assertEquals(Asking.YES, goesOn.heard());

    // One token of two is gone: so is who came with it, in the midst of a stream, and nobody else.
    write(daemon("new"));
    assertEquals("BAD_TOKEN", ends.heard());
    assertEquals("BAD_TOKEN", describe(old));
    goesOn.send(second, 1);
    assertEquals(Asking.YES, goesOn.heard());
    // The handle went with its stream.
    goesOn.send(first, 1);
    assertEquals("NO_HANDLE", goesOn.heard());
    assertEquals("NO_HANDLE", fresh.answer("Close", first, OURS));

    // What cannot be read changes nothing.
    Files.writeString(identities, "{\"identities\": [{\"name\": \"daemon\"");
    Thread.sleep(2_500);
    assertEquals(Asking.YES, describe(fresh));
    goesOn.send(second, 2);
    assertEquals(Asking.YES, goesOn.heard());

    // A deployment less: the handle is another's.
    write(daemon("new").replace("[\"here\"]", "[\"there\"]"));
    await(
        "the rights are fewer", () -> fresh.answer("Create", -1, OURS).equals("OTHER_DEPLOYMENT"));
    goesOn.send(second, 3);
    assertEquals("NO_HANDLE", goesOn.heard());

    // The role is gone, and with it the stream.
    write(daemon("new").replace("\"writer\",", ""));
    assertEquals("ROLE_NOT_HELD", goesOn.heard());
    assertEquals(Asking.YES, describe(fresh), "who is known may ask what this is");

    // The file is away, and comes again.
    Files.delete(identities);
    Thread.sleep(1_500);
    assertEquals(Asking.YES, describe(fresh));
    write(daemon("newest"));
    await("the new token counts", () -> describe(asking.token("newest")).equals(Asking.YES));
    assertEquals("BAD_TOKEN", describe(fresh));
  }

  @Test
  void aStreamEndsWithItsToken() throws Exception {
    Asking asking = gateway("expires", new String[] {daemon("t")});
    long now = System.currentTimeMillis() / 1_000;
    Asking daemon =
        asking.token(Jwt.mac("HS256", SECRET, "{\"sub\":\"daemon\",\"exp\":" + (now + 4) + "}"));
    long ledger = daemon.create(OURS);
    Asking.Stream stream = daemon.append();
    stream.send(ledger, 0);
    assertEquals(Asking.YES, stream.heard());
    assertEquals("TOKEN_EXPIRED", stream.heard());
    assertEquals("TOKEN_EXPIRED", describe(daemon));
  }

  @Test
  void aQuotaIsOfOneIdentityAndOfNobodyElse() throws Exception {
    String others = daemon("free").replace("\"token_subjects\":[\"daemon\"],", "");
    Asking asking =
        gateway(
            "quotas",
            new String[] {
              daemonWith(
                  ",\"quotas\":{\"streams\":1,\"reads\":1,\"lists\":1,\"cursors\":1}", "limited"),
              others.replace("\"name\":\"daemon\"", "\"name\":\"free\""),
              others
                  .replace("\"name\":\"daemon\"", "\"name\":\"small\"")
                  .replace(RightsTest.hash("free"), RightsTest.hash("small"))
                  .replace("}", ",\"quotas\":{\"read_bytes\":100000}}")
            });
    Asking limited = asking.token("limited");
    Asking free = asking.token("free");
    Asking small = asking.token("small");

    long ledger = limited.create(OURS);
    Asking.Stream one = limited.append();
    one.send(ledger, 0);
    assertEquals(Asking.YES, one.heard());
    assertEquals("QUOTA", limited.append().heard());
    Asking.Stream other = free.append();
    other.send(free.create(OURS), 0);
    assertEquals(Asking.YES, other.heard());
    // With the stream its place is free again.
    one.end();
    assertEquals("ended", one.heard());
    await(
        "the place of the stream",
        () -> {
          Asking.Stream next = limited.append();
          next.end();
          return next.heard().equals("ended");
        });

    long large = cluster.ledger(OURS, 8, 1 << 20);
    Asking.Held held = limited.hold(large);
    assertEquals("QUOTA", limited.answer("Read", large, OURS));
    assertTrue(
        limited.saidOfRead(large).contains("daemon has all that its quota reads allows, 1 "));
    assertEquals(Asking.YES, free.answer("Read", large, OURS));
    held.cancel();
    await("the place of the read", () -> limited.answer("Read", large, OURS).equals(Asking.YES));

    // One read alone is served, whatever it takes; beside it there is no room.
    assertEquals(Asking.YES, small.answer("Read", large, OURS));
    held = small.hold(large);
    assertTrue(small.saidOfRead(large).contains("small has all that its quota read_bytes allows"));
    assertEquals(Asking.YES, free.answer("Read", large, OURS));
    held.cancel();
    await("its room", () -> small.answer("Read", large, OURS).equals(Asking.YES));
    assertEquals(Asking.YES, limited.answer("List", ledger, OURS));
  }

  private List<JsonNode> audited() throws Exception {
    List<JsonNode> lines = new ArrayList<>();
    for (String line : Files.readAllLines(audit)) {
      lines.add(new ObjectMapper().readTree(line));
    }
    return lines;
  }

  private JsonNode line(String action, String result) throws Exception {
    JsonNode[] found = new JsonNode[1];
    await(
        action + " " + result,
        () -> {
          for (JsonNode line : audited()) {
            if (line.path("action").asText().equals(action)
                && line.path("result").asText().equals(result)
                && line.path("who").asText().indexOf(' ') < 0) {
              found[0] = line;
            }
          }
          return found[0] != null;
        });
    return found[0];
  }

  @Test
  void whatWasDoneAndRefusedIsWrittenDownAndNoToken() throws Exception {
    Asking asking = gateway("audit", new String[] {daemon("s3cret")});
    Asking daemon = asking.token("s3cret");
    long ledger = daemon.create(OURS);
    assertEquals(Asking.YES, daemon.answer("Fence", ledger, OURS));
    long closed = daemon.create(OURS);
    assertEquals(Asking.YES, daemon.answer("Close", closed, OURS));
    assertEquals(Asking.YES, daemon.answer("Delete", closed, OURS));
    assertEquals("NO_SUCH_LEDGER", daemon.answer("Fence", closed, OURS));
    assertEquals("OTHER_DEPLOYMENT", daemon.deployment("there").answer("Fence", ledger, OURS));
    for (int at = 0; at < 50; at++) {
      assertEquals("BAD_TOKEN", asking.token("gue55ed").answer("Delete", ledger, OURS));
    }
    for (String done : new String[] {"create", "fence", "close", "delete"}) {
      JsonNode line = line(done, "ok");
      assertEquals("daemon", line.path("who").asText());
      assertEquals("writer", line.path("role").asText());
      assertEquals("here", line.path("deployment").asText());
      assertEquals(
          done.equals("fence") ? ledger : closed, line.path("ledger").asLong(), line.toString());
      assertTrue(line.path("what").asText().contains("deployment here"), line.toString());
      assertTrue(line.path("from").asText().startsWith("127.0.0.1:"), line.toString());
    }
    assertEquals(closed, line("fence", "NO_SUCH_LEDGER").path("ledger").asLong());
    JsonNode refused = line("refused", "OTHER_DEPLOYMENT");
    assertEquals("Fence", refused.path("call").asText());
    assertEquals(ledger, refused.path("ledger").asLong());
    JsonNode unknown = line("unauthenticated", "BAD_TOKEN");
    assertEquals("anybody", unknown.path("who").asText());
    assertTrue(audited().size() < 45, "refusals are few");
    String all = Files.readString(audit);
    assertFalse(all.contains("s3cret") || all.contains("gue55ed"), all);
    assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(audit)));

    // Moved away, as logrotate does.
    Files.move(audit, audit.resolveSibling("audit.log.1"));
    long next = daemon.create(OURS);
    await("a new file", () -> Files.exists(audit) && Files.size(audit) > 0);
    assertEquals(next, line("create", "ok").path("ledger").asLong());
    // Who was left out is told, some seconds later, though he comes no more.
    line("refused", "LEFT_OUT");
  }

  @Test
  void connectionsEndWithTheirAgeAndCallsGoOnElsewhere() throws Exception {
    Asking asking =
        gateway("age", new String[] {daemon("t")}, "--connection-age-max-s", "1").token("t");
    Asking.Stream stream = asking.append();
    stream.send(asking.create(OURS), 0);
    assertEquals(Asking.YES, stream.heard());
    Set<String> from = new HashSet<>();
    await(
        "calls come from another connection, and none fails",
        () -> {
          asking.create(OURS);
          for (JsonNode line : audited()) {
            if (line.path("who").asText().equals("daemon")) {
              from.add(line.path("from").asText());
            }
          }
          return from.size() > 1;
        });
    // The stream goes on for a while, and ends.
    assertFalse(Asking.YES.equals(stream.heard()));
    Asking.Stream next = asking.append();
    next.send(asking.create(OURS), 0);
    assertEquals(Asking.YES, next.heard());
  }

  private String latestFrom() throws Exception {
    String from = "";
    for (JsonNode line : audited()) {
      from = line.path("who").asText().equals("daemon") ? line.path("from").asText() : from;
    }
    return from;
  }

  @Test
  void whoTakesBackTooManyCallsLosesItsConnection() throws Exception {
    Asking asking = gateway("resets", new String[] {daemon("t")}).token("t");
    long ledger = asking.create(OURS);
    line("create", "ok");
    String before = latestFrom();
    await(
        "calls come from another connection",
        () -> {
          List<Asking.Stream> streams = new ArrayList<>();
          for (int at = 0; at < 200; at++) {
            streams.add(asking.append());
          }
          // All of them are there by now: the answer comes after them.
          asking.answer("Describe", -1, OURS);
          streams.forEach(Asking.Stream::cancel);
          asking.answer("Fence", ledger, OURS);
          Thread.sleep(50);
          return !latestFrom().equals(before);
        });
    assertEquals(Asking.YES, describe(asking));
  }
}
