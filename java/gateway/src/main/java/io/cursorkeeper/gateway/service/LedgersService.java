package io.cursorkeeper.gateway.service;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.access.Access;
import io.cursorkeeper.gateway.access.AuditLog;
import io.cursorkeeper.gateway.access.Audited;
import io.cursorkeeper.gateway.access.Caller;
import io.cursorkeeper.gateway.access.Role;
import io.cursorkeeper.gateway.access.Whose;
import io.cursorkeeper.gateway.append.AppendMessage;
import io.cursorkeeper.gateway.append.AppendStream;
import io.cursorkeeper.gateway.append.OpenLedgers;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.CloseReply;
import io.cursorkeeper.ledgers.v1.CloseRequest;
import io.cursorkeeper.ledgers.v1.CreateReply;
import io.cursorkeeper.ledgers.v1.CreateRequest;
import io.cursorkeeper.ledgers.v1.DeleteReply;
import io.cursorkeeper.ledgers.v1.DeleteRequest;
import io.cursorkeeper.ledgers.v1.DescribeReply;
import io.cursorkeeper.ledgers.v1.DescribeRequest;
import io.cursorkeeper.ledgers.v1.EndReply;
import io.cursorkeeper.ledgers.v1.EndRequest;
import io.cursorkeeper.ledgers.v1.FenceReply;
import io.cursorkeeper.ledgers.v1.FenceRequest;
import io.cursorkeeper.ledgers.v1.LedgerMetadata;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.cursorkeeper.ledgers.v1.ListReply;
import io.cursorkeeper.ledgers.v1.ListRequest;
import io.cursorkeeper.ledgers.v1.MetadataRequest;
import io.cursorkeeper.ledgers.v1.ReadReply;
import io.cursorkeeper.ledgers.v1.ReadRequest;
import io.grpc.Status;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.ReadHandle;

/**
 * The service of the contract. Runs on the network's threads and never blocks them: every call
 * hands over to the client library or to a pool and answers later.
 */
final class LedgersService extends LedgersGrpc.LedgersImplBase {
  private static final int CUSTOM_METADATA_BYTES_MAX = 256 << 10;

  private final BookKeeper client;
  private final Access access;
  private final GatewaySettings settings;
  private final OpenLedgers ledgers;
  private final AppendStream.Shared streams;
  private final Metrics metrics;
  private final Map<Boolean, ExecutorService> listThreads;
  private final Supplier<DescribeReply.Builder> description;
  private final Map<Boolean, Reads> reads;
  private final Call call;
  private final AuditLog audit;

  /** Of identities whose reads have a limit of their own, by name. */
  private final Map<String, ReadBudget> ownBudgets = new ConcurrentHashMap<>();

  LedgersService(
      BookKeeper client,
      GatewaySettings settings,
      OpenLedgers ledgers,
      AppendStream.Shared streams,
      Metrics metrics,
      ExecutorService readThreads,
      Map<Boolean, ExecutorService> listThreads,
      AuditLog audit,
      Supplier<DescribeReply.Builder> description) {
    this.client = client;
    this.access = new Access(settings.access().callersWithoutDeployment());
    this.settings = settings;
    this.ledgers = ledgers;
    this.streams = streams;
    this.metrics = metrics;
    this.listThreads = listThreads;
    this.description = description;
    this.audit = audit;
    this.call = new Call(metrics::failure, audit);
    ReadCall.Shared shared =
        new ReadCall.Shared(
            call, metrics, readThreads, settings.bookieFrameBytesMax(), settings.stallMaxMs());
    this.reads = Map.of(true, new Reads(shared, settings), false, new Reads(shared, settings));
  }

  /** Read calls that run now. */
  int reads() {
    return reads.values().stream().mapToInt(kind -> kind.running.get()).sum();
  }

  /** Bytes that reads have asked for or hold. */
  long readBytes() {
    return reads.values().stream().mapToLong(kind -> kind.budget.bytes()).sum();
  }

  /** Reads that wait for room. */
  int readsWaiting() {
    return reads.values().stream().mapToInt(kind -> kind.budget.waiting()).sum();
  }

  /** Cuts off readers that do not read; called every second or so. */
  void look() {
    long now = System.nanoTime();
    reads.values().forEach(kind -> kind.open.forEach(read -> read.look(now)));
  }

  /** The reads of writers, or of everybody else: neither can take the other's room. */
  private static final class Reads {
    private final ReadCall.Shared shared;
    private final ReadBudget budget;
    private final AtomicInteger running = new AtomicInteger();
    private final Set<ReadCall> open = ConcurrentHashMap.newKeySet();

