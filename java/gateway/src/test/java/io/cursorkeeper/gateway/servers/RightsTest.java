package io.cursorkeeper.gateway.servers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.reflection.v1.ServerReflectionGrpc;
import io.grpc.reflection.v1.ServerReflectionRequest;
import io.grpc.reflection.v1.ServerReflectionResponse;
import io.grpc.stub.StreamObserver;
import io.grpc.util.AdvancedTlsX509KeyManager;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The two tables of the page of rights, row by row, against a gateway that runs: every call, by
 * everybody who might try. What the page says and what the gateway does are one.
 */
@Timeout(300)
class RightsTest {
  private static final Path PAGE = Path.of("..", "..", "docs", "run", "rights-gateway.md");
  private static final String[] ROLES = {"reader", "writer", "migrator"};
  private static final String OWN = "persistent://acme/";
  private static final String AUDIENCE = "keepers";

  @TempDir static Path folder;

  private static SmallCluster cluster;
  private static int port;
  private static KeyPair pulsars;
  private static final List<ManagedChannel> CHANNELS = new ArrayList<>();
  private static ManagedChannel anonymous;
  private static Certificates authority;
  private static Certificates stranger;

  @BeforeAll
  static void start() throws Exception {
    cluster = new SmallCluster(Files.createDirectory(folder.resolve("data")));
    authority = new Certificates(folder, "authority");
    authority.issue("gateway", "CN=gateway");
    authority.issue("known", "CN=known, O=Acme");
    authority.issue("unknown", "CN=unknown, O=Acme");
    stranger = new Certificates(folder, "stranger");
    stranger.issue("strange", "CN=known, O=Acme");
    KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
    generator.initialize(2_048);
    pulsars = generator.generateKeyPair();
    Path key = Files.write(folder.resolve("public.der"), pulsars.getPublic().getEncoded());
    Path file = Files.writeString(folder.resolve("identities.json"), identities());
    port =
        cluster.gateway(
            "--tls-certificate-file-path",
            authority.path("gateway.pem"),
            "--tls-key-file-path",
            authority.path("gateway-key.pem"),
            "--tls-trust-certs-file-path",
            authority.path("authority.pem"),
            "--identities-file",
            file.toString(),
            "--token-public-key",
            key.toUri().toString(),
            "--token-public-alg",
            "RS256",
            "--token-audience-claim",
            "aud",
            "--token-audience",
            AUDIENCE);
    anonymous = channel("");
  }

  @AfterAll
  static void stop() throws Exception {
    CHANNELS.forEach(ManagedChannel::shutdownNow);
    cluster.close();
  }

  private static String identities() throws Exception {
    List<String> all = new ArrayList<>();
    for (String role : ROLES) {
      all.add(
          identity(
              role,
              role,
              "\"token_hashes\":[\"" + hash(role) + "\",\"" + hash("next " + role) + "\"]",
              OWN,
              "here\",\"second"));
    }
    all.add(
        identity(
            "owner",
            "reader\",\"writer\",\"migrator",
            "\"token_hashes\":[\"" + hash("owner") + "\"]",
            "*",
            "*"));
    all.add(
        identity(
            "known",
            "reader",
            "\"certificates\":[\"O=Acme,CN=other\",\"cn=known,o=acme\"]",
            "*",
            "*"));
    all.add(identity("carol", "reader", "\"token_subjects\":[\"carol\"]", "*", "*"));
    all.add(
        identity(
            "broker",
            "source\",\"operator",
            "\"token_hashes\":[\"" + hash("broker") + "\"]",
            "*",
            "*"));
    return "{\"identities\":[" + String.join(",", all) + "]}";
  }

  private static String identity(
      String name, String roles, String proof, String topics, String deployments) {
    return "{\"name\":\""
        + name
        + "\",\"roles\":[\""
        + roles
        + "\"],"
        + proof
        + ",\"topics\":[\""
        + topics
        + "\"],\"deployments\":[\""
        + deployments
        + "\"]}";
  }

