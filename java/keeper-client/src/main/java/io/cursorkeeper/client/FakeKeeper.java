package io.cursorkeeper.client;

import com.google.protobuf.ByteString;
import io.cursorkeeper.acks.v1.AckBatch;
import io.cursorkeeper.acks.v1.Closed;
import io.cursorkeeper.acks.v1.Credit;
import io.cursorkeeper.acks.v1.DeleteCursor;
import io.cursorkeeper.acks.v1.Deleted;
import io.cursorkeeper.acks.v1.Deposed;
import io.cursorkeeper.acks.v1.Durable;
import io.cursorkeeper.acks.v1.ExportRequest;
import io.cursorkeeper.acks.v1.Hello;
import io.cursorkeeper.acks.v1.KeeperGroup;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.acks.v1.LayoutRun;
import io.cursorkeeper.acks.v1.OpenCursor;
import io.cursorkeeper.acks.v1.Opened;
import io.cursorkeeper.acks.v1.Pause;
import io.cursorkeeper.acks.v1.Refused;
import io.cursorkeeper.acks.v1.RefusedCode;
import io.cursorkeeper.acks.v1.ResetCursor;
import io.cursorkeeper.acks.v1.ResetDone;
import io.cursorkeeper.acks.v1.Resume;
import io.cursorkeeper.acks.v1.SourceMessage;
import io.cursorkeeper.acks.v1.StatePart;
import io.cursorkeeper.acks.v1.StateSlice;
import io.cursorkeeper.client.KeeperException.Code;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerServiceDefinition;
import io.grpc.ServiceDescriptor;
import io.grpc.Status;
import io.grpc.okhttp.OkHttpServerBuilder;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A keeper in memory on a real port of 127.0.0.1, for testing what uses this client. It keeps the
 * rules of the stream, refuses what the daemon refuses, and does on purpose what a daemon does in
 * trouble.
 *
 * <p>Invariants: confirmed = durable; after {@link #kill} only what was durable is there.
 * Everything is guarded by its monitor.
 */
public final class FakeKeeper implements AutoCloseable {

  /** What may be changed while it runs. */
  public static final class Faults {
    /** From accepting to confirming. */
    public volatile long durableDelayMs = 1;

    /** Nothing becomes durable until {@link FakeKeeper#release}. */
    public volatile boolean holdDurable;

    public volatile long creditBytes = 4 << 20;
    public volatile int ledgersMax = 1_000;
    public volatile int batchesMax = 1_000;
    public volatile int partsMax = 65_536;

    /** 0: as release 0.1, which knows no fencing tokens. */
    public volatile int layoutLedgersMax = 10_000;

    /** 0: none are known. */
    public volatile int groupMessagesMax = 256;

    /** So many openings are refused as UNAVAILABLE. */
    public volatile int refuseOpens;

    /** So many openings are refused as UNAVAILABLE behind the parts of their state. */
    public volatile int refuseBehindParts;

    /** A state is begun with parts that are none of it, and then once more. */
    public volatile boolean beginAgain;

    /** Nothing is answered to an opening. */
    public volatile boolean holdOpens;

    /** No reset is decided: it is forgotten, as by a daemon that dies before. */
    public volatile boolean holdResets;

    /** No Hello is answered. */
    public volatile boolean silent;

    /** No broken stream is resumed: the state follows. */
    public volatile boolean neverResume;

    public volatile int protocolVersion = 1;

    /** Of all workers, as Hello names them, and which of them this is; none: it is all. */
    public volatile List<String> workerAddresses = List.of();

    public volatile int worker;

    /** Wanted of every Hello, if not empty. */
    public volatile String credentials = "";
  }

  private final Faults faults = new Faults();
  private final Map<String, FakeCursor> cursors = new HashMap<>();
  private final Map<String, Long> tokens = new HashMap<>();
  private final Map<String, Handle> holders = new HashMap<>();

  /** Of the cursors that are held: the source that got the state last. */
  private final Map<String, String> shown = new HashMap<>();

  private final Set<Stream> streams = new LinkedHashSet<>();
  private final ScheduledExecutorService timer =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread made = new Thread(task, "fake-keeper");
            made.setDaemon(true);
            return made;
          });

  /**
   * Below what the kernel hands out to outgoing connections: who is killed finds its port free at
   * the next start.
   */
  private static final int PORT_FROM = 10_000;

  private static final int PORT_TO = 12_000;
  private static final int PORT_TRIES_MAX = 200;

  private Server server;
  private int port;
  private int incarnation;
  private long messages;
  private long resumes;
  private long opens;

  public Faults faults() {
    return faults;
  }

  /** Serves; the address stays the same over {@link #kill} and start. */
  public synchronized FakeKeeper start() {
    ServiceDescriptor service =
        ServiceDescriptor.newBuilder("cursorkeeper.acks.v1.AckSink")
            .addMethod(Wire.PUBLISH)
            .build();
    ServerServiceDefinition definition =
        ServerServiceDefinition.builder(service)
            .addMethod(Wire.PUBLISH, (call, headers) -> new Stream(call))
            .build();
    ServerServiceDefinition store =
        ServerServiceDefinition.builder(
                ServiceDescriptor.newBuilder("cursorkeeper.acks.v1.CursorStore")
                    .addMethod(Wire.EXPORT)
                    .build())
            .addMethod(Wire.EXPORT, (call, headers) -> new Question(call, headers))
            .build();
    incarnation++;
    for (int tried = 1; ; tried++) {
      int chosen = port != 0 ? port : ThreadLocalRandom.current().nextInt(PORT_FROM, PORT_TO);
      InetSocketAddress at = new InetSocketAddress(InetAddress.getLoopbackAddress(), chosen);
      try {
        server =
            OkHttpServerBuilder.forPort(at, InsecureServerCredentials.create())
                .maxInboundMessageSize(4 << 20)
                .permitKeepAliveTime(1, TimeUnit.MILLISECONDS)
                .permitKeepAliveWithoutCalls(true)
                .addService(definition)
                .addService(store)
                .build()
                .start();
        port = chosen;
        return this;
      } catch (IOException e) {
        if (port != 0 || tried == PORT_TRIES_MAX) {
          throw new UncheckedIOException(e);
        }
      }
    }
  }

  public synchronized String address() {
    return "127.0.0.1:" + port;
  }

  /** Gone at once: what was accepted and is not durable is lost. */
  public void kill() {
    Server ending;
    synchronized (this) {
      cursors.values().forEach(each -> each.pending.clear());
      holders.clear();
      shown.clear();
      streams.forEach(each -> each.isOver = true);
      streams.clear();
      ending = server;
      server = null;
    }
    if (ending != null) {
      ending.shutdownNow();
      try {
        ending.awaitTermination(5, TimeUnit.SECONDS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  @Override
  public void close() {
    kill();
    timer.shutdownNow();
  }

  /** Every stream ends; cursors stay held. */
  public synchronized void breakStreams() {
    for (Stream each : List.copyOf(streams)) {
      each.left();
      each.call.close(Status.UNAVAILABLE.withDescription("broken on purpose"), new Metadata());
    }
  }

  /** Ends {@code holdDurable}: everything accepted becomes durable now. */
  public synchronized void release() {
    faults.holdDurable = false;
    streams.forEach(each -> List.copyOf(each.handles.values()).forEach(Handle::confirm));
  }

  public synchronized void pause(String reason) {
    holders
        .values()
        .forEach(
            each ->
                each.stream.send(
                    KeeperMessage.newBuilder()
                        .setPause(Pause.newBuilder().setHandle(each.number).setReason(reason))));
  }

  public synchronized void resume() {
    holders
        .values()
        .forEach(
            each ->
                each.stream.send(
                    KeeperMessage.newBuilder()
                        .setResume(Resume.newBuilder().setHandle(each.number))));
  }

  /** As if another daemon had taken the cursor. */
  public synchronized void depose(String topic, String subscription) {
    String name = topic + "|" + subscription;
    Handle holder = holders.get(name);
    if (holder != null) {
      holder.depose();
    }
    shown.remove(name);
  }

  /** As if somebody had opened the cursor elsewhere with this token. */
  public synchronized void fence(String topic, String subscription, long token) {
    tokens.merge(topic + "|" + subscription, token, Math::max);
    depose(topic, subscription);
  }

  /**
   * As if somebody had set the cursor back elsewhere, and so fenced who has it here: what is not
   * durable is lost. Its streams break.
   */
  public synchronized void resetElsewhere(String topic, String subscription, Position target) {
    FakeCursor cursor = cursors.get(topic + "|" + subscription);
    cursor.pending.clear();
    cursor.durable.reset(target);
    cursor.generation++;
    shown.remove(topic + "|" + subscription);
    breakStreams();
  }

  /** Refuses the handle that has the cursor open. */
  public synchronized void refuse(String topic, String subscription, Code code) {
    Handle holder = holders.get(topic + "|" + subscription);
    if (holder != null) {
      holder.stream.refuse(holder.number, new FakeCursor.Refusal(code, "refused on purpose"), 0);
    }
  }

  /** Messages of sources so far, those in groups one by one. */
  public synchronized long messages() {
    return messages;
  }

  /** Openings that were answered with a state, and those that were resumed. */
  public synchronized long opens() {
    return opens;
  }

  /** Cursors that a stream has open, as {@code topic|subscription}. */
  public synchronized Set<String> held() {
    return Set.copyOf(holders.keySet());
  }

  public synchronized long resumes() {
    return resumes;
  }

  /** What is durable. Null: there is no such cursor. */
  public synchronized CursorState stored(String topic, String subscription) {
    FakeCursor cursor = cursors.get(topic + "|" + subscription);
    if (cursor == null) {
      return null;
    }
    List<KeeperMessage> told = cursor.recovered(0, false);
    StateParts parts = new StateParts(told.get(0).getOpened());
    parts.add(told.get(1).getStatePart());
    return parts.end(told.get(2).getStateEnd());
  }

  private static final class Handle {
    private final Stream stream;
    private final int number;
    private final FakeCursor cursor;
    private final ArrayDeque<long[]> waiting = new ArrayDeque<>();
    private long granted;
    private long used;
    private long lastSeq;
    private long confirmed;

    Handle(Stream stream, int number, FakeCursor cursor, long granted) {
      this.stream = stream;
      this.number = number;
      this.cursor = cursor;
      this.granted = granted;
    }

    void confirm() {
      FakeCursor.Pending next;
      while ((next = cursor.pending.poll()) != null) {
        next.change().accept(cursor.durable);
        if (next.by() == this) {
          granted += next.bytes();
          confirmed = next.seq();
        }
      }
      while (!waiting.isEmpty() && waiting.peek()[0] <= confirmed) {
        waiting.poll();
      }
      stream.send(
          KeeperMessage.newBuilder()
              .setDurable(Durable.newBuilder().setHandle(number).setSeq(confirmed)));
      stream.send(
          KeeperMessage.newBuilder()
              .setCredit(Credit.newBuilder().setHandle(number).setGrantedBytes(granted)));
    }

    void depose() {
      confirm();
      stream.forget(number);
      stream.refused.add(number);
      stream.send(
          KeeperMessage.newBuilder()
              .setDeposed(Deposed.newBuilder().setHandle(number).setEpoch(cursor.epoch)));
    }

    void take(long seq) {
      if (seq <= lastSeq) {
        throw new FakeCursor.Refusal(Code.SEQ_NOT_GROWING, "seq " + seq + " after " + lastSeq);
      }
      lastSeq = seq;
    }
  }

  /**
   * For the state of a cursor that somebody has open; everything accepted is durable before it is
   * told.
   */
  private final class Question extends ServerCall.Listener<ExportRequest> {
    private final ServerCall<ExportRequest, KeeperMessage> call;
    private final String authorization;
    private ExportRequest request;

    Question(ServerCall<ExportRequest, KeeperMessage> call, Metadata headers) {
      this.call = call;
      authorization =
          headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER));
      call.request(2);
    }

    @Override
    public void onMessage(ExportRequest message) {
      request = message;
    }

    @Override
    public void onHalfClose() {
      synchronized (FakeKeeper.this) {
        Handle holder =
            holders.get(
                request.getCursor().getTopic() + "|" + request.getCursor().getSubscription());
        if (!faults.credentials.isEmpty()
            && !("Bearer " + faults.credentials).equals(authorization)) {
          call.close(
              Status.UNAUTHENTICATED.withDescription("the token is missing or wrong"),
              new Metadata());
        } else if (holder == null) {
          call.close(Status.NOT_FOUND.withDescription("not held by this daemon"), new Metadata());
        } else {
          holder.confirm();
          call.sendHeaders(new Metadata());
          holder.cursor.recovered(0, false).forEach(call::sendMessage);
          call.close(Status.OK, new Metadata());
        }
      }
    }
  }

  private final class Stream extends ServerCall.Listener<SourceMessage> {
    private final ServerCall<SourceMessage, KeeperMessage> call;
    private final Map<Integer, Handle> handles = new HashMap<>();
    private final Set<Integer> refused = new HashSet<>();
    private final ArrayDeque<KeeperMessage> outbox = new ArrayDeque<>();
    private String source = "";
    private int groupMessagesMax;
    private boolean isOver;

    Stream(ServerCall<SourceMessage, KeeperMessage> call) {
      this.call = call;
      synchronized (FakeKeeper.this) {
        streams.add(this);
      }
      call.sendHeaders(new Metadata());
      call.request(1);
    }

    @Override
    public void onMessage(SourceMessage message) {
      synchronized (FakeKeeper.this) {
        if (isOver) {
          return;
        }
        String problem = message.hasGroup() ? receiveGroup(message) : receive(message);
        if (problem != null) {
          left();
          call.close(Status.FAILED_PRECONDITION.withDescription(problem), new Metadata());
          return;
        }
        flush();
        call.request(1);
      }
    }

    @Override
    public void onCancel() {
      synchronized (FakeKeeper.this) {
        left();
      }
    }

    @Override
    public void onHalfClose() {
      onCancel();
    }

    /**
     * The stream is over; its cursors stay, without a handle. What was accepted is still written.
     */
    private void left() {
      isOver = true;
      streams.remove(this);
      for (Handle each : List.copyOf(handles.values())) {
        if (!faults.holdDurable) {
          each.confirm();
        }
        forget(each.number);
      }
    }

    private void send(KeeperMessage.Builder message) {
      if (!isOver) {
        outbox.add(message.build());
        timer.execute(
            () -> {
              synchronized (FakeKeeper.this) {
                flush();
              }
            });
      }
    }

    private void flush() {
      int most = Math.max(1, Math.min(groupMessagesMax, faults.groupMessagesMax));
      while (!outbox.isEmpty() && !isOver) {
        KeeperMessage next = outbox.poll();
        if (most > 1 && !outbox.isEmpty() && !next.hasHello()) {
          KeeperGroup.Builder group = KeeperGroup.newBuilder().addMessages(next);
          while (!outbox.isEmpty() && group.getMessagesCount() < most) {
            group.addMessages(outbox.poll());
          }
          next = KeeperMessage.newBuilder().setGroup(group).build();
        }
        call.sendMessage(next);
      }
    }

    private String receiveGroup(SourceMessage message) {
      int count = message.getGroup().getMessagesCount();
      if (source.isEmpty() || count > faults.groupMessagesMax) {
        return "a group of " + count + " messages, " + faults.groupMessagesMax + " are allowed";
      }
      for (SourceMessage each : message.getGroup().getMessagesList()) {
        String problem = each.hasGroup() ? "a group within a group" : receive(each);
        if (problem != null) {
          return problem;
        }
      }
      return null;
    }

    private String receive(SourceMessage message) {
      messages++;
      if (message.hasHello()) {
        return hello(message.getHello());
      }
      if (source.isEmpty()) {
        return "the first message must be Hello";
      }
      int number =
          switch (message.getMessageCase()) {
            case OPEN_CURSOR -> message.getOpenCursor().getHandle();
            case ACK_BATCH -> message.getAckBatch().getHandle();
            case LAYOUT -> message.getLayout().getHandle();
            case SET_CURSOR_PROPERTIES -> message.getSetCursorProperties().getHandle();
            case RESET_CURSOR -> message.getResetCursor().getHandle();
            case CLOSE_CURSOR -> message.getCloseCursor().getHandle();
            case DELETE_CURSOR -> message.getDeleteCursor().getHandle();
            default -> 0;
          };
      try {
        switch (message.getMessageCase()) {
          case OPEN_CURSOR -> open(message.getOpenCursor());
          case DELETE_CURSOR -> delete(message.getDeleteCursor());
          case ACK_BATCH, LAYOUT, SET_CURSOR_PROPERTIES, RESET_CURSOR, CLOSE_CURSOR -> {
            if (!refused.contains(number)) { // else it was sent before the source knew
              ofHandle(handle(number), message);
            }
          }
          default -> {
            return "an empty message";
          }
        }
      } catch (FakeCursor.Refusal refusal) {
        refuse(number, refusal, seqOf(message));
      }
      return null;
    }

    private static long seqOf(SourceMessage message) {
      return switch (message.getMessageCase()) {
        case ACK_BATCH -> message.getAckBatch().getSeq();
        case LAYOUT -> message.getLayout().getSeq();
        case SET_CURSOR_PROPERTIES -> message.getSetCursorProperties().getSeq();
        case RESET_CURSOR -> message.getResetCursor().getSeq();
        default -> 0;
      };
    }

    private String hello(Hello hello) {
      if (faults.silent) {
        return null;
      }
      if (!faults.credentials.isEmpty()
          && !hello.getCredentials().equals(ByteString.copyFromUtf8(faults.credentials))) {
        return "the credentials of "
            + hello.getName()
            + " are wrong: give the source the keeper's token";
      }
      groupMessagesMax = hello.getGroupMessagesMax();
      source = hello.getName() + "/" + hello.getIncarnation();
      send(
          KeeperMessage.newBuilder()
              .setHello(
                  Hello.newBuilder()
                      .setName("fake-keeper")
                      .setIncarnation(Integer.toString(incarnation))
                      .addProtocolVersions(faults.protocolVersion)
                      .setAckLedgersMax(faults.ledgersMax)
                      .setAckPartialsMax(faults.batchesMax)
                      .setUnconfirmedPartsMax(faults.partsMax)
                      .setLayoutLedgersMax(faults.layoutLedgersMax)
                      .setGroupMessagesMax(faults.groupMessagesMax)
                      .setWorker(faults.worker)
                      .addAllWorkerAddresses(faults.workerAddresses)));
      return null;
    }

    private void ofHandle(Handle handle, SourceMessage message) {
      switch (message.getMessageCase()) {
        case ACK_BATCH -> acks(handle, message.getAckBatch());
        case LAYOUT -> {
          LayoutRun run = message.getLayout().getRun();
          checkLayout(run);
          handle.cursor.takeLayout(run);
          control(
              handle,
              message.getLayout().getSeq(),
              message.getLayout().getGeneration(),
              state -> {});
        }
        case SET_CURSOR_PROPERTIES -> {
          Map<String, String> values =
              message.getSetCursorProperties().getProperties().getValuesMap();
          control(
              handle,
              message.getSetCursorProperties().getSeq(),
              message.getSetCursorProperties().getGeneration(),
              state -> state.cursorProperties = values);
        }
        case RESET_CURSOR -> reset(handle, message.getResetCursor());
        default -> {
          handle.confirm();
          shown.remove(handle.cursor.name);
          forget(handle.number);
          send(KeeperMessage.newBuilder().setClosed(Closed.newBuilder().setHandle(handle.number)));
        }
      }
    }

    private void open(OpenCursor open) {
      if (faults.holdOpens) {
        return;
      }
      int number = open.getHandle();
      String name = open.getTopic() + "|" + open.getSubscription();
      checkLayout(open.getLayout());
      int refusals = faults.refuseOpens;
      if (refusals > 0) {
        faults.refuseOpens = refusals - 1;
        throw new FakeCursor.Refusal(Code.UNAVAILABLE, "refused on purpose");
      }
      if (handles.containsKey(number)) {
        throw new FakeCursor.Refusal(Code.ALREADY_OPEN, "handle " + number + " is in use");
      }
      checkToken(name, open.getFencingToken());
      FakeCursor cursor = cursors.get(name);
      boolean created = cursor == null;
      if (created) {
        if (!open.getCreate()) {
          throw new FakeCursor.Refusal(Code.NOT_FOUND, "no such cursor");
        }
        cursor = new FakeCursor(name, open);
        cursors.put(name, cursor);
      } else {
        Handle holder = holders.get(name);
        if (holder != null) {
          if (!open.getTakeover() && open.getFencingToken() == 0) {
            throw new FakeCursor.Refusal(Code.ALREADY_OPEN, "another handle has it");
          }
          holder.depose();
        }
      }
      tokens.merge(name, open.getFencingToken(), Math::max);
      boolean isResumed =
          open.hasResume()
              && !faults.neverResume
              && source.equals(shown.get(name))
              && open.getResume().getEpoch() == cursor.epoch
              && open.getResume().getGeneration() == cursor.generation;
      if (!shown.containsKey(name)) {
        cursor.epoch++; // not held: a claim
      }
      cursor.takeLayout(open.getLayout());
      refused.remove(number);
      Handle handle = new Handle(this, number, cursor, faults.creditBytes);
      handles.put(number, handle);
      holders.put(name, handle);
      if (isResumed) {
        resumes++;
        send(
            KeeperMessage.newBuilder()
                .setOpened(
                    Opened.newBuilder()
                        .setHandle(number)
                        .setEpoch(cursor.epoch)
                        .setGeneration(cursor.generation)
                        .setResumed(true)));
      } else {
        opens++;
        while (!cursor.pending
            .isEmpty()) { // everything accepted is durable before a state is shown
          cursor.pending.poll().change().accept(cursor.durable);
        }
        shown.put(name, source);
        List<KeeperMessage> state = cursor.recovered(number, created);
        int broken = faults.refuseBehindParts;
        if (broken > 0 || faults.beginAgain) {
          faults.refuseBehindParts = Math.max(0, broken - 1);
          send(state.get(0).toBuilder());
          send(
              KeeperMessage.newBuilder()
                  .setStatePart(
                      StatePart.newBuilder()
                          .setHandle(number)
                          .addSlices(
                              StateSlice.newBuilder().setLedgerId(12).setLast(99).setHoles(true))));
        }
        if (broken > 0) {
          throw new FakeCursor.Refusal(Code.UNAVAILABLE, "refused on purpose");
        }
        state.forEach(each -> send(each.toBuilder()));
      }
      send(
          KeeperMessage.newBuilder()
              .setCredit(Credit.newBuilder().setHandle(number).setGrantedBytes(handle.granted)));
    }

    private void checkLayout(LayoutRun run) {
      if (run.getIdsCount() > faults.layoutLedgersMax) {
        throw new FakeCursor.Refusal(
            Code.TOO_LARGE, "a layout of " + run.getIdsCount() + " ledgers");
      }
    }

    private void checkToken(String name, long token) {
      long seen = tokens.getOrDefault(name, 0L);
      if (token < seen) {
        throw new FakeCursor.Refusal(Code.FENCED, "token " + token + ", " + seen + " was seen");
      }
    }

    private void acks(Handle handle, AckBatch batch) {
      int size = batch.getSerializedSize();
      handle.take(batch.getSeq());
      handle.used += size;
      if (handle.used > handle.granted && !handle.waiting.isEmpty()) {
        throw new FakeCursor.Refusal(
            Code.CREDIT_EXCEEDED, handle.used + " bytes used, " + handle.granted + " granted");
      }
      int ledgers = batch.getLedgersCount();
      int batches =
          batch.getLedgersList().stream()
              .flatMap(each -> each.getPartialList().stream())
              .mapToInt(each -> 1 + each.getAckedCount() / 64 + each.getAckSetCount() / 128)
              .sum();
      if (ledgers > faults.ledgersMax || batches > faults.batchesMax) {
        throw new FakeCursor.Refusal(
            Code.TOO_LARGE, ledgers + " data ledgers and " + batches + " batches: split it");
      }
      long waiting = handle.waiting.stream().mapToLong(each -> each[1]).sum();
      if (waiting > 0 && waiting + ledgers + batches > faults.partsMax) {
        throw new FakeCursor.Refusal(
            Code.CREDIT_EXCEEDED, waiting + ledgers + batches + " parts are not confirmed");
      }
      handle.waiting.add(new long[] {batch.getSeq(), ledgers + batches});
      checkGeneration(handle, batch.getGeneration());
      if (batch.getGeneration() < handle.cursor.generation) { // dropped, and decided
        accept(handle, batch.getSeq(), size, state -> {});
      } else {
        handle.cursor.check(batch);
        accept(handle, batch.getSeq(), size, state -> state.join(batch));
      }
    }

    private void checkGeneration(Handle handle, int generation) {
      if (generation == 0) {
        throw new FakeCursor.Refusal(Code.BAD_MESSAGE, "generation is required");
      }
      if (generation > handle.cursor.generation) {
        String text = "generation " + generation + ", the cursor is in " + handle.cursor.generation;
        throw new FakeCursor.Refusal(Code.WRONG_GENERATION, text);
      }
    }

    private void control(
        Handle handle, long seq, int generation, Consumer<FakeCursor.State> change) {
      handle.take(seq);
      checkGeneration(handle, generation);
      accept(handle, seq, 0, change);
    }

    private void reset(Handle handle, ResetCursor reset) {
      Position target = Wire.position(reset.getTarget());
      handle.cursor.checkTarget(target);
      if (faults.holdResets) {
        handle.take(reset.getSeq());
        return;
      }
      control(handle, reset.getSeq(), reset.getGeneration(), state -> state.reset(target));
      handle.cursor.generation++;
      handle.confirm();
      send(
          KeeperMessage.newBuilder()
              .setResetDone(
                  ResetDone.newBuilder()
                      .setHandle(handle.number)
                      .setGeneration(handle.cursor.generation)
                      .setMarkDelete(reset.getTarget())));
    }

    private void delete(DeleteCursor delete) {
      Handle handle = handles.get(delete.getHandle());
      String name =
          handle != null ? handle.cursor.name : delete.getTopic() + "|" + delete.getSubscription();
      if (handle == null) {
        checkToken(name, delete.getFencingToken());
        if (holders.containsKey(name)) {
          throw new FakeCursor.Refusal(Code.ALREADY_OPEN, "another handle has it");
        }
      }
      if (cursors.remove(name) == null) {
        throw new FakeCursor.Refusal(Code.NOT_FOUND, "no such cursor");
      }
      shown.remove(name);
      forget(delete.getHandle());
      send(
          KeeperMessage.newBuilder()
              .setDeleted(Deleted.newBuilder().setHandle(delete.getHandle())));
    }

    private void accept(Handle handle, long seq, long bytes, Consumer<FakeCursor.State> change) {
      handle.cursor.pending.add(new FakeCursor.Pending(handle, seq, bytes, change));
      if (faults.holdDurable) {
        return;
      }
      timer.schedule(
          () -> {
            synchronized (FakeKeeper.this) {
              if (handles.get(handle.number) == handle && !faults.holdDurable) {
                handle.confirm();
              }
            }
          },
          faults.durableDelayMs,
          TimeUnit.MILLISECONDS);
    }

    private Handle handle(int number) {
      Handle handle = handles.get(number);
      if (handle == null) {
        throw new FakeCursor.Refusal(Code.UNKNOWN_HANDLE, "handle " + number + " is not open");
      }
      return handle;
    }

    private void refuse(int number, FakeCursor.Refusal refusal, long seq) {
      Handle handle = handles.get(number);
      if (handle != null) {
        handle.confirm();
      }
      forget(number);
      refused.add(number);
      send(
          KeeperMessage.newBuilder()
              .setRefused(
                  Refused.newBuilder()
                      .setHandle(number)
                      .setCode(RefusedCode.valueOf(refusal.code.name()))
                      .setCursor(handle == null ? "" : handle.cursor.name)
                      .setMessage(refusal.getMessage())
                      .setRemedy("see the message")
                      .setSeq(seq)));
    }

    private void forget(int number) {
      Handle handle = handles.remove(number);
      if (handle != null && holders.get(handle.cursor.name) == handle) {
        holders.remove(handle.cursor.name);
      }
    }
  }
}
