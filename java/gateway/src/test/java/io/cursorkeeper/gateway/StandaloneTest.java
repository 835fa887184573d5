package io.cursorkeeper.gateway;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.cursorkeeper.ledgers.v1.AppendFailure;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.Appended;
import io.cursorkeeper.ledgers.v1.CreateRequest;
import io.cursorkeeper.ledgers.v1.DeleteRequest;
import io.cursorkeeper.ledgers.v1.DescribeRequest;
import io.cursorkeeper.ledgers.v1.Failure;
import io.cursorkeeper.ledgers.v1.FenceReply;
import io.cursorkeeper.ledgers.v1.FenceRequest;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.cursorkeeper.ledgers.v1.ListRequest;
import io.cursorkeeper.ledgers.v1.Outcome;
import io.cursorkeeper.ledgers.v1.Reaction;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.health.v1.HealthCheckRequest;
import io.grpc.health.v1.HealthCheckResponse.ServingStatus;
import io.grpc.health.v1.HealthGrpc;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A real ZooKeeper, three real bookies and the gateway in a process of their own, killed while it
 * is written to.
 */
@Timeout(300)
class StandaloneTest {
  private static final long ANSWER_MAX_S = 120;

  @TempDir Path parent;

  private Path folder;

  private Process process;
  private String ready;
  private ManagedChannel channel;
  private LedgersGrpc.LedgersBlockingStub writer;
  private StreamObserver<AppendRequest> requests;
  private final BlockingQueue<Object> answers = new LinkedBlockingQueue<>();

