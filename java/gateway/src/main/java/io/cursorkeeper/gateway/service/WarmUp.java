package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.access.Whose;
import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.Appended;
import io.cursorkeeper.ledgers.v1.CloseRequest;
import io.cursorkeeper.ledgers.v1.CreateRequest;
import io.cursorkeeper.ledgers.v1.DeleteRequest;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.net.InetSocketAddress;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.SSLException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Appends to a throw-away ledger through the gateway's own port, so that the first real entries do
 * not meet a cold JVM. It is a help, not a check: when it fails the gateway serves anyway, and says
 * so in the log.
 */
final class WarmUp {
  private static final Logger LOG = LoggerFactory.getLogger(WarmUp.class);
  private static final int ENTRY_BYTES = 200;
  private static final int ENTRIES_PER_MESSAGE = 4;
  private static final long STEP_MAX_MS = 5_000;

  private final InetSocketAddress gateway;
  private final GatewaySettings settings;

  /** Null: plain text. */
  private final Tls.Contexts tls;

  private final Metadata headers;

  /** {@code headers}: what proves that it is the gateway itself. */
  WarmUp(InetSocketAddress gateway, GatewaySettings settings, Tls.Contexts tls, Metadata headers) {
    this.gateway = gateway;
    this.headers = headers;
    this.settings = settings;
    this.tls = tls;
  }

  /** Whether its entries came through. */
  boolean run(int writableBookies) {
    if (settings.warmUpEntries() == 0) {
      return true;
    }
    ManagedChannel channel;
    try {
      NettyChannelBuilder dialling = NettyChannelBuilder.forAddress(gateway).directExecutor();
      channel =
          (tls == null ? dialling.usePlaintext() : dialling.sslContext(tls.ofItself())).build();
    } catch (SSLException failure) {
      LOG.warn("no warm-up, the first entries will be slow: {}", Failed.inOneLine(failure));
      return false;
    }
    try {
      return through(channel, Math.min(3, writableBookies));
    } catch (Exception failure) {
      LOG.warn("the warm-up failed, the first entries will be slow: {}", Failed.inOneLine(failure));
      return false;
    } finally {
      channel.shutdownNow();
    }
  }

  private boolean through(ManagedChannel channel, int bookies) throws Exception {
    LedgersGrpc.LedgersBlockingStub calls =
        LedgersGrpc.newBlockingStub(channel).withInterceptors(writer());
    long ledgerId =
        within(calls)
            .create(
                CreateRequest.newBuilder()
                    .setEnsemble(bookies)
                    .setWriteQuorum(bookies)
                    .setAckQuorum(Math.min(2, bookies))
                    .putCustomMetadata(Whose.APPLICATION, ByteString.copyFromUtf8(Whose.OURS))
                    .putCustomMetadata("purpose", ByteString.copyFromUtf8("warm-up"))
                    .build())
            .getLedgerId();
    try {
      boolean all = append(LedgersGrpc.newStub(channel).withInterceptors(writer()), ledgerId);
      within(calls).close(CloseRequest.newBuilder().setLedgerId(ledgerId).build());
      within(calls)
          .read(ReadRequest.newBuilder().setLedgerId(ledgerId).setLastEntryId(-1).build())
          .forEachRemaining(chunk -> {});
      return all;
    } finally {
      within(calls).delete(DeleteRequest.newBuilder().setLedgerId(ledgerId).build());
    }
  }

  private boolean append(LedgersGrpc.LedgersStub calls, long ledgerId) throws InterruptedException {
    CountDownLatch done = new CountDownLatch(1);
    AtomicBoolean all = new AtomicBoolean();
    long last = settings.warmUpEntries() - 1L;
    StreamObserver<AppendRequest> requests =
        calls.append(
            new StreamObserver<>() {
              @Override
              public void onNext(AppendReply reply) {
                all.compareAndSet(
                    false,
                    reply.getAppendedList().stream()
                        .mapToLong(Appended::getLastEntryId)
                        .anyMatch(id -> id == last));
                if (reply.getFailuresCount() > 0 || all.get()) {
                  done.countDown();
                }
              }

              @Override
              public void onError(Throwable failure) {
                done.countDown();
              }

              @Override
              public void onCompleted() {
                done.countDown();
              }
            });
    ByteString payload = ByteString.copyFrom(new byte[ENTRY_BYTES]);
    for (long entry = 0; entry <= last; entry += ENTRIES_PER_MESSAGE) {
      LedgerAppend.Builder append =
          LedgerAppend.newBuilder().setLedgerId(ledgerId).setFirstEntryId(entry);
      for (long at = entry; at <= Math.min(last, entry + ENTRIES_PER_MESSAGE - 1); at++) {
        append.addPayloads(payload);
      }
      requests.onNext(AppendRequest.newBuilder().addAppends(append).build());
    }
    done.await(STEP_MAX_MS, TimeUnit.MILLISECONDS);
    // Left open until here: the end of the stream would release the handle.
    return all.get();
  }

  private io.grpc.ClientInterceptor writer() {
    return MetadataUtils.newAttachHeadersInterceptor(headers);
  }

  private static LedgersGrpc.LedgersBlockingStub within(LedgersGrpc.LedgersBlockingStub calls) {
    return calls.withDeadlineAfter(STEP_MAX_MS, TimeUnit.MILLISECONDS);
  }
}
