package io.cursorkeeper.gateway.servers;

import com.google.protobuf.ByteString;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.CloseRequest;
import io.cursorkeeper.ledgers.v1.CreateRequest;
import io.cursorkeeper.ledgers.v1.DeleteRequest;
import io.cursorkeeper.ledgers.v1.DescribeRequest;
import io.cursorkeeper.ledgers.v1.EndRequest;
import io.cursorkeeper.ledgers.v1.Failure;
import io.cursorkeeper.ledgers.v1.FenceRequest;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.cursorkeeper.ledgers.v1.ListRequest;
import io.cursorkeeper.ledgers.v1.MetadataRequest;
import io.cursorkeeper.ledgers.v1.ReadReply;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.Channel;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** One caller of a gateway, with what it sends, and what each call answers it in one word. */
final class Asking {
  static final String YES = "yes";
  static final String LEFT_OUT = "left out";
  private static final Metadata.Key<byte[]> FAILURE =
      Metadata.Key.of("cursorkeeper-failure-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final long ANSWER_MAX_S = 60;

  private final Channel channel;
  private final Map<String, String> headers;

  private Asking(Channel channel, Map<String, String> headers) {
    this.channel = channel;
    this.headers = headers;
  }

  static Asking over(ManagedChannel channel) {
    return new Asking(channel, Map.of());
  }

  /** The same that also sends this. */
  Asking with(String header, String value) {
    Map<String, String> more = new HashMap<>(headers);
    more.put(header, value);
    return new Asking(channel, more);
  }

  Asking token(String token) {
    return with("cursorkeeper-token", token);
  }

  Asking role(String role) {
    return with("cursorkeeper-role", role);
  }

  Asking deployment(String deployment) {
    return with("cursorkeeper-deployment", deployment);
  }

  private io.grpc.ClientInterceptor sending() {
    Metadata metadata = new Metadata();
    headers.forEach(
        (name, value) ->
            metadata.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value));
    return MetadataUtils.newAttachHeadersInterceptor(metadata);
  }

  LedgersGrpc.LedgersBlockingStub calls() {
    return LedgersGrpc.newBlockingStub(channel)
        .withInterceptors(sending())
        .withDeadlineAfter(ANSWER_MAX_S, TimeUnit.SECONDS);
  }

  /** {@code yes}, or the reason. */
  String answer(String call, long ledgerId, Map<String, byte[]> custom) throws Exception {
    try {
      return switch (call) {
        case "Describe" -> {
          calls().describe(DescribeRequest.getDefaultInstance());
          yield YES;
        }
        case "Create" -> {
          create(custom);
          yield YES;
        }
        case "Read" -> {
          calls()
              .read(ReadRequest.newBuilder().setLedgerId(ledgerId).setLastEntryId(-1).build())
              .forEachRemaining(chunk -> {});
          yield YES;
        }
        case "Metadata" -> {
          calls().metadata(MetadataRequest.newBuilder().setLedgerId(ledgerId).build());
          yield YES;
        }
        case "End" -> {
          calls().end(EndRequest.newBuilder().setLedgerId(ledgerId).build());
          yield YES;
        }
        case "Fence" -> {
          calls().fence(FenceRequest.newBuilder().setLedgerId(ledgerId).build());
          yield YES;
        }
        case "Close" -> {
          calls().close(CloseRequest.newBuilder().setLedgerId(ledgerId).build());
          yield YES;
        }
        case "Delete" -> {
          calls().delete(DeleteRequest.newBuilder().setLedgerId(ledgerId).build());
          yield YES;
        }
        case "List" -> lists(ledgerId) ? YES : LEFT_OUT;
        case "Append" -> {
          Stream stream = append();
          stream.send(ledgerId, 0);
          String heard = stream.heard();
          stream.end();
          yield heard;
        }
        default -> throw new AssertionError("no such call: " + call);
      };
    } catch (StatusRuntimeException refused) {
      return reason(refused);
    }
  }

  long create(Map<String, byte[]> custom) {
    CreateRequest.Builder request =
        CreateRequest.newBuilder().setEnsemble(1).setWriteQuorum(1).setAckQuorum(1);
    custom.forEach((key, value) -> request.putCustomMetadata(key, ByteString.copyFrom(value)));
    return calls().create(request.build()).getLedgerId();
  }