  static String hash(String token) throws Exception {
    return "sha256:"
        + HexFormat.of()
            .formatHex(
                MessageDigest.getInstance("SHA-256")
                    .digest(token.getBytes(StandardCharsets.UTF_8)));
  }

  /** {@code shown}: the name of the client's certificate; empty: none. */
  private static ManagedChannel channel(String shown) throws Exception {
    SslContextBuilder tls =
        SslContextBuilder.forClient().trustManager(new File(authority.path("authority.pem")));
    if (!shown.isEmpty()) {
      // Shows it whatever authorities the server says that it believes.
      AdvancedTlsX509KeyManager own = new AdvancedTlsX509KeyManager();
      own.updateIdentityCredentials(
          new File(authority.path(shown + ".pem")), new File(authority.path(shown + "-key.pem")));
      tls.keyManager(own);
    }
    ManagedChannel made =
        NettyChannelBuilder.forAddress("127.0.0.1", port)
            .sslContext(GrpcSslContexts.configure(tls, SslProvider.JDK).build())
            .build();
    CHANNELS.add(made);
    return made;
  }

  // ---- the tables of the page

  private static List<String[]> table(String firstCell) throws Exception {
    List<String[]> rows = new ArrayList<>();
    boolean inside = false;
    for (String line : Files.readAllLines(PAGE)) {
      if (!line.startsWith("|")) {
        inside = false;
        continue;
      }
      String[] cells = line.substring(1, line.length() - 1).split("\\|");
      for (int at = 0; at < cells.length; at++) {
        cells[at] = cells[at].trim();
      }
      if (inside && !cells[0].startsWith("---")) {
        rows.add(cells);
      }
      inside |= cells[0].equals(firstCell);
    }
    assertFalse(rows.isEmpty(), "the page has a table that begins with: " + firstCell);
    return rows;
  }

  private static String plain(String cell) {
    return cell.replace("`", "");
  }

  private static Set<String> allCalls() {
    Set<String> calls = new TreeSet<>();
    LedgersGrpc.getServiceDescriptor()
        .getMethods()
        .forEach(method -> calls.add(method.getBareMethodName()));
    return calls;
  }

  // ---- who calls

  private static String jwt(String claims) throws Exception {
    return Jwt.signed("RS256", "SHA256withRSA", pulsars.getPrivate(), claims);
  }

  private static String claims(String more) {
    return "{\"sub\":\"carol\",\"aud\":\"" + AUDIENCE + "\"" + more + "}";
  }

  /** The callers of the first table, by the words of its first column. */
  private static Map<String, Asking> strangers() throws Exception {
    KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
    generator.initialize(2_048);
    Asking nobody = Asking.over(anonymous);
    long now = System.currentTimeMillis() / 1_000;
    String good = jwt(claims(""));
    String[] parts = good.split("\\.");
    Map<String, Asking> all = new LinkedHashMap<>();
    all.put("nothing", nobody);
    all.put("a token that nobody has", nobody.token("guessed"));
    all.put(
        "an authorization of another kind", nobody.with("authorization", "Basic " + "cmVhZGVyOg"));
    all.put("a signed token that has expired", nobody.token(jwt(claims(",\"exp\":" + (now - 1)))));
    all.put(
        "a signed token that is for later", nobody.token(jwt(claims(",\"nbf\":" + (now + 99)))));
    all.put(
        "a signed token of another key",
        nobody.token(
            Jwt.signed(
                "RS256", "SHA256withRSA", generator.generateKeyPair().getPrivate(), claims(""))));
    all.put(
        "a signed token that was changed",
        nobody.token(parts[0] + "." + Jwt.part(claims(",\"x\":1")) + "." + parts[2]));
    all.put(
        "a token without a signature (alg none)",
        nobody.token(Jwt.part("{\"alg\":\"none\"}") + "." + parts[1] + "."));
    all.put(
        "a token that is signed with the public key as a secret",
        nobody.token(Jwt.mac("HS256", pulsars.getPublic().getEncoded(), claims(""))));
    all.put(
        "a signed token for another audience",
        nobody.token(jwt("{\"sub\":\"carol\",\"aud\":\"brokers\"}")));
    all.put(
        "a signed token of a subject that nobody has",
        nobody.token(jwt(claims("").replace("carol", "mallory"))));
    all.put("a certificate that nobody has", Asking.over(channel("unknown")));
    all.put("a certificate of another authority", Asking.over(channel("strange")));
    all.put(
        "a token that nobody has, and a certificate that is known",
        Asking.over(channel("known")).token("guessed"));
    all.put("a role that there is not", nobody.token("owner").role("admin"));
    all.put("a role that the identity has not", nobody.token("reader").role("writer"));
    all.put(
        "the token of an identity with roles of daemons only",
        nobody.token("broker").role("writer"));
    return all;
  }