    Reads(ReadCall.Shared shared, GatewaySettings settings) {
      this.shared = shared;
      this.budget =
          new ReadBudget(
              settings.readBytesMax(),
              (int) Math.min(256, 2 * settings.readBytesMax() / settings.bookieFrameBytesMax()));
    }
  }

  @Override
  public void create(CreateRequest request, StreamObserver<CreateReply> caller) {
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Create", -1);
    call.answer(
        caller,
        Operation.CREATE,
        asked,
        () -> {
          Map<String, byte[]> custom = Metadatas.custom(request.getCustomMetadataMap());
          Whose whose = asked.is(Whose.of(custom));
          access.mayCreate(who, whose);
          requireSane(request);
          ledgers.requireRoom();
          return client
              .newCreateLedgerOp()
              .withEnsembleSize(request.getEnsemble())
              .withWriteQuorumSize(request.getWriteQuorum())
              .withAckQuorumSize(request.getAckQuorum())
              .withDigestType(Metadatas.digest(request.getDigest()))
              .withPassword(request.getPassword().toByteArray())
              .withCustomMetadata(custom)
              .execute()
              .thenApply(
                  handle -> {
                    ledgers.add(handle, who.role(), whose);
                    asked.made(handle.getId());
                    metrics.add(Metrics.Counter.CREATES, 1);
                    return CreateReply.newBuilder().setLedgerId(handle.getId()).build();
                  });
        });
  }

  @Override
  public StreamObserver<AppendRequest> append(StreamObserver<AppendReply> caller) {
    throw new UnsupportedOperationException("bound by its own marshaller, see appends");
  }

  /** As {@link #append}, of messages that were counted before they were taken apart. */
  StreamObserver<AppendMessage> appends(StreamObserver<AppendReply> caller) {
    Caller who = Caller.current();
    Peers.Peer peer = Peers.current();
    return new AppendStream(
        streams,
        (ledgerId, creator, whose) -> mayAppend(who, ledgerId, creator, whose),
        peer::cut,
        peer::taken,
        (ServerCallStreamObserver<AppendReply>) caller);
  }

  private boolean mayAppend(Caller who, long ledgerId, Role creator, Whose whose) {
    boolean may = access.mayAppend(who, creator, whose);
    if (!may) {
      Audited asked = new Audited(who, "Append", ledgerId);
      asked.is(whose);
      audit.refused(asked, OpenLedgers.noHandle(ledgerId));
    }
    return may;
  }

  @Override
  public void read(ReadRequest request, StreamObserver<ReadReply> observer) {
    ServerCallStreamObserver<ReadReply> caller = (ServerCallStreamObserver<ReadReply>) observer;
    CompletableFuture<ReadCall> started = new CompletableFuture<>();
    caller.setOnReadyHandler(() -> started.thenAccept(ReadCall::wake));
    caller.setOnCancelHandler(() -> started.thenAccept(ReadCall::cancel));
    // Ready: it has taken everything. So what was sent and not taken is known to the byte.
    caller.setOnReadyThreshold(1);
    Peers.Peer peer = Peers.current();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Read", request.getLedgerId());
    Reads kind = reads.get(who.role() == Role.WRITER);
    ReadBudget own = ownBudget(who);
    if (own != null && (own.waiting() > 0 || own.bytes() >= own.bytesMax())) {
      call.fail(caller, Operation.READ, asked, who.overReadBytes());
      return;
    }
    if (kind.running.incrementAndGet() > settings.readsMax()) {
      kind.running.decrementAndGet();
      call.fail(
          caller,
          Operation.READ,
          asked,
          LedgerFailure.later(
              "TOO_MANY_READS", "this gateway serves " + settings.readsMax() + " reads at once"));
      return;
    }
    readable(request, asked)
        .whenComplete(
            (handle, thrown) -> {
              if (thrown != null) {
                kind.running.decrementAndGet();
                call.fail(caller, Operation.READ, asked, thrown);
                return;
              }
              AtomicReference<ReadCall> self = new AtomicReference<>();
              ReadCall read =
                  new ReadCall(
                      handle,
                      request,
                      chunkBytes(request),
                      caller,
                      kind.shared,
                      new ReadRoom(own, kind.budget),
                      asked,
                      peer,
                      () -> {
                        kind.open.remove(self.get());
                        kind.running.decrementAndGet();
                      });
              self.set(read);
              kind.open.add(read);
              started.complete(read);
              read.wake();
            });
  }