  private void start() throws Exception {
    folder = parent.resolve("data");
    process =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xmx192m",
                "-Djava.io.tmpdir=" + System.getProperty("java.io.tmpdir"),
                "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
                "--add-opens=java.base/java.io=ALL-UNNAMED",
                "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
                "-cp",
                System.getProperty("java.class.path"),
                "io.cursorkeeper.gateway.Main",
                "standalone",
                "--data-dir",
                folder.toString(),
                "--warm-up-entries",
                "20",
                "--parent-pid",
                Long.toString(ProcessHandle.current().pid()))
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    BufferedReader out = process.inputReader();
    ready = String.valueOf(out.readLine());
    channel = NettyChannelBuilder.forTarget(address(ready, "gateway")).usePlaintext().build();
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of("cursorkeeper-role", Metadata.ASCII_STRING_MARSHALLER), "writer");
    var role = MetadataUtils.newAttachHeadersInterceptor(headers);
    writer = LedgersGrpc.newBlockingStub(channel).withInterceptors(role);
    answers.clear();
    requests =
        LedgersGrpc.newStub(channel)
            .withInterceptors(role)
            .append(
                new StreamObserver<>() {
                  @Override
                  public void onNext(AppendReply reply) {
                    answers.addAll(reply.getAppendedList());
                    answers.addAll(reply.getFailuresList());
                  }

                  @Override
                  public void onError(Throwable failure) {
                    answers.add(failure);
                  }

                  @Override
                  public void onCompleted() {
                    answers.add("completed");
                  }
                });
  }

  @AfterEach
  void stop() throws Exception {
    if (channel != null) {
      channel.shutdownNow();
    }
    if (process != null) {
      process.destroyForcibly().waitFor();
    }
  }

  private static String address(String ready, String server) {
    Matcher found = Pattern.compile("\"" + server + "\":\"([^\"]+)\"").matcher(ready);
    assertTrue(found.find(), "ready line: " + ready);
    return found.group(1);
  }

  private long create() {
    return writer
        .create(
            CreateRequest.newBuilder()
                .setEnsemble(3)
                .setWriteQuorum(3)
                .setAckQuorum(2)
                .putCustomMetadata("application", ByteString.copyFromUtf8("cursorkeeper"))
                .build())
        .getLedgerId();
  }

  private void append(long ledgerId, long first, List<ByteString> payloads) {
    requests.onNext(
        AppendRequest.newBuilder()
            .addAppends(
                LedgerAppend.newBuilder()
                    .setLedgerId(ledgerId)
                    .setFirstEntryId(first)
                    .addAllPayloads(payloads))
            .build());
  }

  private Object answer() throws InterruptedException {
    Object answer = answers.poll(ANSWER_MAX_S, TimeUnit.SECONDS);
    assertTrue(answer != null, "no answer");
    return answer;
  }

  private void awaitAcknowledged(long lastEntryId) throws InterruptedException {
    Object answer;
    do {
      answer = answer();
      assertTrue(answer instanceof Appended, () -> "instead: " + answers);
    } while (((Appended) answer).getLastEntryId() < lastEntryId);
  }

  private List<ByteString> read(long ledgerId) {
    List<ByteString> payloads = new ArrayList<>();
    LedgersGrpc.newBlockingStub(channel)
        .read(
            ReadRequest.newBuilder()
                .setLedgerId(ledgerId)
                .setLastEntryId(-1)
                .setMaxBytes(4_000)
                .build())
        .forEachRemaining(
            chunk -> {
              assertEquals(payloads.size(), chunk.getFirstEntryId());
              payloads.addAll(chunk.getPayloadsList());
            });
    return payloads;
  }

  private FenceReply fence(long ledgerId) {
    return writer.fence(FenceRequest.newBuilder().setLedgerId(ledgerId).build());
  }

  private static List<ByteString> payloads(int count, long seed) {
    Random random = new Random(seed);
    List<ByteString> payloads = new ArrayList<>();
    for (int at = 0; at < count; at++) {
      byte[] payload = new byte[random.nextInt(500)];
      random.nextBytes(payload);
      payloads.add(ByteString.copyFrom(payload));
    }
    return payloads;
  }

  private static Failure failure(StatusRuntimeException thrown) throws Exception {
    return Failure.parseFrom(
        thrown
            .getTrailers()
            .get(Metadata.Key.of("cursorkeeper-failure-bin", Metadata.BINARY_BYTE_MARSHALLER)));
  }

  @Test
  void appendFenceReadAndSurviveAKill() throws Exception {
    start();
    assertEquals(
        ServingStatus.SERVING,
        HealthGrpc.newBlockingStub(channel)
            .check(HealthCheckRequest.getDefaultInstance())
            .getStatus());
    String firstInstance = writer.describe(DescribeRequest.getDefaultInstance()).getInstance();

    // Appended in pieces, fenced by a recovery, read back byte by byte.
    long fenced = create();
    List<ByteString> written = payloads(100, 1);
    for (int at = 0; at < 100; at += 10) {
      append(fenced, at, written.subList(at, at + 10));
    }
    awaitAcknowledged(99);
    assertEquals(99, fence(fenced).getLastEntryId());
    assertEquals(written, read(fenced));
    append(fenced, 100, written.subList(0, 1));
    AppendFailure deposed = (AppendFailure) answer();
    assertEquals(-101, deposed.getFailure().getBookkeeperCode());
    assertEquals(Reaction.FENCED, deposed.getFailure().getReaction());
    assertEquals(Outcome.UNKNOWN, deposed.getFailure().getOutcome());

    // A reader may not fence; a ledger that is not there is refused; deleting it is success.
    StatusRuntimeException denied =
        assertThrows(
            StatusRuntimeException.class,
            () ->
                LedgersGrpc.newBlockingStub(channel)
                    .fence(FenceRequest.newBuilder().setLedgerId(fenced).build()));
    assertEquals("READERS_MAY_NOT", failure(denied).getReason());
    StatusRuntimeException missing = assertThrows(StatusRuntimeException.class, () -> fence(4_711));
    assertEquals("NO_SUCH_LEDGER", failure(missing).getReason());
    assertTrue(
        writer.delete(DeleteRequest.newBuilder().setLedgerId(4_711).build()).getAlreadyGone());

    // Killed while it writes: whatever was acknowledged is there after a recovery, in the same
    // bytes.
    long killed = create();
    List<ByteString> more = payloads(2_000, 2);
    for (int at = 0; at < 2_000; at += 20) {
      append(killed, at, more.subList(at, at + 20));
    }
    awaitAcknowledged(200);
    process.destroyForcibly().waitFor();
    long acknowledged = 200;
    for (Object answer = answer(); !(answer instanceof Throwable); answer = answer()) {
      acknowledged = ((Appended) answer).getLastEntryId();
    }
    channel.shutdownNow();
    String before = ready;
    start();
    for (String server : new String[] {"gateway", "metrics", "zookeeper"}) {
      assertEquals(
          address(before, server), address(ready, server), "whoever was connected finds it again");
    }
    for (String data :
        new String[] {
          "", "zookeeper", "zookeeper/data", "bookie-1", "bookie-1/journal", "bookie-3/ledgers"
        }) {
      assertEquals(
          "rwx------",
          PosixFilePermissions.toString(Files.getPosixFilePermissions(folder.resolve(data))),
          data);
    }
    assertTrue(
        !firstInstance.equals(writer.describe(DescribeRequest.getDefaultInstance()).getInstance()));
    append(killed, acknowledged + 1, more.subList(0, 1));
    assertEquals("NO_HANDLE", ((AppendFailure) answer()).getFailure().getReason());
    long last = fence(killed).getLastEntryId();
    assertTrue(last >= acknowledged, last + " < " + acknowledged);
    assertEquals(more.subList(0, (int) last + 1), read(killed));
    assertEquals(written, read(fenced));

    List<Long> ours = new ArrayList<>();
    writer
        .list(
            ListRequest.newBuilder()
                .putCustomMetadata("application", ByteString.copyFromUtf8("cursorkeeper"))
                .build())
        .forEachRemaining(
            reply -> reply.getLedgersList().forEach(ledger -> ours.add(ledger.getLedgerId())));
    assertEquals(List.of(fenced, killed), ours.stream().sorted().toList());

    process.destroy();
    assertTrue(process.waitFor(ANSWER_MAX_S, TimeUnit.SECONDS));
  }
}