  @Test
  void whoDoesNotProveWhoItIsMakesNoCallAtAll() throws Exception {
    Map<String, Asking> callers = strangers();
    Map<String, String> said = new HashMap<>();
    for (String[] row : table("what a caller sends")) {
      said.put(plain(row[0]), plain(row[1]));
    }
    assertEquals(callers.keySet(), said.keySet());
    long ledger = cluster.ledger(LEDGERS.get("ours"));
    for (Map.Entry<String, Asking> caller : callers.entrySet()) {
      String row = said.get(caller.getKey());
      for (String call : allCalls()) {
        String expected =
            row.startsWith("no connection")
                ? "UNAVAILABLE"
                : row.endsWith("but for Describe") && call.equals("Describe")
                    ? Asking.YES
                    : row.split(",")[0];
        for (String role : row.contains("ROLE") ? new String[] {""} : ROLES) {
          Asking asking = role.isEmpty() ? caller.getValue() : caller.getValue().role(role);
          assertEquals(
              expected,
              asking.deployment("here").answer(call, ledger, LEDGERS.get("ours")),
              caller.getKey() + " calls " + call + " as " + role);
        }
      }
    }
    // Nothing was done by any of them.
    assertEquals(Asking.YES, of("owner", "reader").answer("Read", ledger, Map.of()));
  }

  @Test
  void whoProvesWhoItIsIsLetIn() throws Exception {
    Asking nobody = Asking.over(anonymous);
    long ledger = cluster.ledger(LEDGERS.get("ours"));
    for (Asking known :
        new Asking[] {
          nobody.token("reader"),
          nobody.token("next reader"),
          nobody.with("authorization", "Bearer reader"),
          nobody.token(jwt(claims(""))),
          nobody.with("authorization", "bearer " + jwt(claims(",\"exp\":4102444800"))),
          nobody.token(jwt("{\"sub\":\"carol\",\"aud\":[\"brokers\",\"" + AUDIENCE + "\"]}")),
          Asking.over(channel("known"))
        }) {
      assertEquals(Asking.YES, known.answer("Read", ledger, Map.of()));
    }
    // The token says who calls, and not the certificate beside it.
    assertEquals(
        Asking.YES,
        Asking.over(channel("unknown")).token("reader").answer("Read", ledger, Map.of()));
  }

  // ---- what each may do

  private static Map<String, byte[]> custom(String... pairs) {
    Map<String, byte[]> custom = new HashMap<>();
    for (int at = 0; at < pairs.length; at += 2) {
      custom.put(pairs[at], pairs[at + 1].getBytes(StandardCharsets.UTF_8));
    }
    return custom;
  }

  private static Map<String, byte[]> pulsars(String managedLedger, String... more) {
    Map<String, byte[]> custom =
        custom(
            "application",
            "pulsar",
            "component",
            "managed-ledger",
            "pulsar/managed-ledger",
            managedLedger);
    custom.putAll(custom(more));
    return custom;
  }