  @Override
  public void fence(FenceRequest request, StreamObserver<FenceReply> caller) {
    long ledgerId = request.getLedgerId();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Fence", ledgerId);
    Peers.Peer peer = Peers.current();
    call.answer(
        caller,
        Operation.FENCE,
        asked,
        () ->
            whose(asked)
                .thenAccept(whose -> access.mayFence(who, ledgerId, whose))
                .thenCompose(
                    ours ->
                        client
                            .newOpenLedgerOp()
                            .withLedgerId(ledgerId)
                            .withRecovery(true)
                            .withPassword(request.getPassword().toByteArray())
                            .execute())
                .thenCompose(
                    handle -> {
                      metrics.add(Metrics.Counter.FENCES, 1);
                      long wanted = Integer.toUnsignedLong(request.getEntriesBytesMax());
                      return FencedEntries.of(handle, wanted, peer::reserves)
                          .thenApply(
                              entries -> {
                                handle.closeAsync();
                                metrics.add(Metrics.Counter.READ_ENTRIES, entries.size());
                                metrics.add(
                                    Metrics.Counter.READ_BYTES,
                                    entries.stream().mapToLong(ByteString::size).sum());
                                return FenceReply.newBuilder()
                                    .setLastEntryId(handle.getLastAddConfirmed())
                                    .setLength(handle.getLength())
                                    .addAllEntries(entries)
                                    .build();
                              });
                    }));
  }

  @Override
  public void close(CloseRequest request, StreamObserver<CloseReply> caller) {
    long ledgerId = request.getLedgerId();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Close", ledgerId);
    // What the metadata says afterwards is the truth: a close after somebody's recovery also ends
    // without an error.
    call.answer(
        caller,
        Operation.CLOSE,
        asked,
        () ->
            ledgers
                .held(ledgerId)
                .thenCompose(held -> whose(asked))
                .whenComplete(
                    (whose, thrown) -> {
                      if (isGone(thrown)) {
                        ledgers.release(ledgerId);
                      }
                    })
                .thenAccept(whose -> access.mayEnd(who, ledgerId, whose))
                .thenCompose(allowed -> ledgers.close(ledgerId))
                .thenCompose(closed -> client.getLedgerMetadata(ledgerId))
                .thenApply(
                    metadata -> {
                      metrics.add(Metrics.Counter.CLOSES, 1);
                      return CloseReply.newBuilder()
                          .setLastEntryId(metadata.getLastEntryId())
                          .setLength(metadata.getLength())
                          .build();
                    }));
  }

  @Override
  public void delete(DeleteRequest request, StreamObserver<DeleteReply> caller) {
    long ledgerId = request.getLedgerId();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Delete", ledgerId);
    call.answer(
        caller,
        Operation.DELETE,
        asked,
        () ->
            whose(asked)
                .thenAccept(whose -> access.mayEnd(who, ledgerId, whose))
                .thenCompose(
                    ours -> {
                      ledgers.release(ledgerId);
                      return client.newDeleteLedgerOp().withLedgerId(ledgerId).execute();
                    })
                .handle(
                    (deleted, thrown) -> {
                      boolean gone = isGone(thrown);
                      if (thrown != null && !gone) {
                        throw LedgerFailure.of(Operation.DELETE, ledgerId, thrown);
                      }
                      metrics.add(Metrics.Counter.DELETES, gone ? 0 : 1);
                      return DeleteReply.newBuilder().setAlreadyGone(gone).build();
                    }));
  }