  private boolean lists(long ledgerId) {
    boolean[] found = new boolean[1];
    calls()
        .list(ListRequest.getDefaultInstance())
        .forEachRemaining(
            reply ->
                found[0] |=
                    reply.getLedgersList().stream().anyMatch(one -> one.getLedgerId() == ledgerId));
    return found[0];
  }

  /** What the gateway itself says, or the status of who spoke in its place. */
  static String reason(Throwable thrown) throws Exception {
    if (!(thrown instanceof StatusRuntimeException failed)) {
      throw new AssertionError(thrown);
    }
    Metadata trailers = failed.getTrailers();
    byte[] said = trailers == null ? null : trailers.get(FAILURE);
    return said == null ? failed.getStatus().getCode().name() : Failure.parseFrom(said).getReason();
  }

  /** The message that a read is refused with. */
  String saidOfRead(long ledgerId) {
    try {
      calls()
          .read(ReadRequest.newBuilder().setLedgerId(ledgerId).setLastEntryId(-1).build())
          .forEachRemaining(chunk -> {});
      return "it was let in";
    } catch (StatusRuntimeException refused) {
      return String.valueOf(refused.getMessage());
    }
  }

  /** A read of which the first chunk is taken, and no other. */
  Held hold(long ledgerId) throws Exception {
    Held held = new Held();
    LedgersGrpc.newStub(channel)
        .withInterceptors(sending())
        .read(
            ReadRequest.newBuilder()
                .setLedgerId(ledgerId)
                .setLastEntryId(-1)
                .setMaxBytes(1)
                .build(),
            held);
    if (!held.first.await(ANSWER_MAX_S, TimeUnit.SECONDS)) {
      throw new AssertionError("no chunk came");
    }
    return held;
  }

  /** What a read that is held answers to. */
  static final class Held implements ClientResponseObserver<ReadRequest, ReadReply> {
    private final CountDownLatch first = new CountDownLatch(1);
    private ClientCallStreamObserver<ReadRequest> call;

    @Override
    public void beforeStart(ClientCallStreamObserver<ReadRequest> started) {
      call = started;
      started.disableAutoRequestWithInitial(1);
    }

    @Override
    public void onNext(ReadReply chunk) {
      first.countDown();
    }

    @Override
    public void onError(Throwable failure) {
      first.countDown();
    }

    @Override
    public void onCompleted() {
      first.countDown();
    }

    void cancel() {
      call.cancel("taken back", null);
    }
  }

  Stream append() {
    return new Stream();
  }

  /** An append stream that stays open. */
  final class Stream {
    private final BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
    private final StreamObserver<AppendRequest> requests =
        LedgersGrpc.newStub(channel)
            .withInterceptors(sending())
            .append(
                new StreamObserver<>() {
                  @Override
                  public void onNext(AppendReply reply) {
                    reply.getAppendedList().forEach(one -> answers.add(YES));
                    reply
                        .getFailuresList()
                        .forEach(one -> answers.add(one.getFailure().getReason()));
                  }

                  @Override
                  public void onError(Throwable failure) {
                    answers.add(failure);
                  }

                  @Override
                  public void onCompleted() {
                    answers.add("ended");
                  }
                });

    void send(long ledgerId, long entryId) {
      requests.onNext(
          AppendRequest.newBuilder()
              .addAppends(
                  LedgerAppend.newBuilder()
                      .setLedgerId(ledgerId)
                      .setFirstEntryId(entryId)
                      .addPayloads(ByteString.copyFromUtf8("x")))
              .build());
    }

    /** The next answer, or why the stream ended. */
    String heard() throws Exception {
      Object answer = answers.poll(ANSWER_MAX_S, TimeUnit.SECONDS);
      return answer instanceof Throwable thrown ? reason(thrown) : String.valueOf(answer);
    }

    /** Takes the call back, by a reset. */
    void cancel() {
      ((ClientCallStreamObserver<AppendRequest>) requests).cancel("taken back", null);
    }

    void end() {
      try {
        requests.onCompleted();
      } catch (IllegalStateException over) {
        // It was ended already.
      }
    }
  }
}