  private static final Map<String, Map<String, byte[]>> LEDGERS =
      Map.of(
          "ours",
          custom("application", "cursorkeeper", "deployment", "here"),
          "ours of its second deployment",
          custom("application", "cursorkeeper", "deployment", "second"),
          "ours of another deployment",
          custom("application", "cursorkeeper", "deployment", "there"),
          "ours of no deployment",
          custom("application", "cursorkeeper"),
          "cursor of its topics",
          pulsars("acme/ns/persistent/t", "pulsar/cursor", "s"),
          "cursor of another topic",
          pulsars("acmes/ns/persistent/t", "pulsar/cursor", "s"),
          "messages of its topics",
          pulsars("acme/ns/persistent/t"),
          "messages of another topic",
          pulsars("other/ns/persistent/t"),
          "foreign",
          custom("application", "pulsar", "component", "schema"));

  private static Asking of(String token, String role) {
    return Asking.over(anonymous).token(token).role(role).deployment("here");
  }

  /** A fresh ledger of this kind; with a handle in the gateway, if that is possible. */
  private static long fresh(String kind, boolean isOpen) throws Exception {
    Map<String, byte[]> custom = LEDGERS.get(kind);
    if (!isOpen || kind.startsWith("messages") || kind.equals("foreign")) {
      return cluster.ledger(custom);
    }
    String deployment =
        new String(custom.getOrDefault("deployment", new byte[0]), StandardCharsets.UTF_8);
    return of("owner", kind.startsWith("cursor") ? "migrator" : "writer")
        .deployment(deployment)
        .create(custom);
  }

  @Test
  void eachDoesWhatThePageSaysAndNothingElse() throws Exception {
    Map<String, Long> kept = new HashMap<>();
    Set<String> seen = new TreeSet<>();
    for (String[] row : table("call")) {
      if (row.length != 5) {
        continue;
      }
      for (String call : row[0].split(", ")) {
        for (String kind : row[1].split("; ")) {
          assertTrue(seen.add(call + " of " + kind), "two rows for " + call + " of " + kind);
          for (int at = 0; at < ROLES.length; at++) {
            boolean isOpen = call.equals("Append") || call.equals("Close");
            long ledger =
                kind.equals("none") || call.equals("Create")
                    ? -1
                    : isOpen || call.equals("Delete")
                        ? fresh(kind, isOpen)
                        : kept.computeIfAbsent(kind, RightsTest::keep);
            assertEquals(
                plain(row[2 + at]),
                of(ROLES[at], ROLES[at]).answer(call, ledger, LEDGERS.get(kind)),
                ROLES[at] + " calls " + call + " of " + kind);
          }
        }
      }
    }
    Set<String> all = new TreeSet<>(Set.of("Describe of none"));
    for (String call : allCalls()) {
      if (!call.equals("Describe")) {
        LEDGERS.keySet().forEach(kind -> all.add(call + " of " + kind));
      }
    }
    assertEquals(all, seen, "every call and every kind of ledger has its row");
  }

  private static long keep(String kind) {
    try {
      return cluster.ledger(LEDGERS.get(kind));
    } catch (Exception failure) {
      throw new AssertionError(failure);
    }
  }

  // ---- what is open to everybody

  @Test
  void healthIsOpenAndReflectionIsNot() throws Exception {
    HealthGrpc.newBlockingStub(anonymous).check(HealthCheckRequest.getDefaultInstance());
    CompletableFuture<Void> reflected = new CompletableFuture<>();
    ServerReflectionGrpc.newStub(anonymous)
        .serverReflectionInfo(
            new StreamObserver<>() {
              @Override
              public void onNext(ServerReflectionResponse answer) {
                reflected.complete(null);
              }

              @Override
              public void onError(Throwable failure) {
                reflected.completeExceptionally(failure);
              }

              @Override
              public void onCompleted() {
                reflected.complete(null);
              }
            })
        .onNext(ServerReflectionRequest.newBuilder().setListServices("").build());
    Throwable refused =
        assertThrows(ExecutionException.class, () -> reflected.get(60, TimeUnit.SECONDS))
            .getCause();
    assertEquals(
        Status.Code.UNIMPLEMENTED, ((StatusRuntimeException) refused).getStatus().getCode());
  }
}