  @Override
  public void metadata(MetadataRequest request, StreamObserver<LedgerMetadata> caller) {
    long ledgerId = request.getLedgerId();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "Metadata", ledgerId);
    call.answer(
        caller,
        Operation.METADATA,
        asked,
        () ->
            client
                .getLedgerMetadata(ledgerId)
                .thenApply(
                    metadata -> {
                      access.mayRead(
                          who, ledgerId, asked.is(Whose.of(metadata.getCustomMetadata())));
                      return Metadatas.of(metadata);
                    }));
  }

  @Override
  public void end(EndRequest request, StreamObserver<EndReply> caller) {
    long ledgerId = request.getLedgerId();
    Caller who = Caller.current();
    Audited asked = new Audited(who, "End", ledgerId);
    call.answer(
        caller,
        Operation.READ,
        asked,
        () ->
            whose(asked)
                .thenAccept(whose -> access.maySeeTheEnd(who, ledgerId, whose))
                .thenCompose(allowed -> open(ledgerId, request.getPassword()))
                .thenApply(
                    handle -> {
                      EndReply reply =
                          EndReply.newBuilder()
                              .setClosed(handle.getLedgerMetadata().isClosed())
                              .setLastAddConfirmed(handle.getLastAddConfirmed())
                              .build();
                      handle.closeAsync();
                      return reply;
                    }));
  }

  @Override
  public void list(ListRequest request, StreamObserver<ListReply> observer) {
    ServerCallStreamObserver<ListReply> caller = (ServerCallStreamObserver<ListReply>) observer;
    Caller who = Caller.current();
    Audited asked = new Audited(who, "List", -1);
    ListCall list =
        new ListCall(
            client,
            metadata -> access.sees(who, Whose.of(metadata.getCustomMetadata())),
            Metadatas.custom(request.getCustomMetadataMap()),
            settings.listInFlightMax(),
            Peers.current()::cut,
            caller,
            call,
            asked);
    caller.setOnReadyHandler(list::wake);
    caller.setOnCancelHandler(list::wake);
    try {
      listThreads.get(who.role() == Role.WRITER).execute(list);
    } catch (java.util.concurrent.RejectedExecutionException full) {
      call.fail(
          caller,
          Operation.LIST,
          asked,
          LedgerFailure.later("TOO_MANY_LISTS", "too many lists wait already"));
    }
  }

  @Override
  public void describe(DescribeRequest request, StreamObserver<DescribeReply> caller) {
    Caller who = Caller.current();
    caller.onNext(description.get().setRole(who.hasRole() ? who.role().word() : "").build());
    caller.onCompleted();
  }

  // Null: no limit of its own.
  private ReadBudget ownBudget(Caller who) {
    OptionalLong limit = who.readBytesMax();
    return limit.isEmpty()
        ? null
        : ownBudgets.compute(
            who.name(),
            (name, was) ->
                was != null && was.bytesMax() == limit.getAsLong()
                    ? was
                    : new ReadBudget(limit.getAsLong(), 0));
  }

  private CompletableFuture<ReadHandle> readable(ReadRequest request, Audited asked) {
    long ledgerId = request.getLedgerId();
    if (request.getFirstEntryId() < 0
        || (request.getLastEntryId() != -1
            && request.getLastEntryId() < request.getFirstEntryId())) {
      return CompletableFuture.failedFuture(
          LedgerFailure.refused(
              Status.Code.INVALID_ARGUMENT,
              "BAD_REQUEST",
              "the range "
                  + request.getFirstEntryId()
                  + " to "
                  + request.getLastEntryId()
                  + " is empty or negative"));
    }
    return whose(asked)
        .thenAccept(whose -> access.mayRead(asked.who(), ledgerId, whose))
        .thenCompose(allowed -> open(ledgerId, request.getPassword()));
  }

  private static boolean isGone(Throwable thrown) {
    return thrown != null
        && Failed.cause(thrown) instanceof BKException known
        && known.getCode() == BKException.Code.NoSuchLedgerExistsOnMetadataServerException;
  }

  // Asked each time: after ZooKeeper was restored from a copy, BookKeeper gives out the ids of
  // later ledgers again.
  private CompletableFuture<Whose> whose(Audited asked) {
    return client
        .getLedgerMetadata(asked.ledgerId())
        .thenApply(metadata -> asked.is(Whose.of(metadata.getCustomMetadata())));
  }

  private CompletableFuture<ReadHandle> open(long ledgerId, ByteString password) {
    return client
        .newOpenLedgerOp()
        .withLedgerId(ledgerId)
        .withRecovery(false)
        .withPassword(password.toByteArray())
        .execute();
  }

  private int chunkBytes(ReadRequest request) {
    int wanted = request.getMaxBytes();
    // Unsigned in the contract: what looks negative here is more than any limit.
    return wanted == 0
        ? settings.readChunkBytes()
        : wanted < 0
            ? settings.readChunkBytesMax()
            : Math.min(wanted, settings.readChunkBytesMax());
  }

  private static void requireSane(CreateRequest request) {
    int ensemble = request.getEnsemble();
    int write = request.getWriteQuorum();
    int ack = request.getAckQuorum();
    if (!(ensemble >= write && write >= ack && ack >= 1)) {
      throw LedgerFailure.refused(
          Status.Code.INVALID_ARGUMENT,
          "BAD_QUORUM",
          "ensemble "
              + ensemble
              + " >= write quorum "
              + write
              + " >= ack quorum "
              + ack
              + " >= 1 must hold");
    }
    int bytes =
        request.getCustomMetadataMap().entrySet().stream()
            .mapToInt(pair -> pair.getKey().length() + pair.getValue().size())
            .sum();
    if (bytes > CUSTOM_METADATA_BYTES_MAX) {
      throw LedgerFailure.refused(
          Status.Code.INVALID_ARGUMENT,
          "METADATA_TOO_LARGE",
          "custom metadata has " + bytes + " bytes, the limit is " + CUSTOM_METADATA_BYTES_MAX);
    }
  }
}
