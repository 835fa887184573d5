package io.cursorkeeper.client;

import com.google.protobuf.ByteString;
import io.cursorkeeper.acks.v1.CursorRef;
import io.cursorkeeper.acks.v1.ExportRequest;
import io.cursorkeeper.acks.v1.Hello;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.acks.v1.SourceGroup;
import io.cursorkeeper.acks.v1.SourceMessage;
import io.cursorkeeper.client.KeeperException.Code;
import io.grpc.CallOptions;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.okhttp.OkHttpChannelBuilder;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The stream to one worker of the daemon over time, and the turns of its cursors on it. The thread
 * of the {@link DaemonLink} does everything, gRPC's callbacks included; callers only join their
 * changes to a cursor's and wake it.
 *
 * <p>Invariants: nothing is made to be sent while the network does not take it, so what waits is
 * joined; a message follows another at once after a silence, and after {@code GAP} otherwise,
 * because it costs either side about 100 us, whatever it holds.
 */
final class Link {

  private static final Logger LOG = System.getLogger("io.cursorkeeper.client");
  private static final long GAP_NS = TimeUnit.MILLISECONDS.toNanos(2);
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  /** The transport wants a host, which nobody asks a name server for, and nobody dials. */
  private static final String ANY_HOST = "127.0.0.1:1";

  /** What gRPC calls the other end of a socket of the file system, everywhere. */
  private static final String LOCAL_AUTHORITY = "localhost";

  private static final Duration HELLO_TIMEOUT = Duration.ofSeconds(10);

  /**
   * A stream that ends with one of these would end so again. Every other status is a broken
   * connection.
   */
  private static final Set<Status.Code> REFUSING =
      Set.of(
          Status.Code.INVALID_ARGUMENT,
          Status.Code.PERMISSION_DENIED,
          Status.Code.UNAUTHENTICATED,
          Status.Code.UNIMPLEMENTED,
          Status.Code.FAILED_PRECONDITION);

  final LinkSettings settings;
  private final DaemonLink daemon;
  private final String address;
  private final ConcurrentLinkedQueue<Cursor> queue = new ConcurrentLinkedQueue<>();
  private final AtomicBoolean isFlushing = new AtomicBoolean();

  // Of the thread.
  private final Set<Cursor> cursors = new LinkedHashSet<>();
  private final Map<Integer, Cursor> handles = new HashMap<>();
  private final ArrayDeque<SourceMessage> first = new ArrayDeque<>();
  private ManagedChannel channel;
  private Stream stream;
  private long streams;
  private Limits limits = Limits.NOT_TOLD;
  private String keeper = "";
  private String problem = DaemonLink.NOTHING_YET;
  private boolean isClosed;

  /** Null: the last stream did not end because the keeper or this client refused the other one. */
  private KeeperException refusal;

  private int attempts;
  private long gapUntilNs;

  Link(DaemonLink daemon, LinkSettings settings, String address) {
    this.daemon = daemon;
    this.settings = settings;
    this.address = address;
    gapUntilNs = System.nanoTime();
  }

  // ---- for the daemon's link; of the thread

  /** Dials. Not part of the making: the first Hello may come before the maker's next line. */
  void begin() {
    daemon.run(this::dial);
  }

  void add(Cursor cursor) {
    cursors.add(cursor);
  }

  void remove(Cursor cursor) {
    cursors.remove(cursor);
  }

  List<Cursor> cursors() {
    return List.copyOf(cursors);
  }

  int cursorCount() {
    return cursors.size();
  }

  /** Its name and incarnation, newest; empty before the first. */
  String keeper() {
    return keeper;
  }

  /** The stream ends, and there is none after it. Its cursors are down. */
  void close(String why) {
    isClosed = true;
    drop(why);
  }

  void read(String topic, String subscription, Answer<CursorState> answer) {
    String display = topic + "|" + subscription;
    Metadata headers = new Metadata();
    try {
      if (!isUp()) {
        throw new KeeperException(
            Code.AWAY, display, problem(), "start the daemon, or correct the address");
      }
      byte[] token = settings.credentials().get();
      if (token.length > 0) {
        headers.put(AUTHORIZATION, "Bearer " + new String(token, StandardCharsets.UTF_8));
      }
    } catch (RuntimeException failed) {
      KeeperException why =
          failed instanceof KeeperException said
              ? said
              : new KeeperException(
                  Code.LINK_REFUSED,
                  display,
                  "the credentials cannot be had: " + failed,
                  "correct them");
      settings.executor().execute(() -> answer.fail(why));
      return;
    }
    CallOptions options =
        CallOptions.DEFAULT.withDeadlineAfter(
            settings.answerTimeout().toNanos(), TimeUnit.NANOSECONDS);
    new StateCall(channel.newCall(Wire.EXPORT, options), display, settings.executor(), answer)
        .ask(
            ExportRequest.newBuilder()
                .setCursor(CursorRef.newBuilder().setTopic(topic).setSubscription(subscription))
                .build(),
            headers);
  }

  // ---- for cursors

  void wake(Cursor cursor) {
    if (cursor.isQueued.compareAndSet(false, true)) {
      queue.add(cursor);
      flushSoon();
    }
  }

  void count(long grown) {
    daemon.count(grown);
  }

  boolean isMemoryFull() {
    return daemon.isMemoryFull();
  }

  // Of the thread.

  boolean isUp() {
    return stream != null && stream.isGreeted;
  }

  /** Why the newest stream ended or did not come; empty while up. */
  String problem() {
    return problem;
  }

  /** What an opening fails with while there is no link: {@code LINK_REFUSED}, or {@code AWAY}. */
  KeeperException noLink(String display, String text) {
    return refusal != null
        ? refusal
        : new KeeperException(
            Code.AWAY,
            display,
            text + ": " + problem(),
            "start the daemon, or correct the address");
  }

  Limits limits() {
    return limits;
  }

  long stream() {
    return streams;
  }

  int register(Cursor cursor) {
    int handle = daemon.nextHandle();
    handles.put(handle, cursor);
    return handle;
  }

  void forget(int handle) {
    handles.remove(handle);
  }

  void ended(Cursor cursor) {
    cursors.remove(cursor);
    daemon.note();
  }

  void sendFirst(SourceMessage message) {
    if (isUp()) {
      first.add(message);
      flushSoon();
    }
  }

  Future<?> later(Duration delay, Runnable task) {
    return daemon.later(delay, task);
  }

  /** Unless the answer is there before: then nothing of the task is kept. */
  void unless(Answer<?> answer, Duration delay, Runnable task) {
    Future<?> timer = later(delay, task);
    answer.whenComplete((value, failure) -> timer.cancel(false));
  }

  /** Doubles from the minimum to the maximum; each between half of the step and all of it. */
  Duration pause(int attempt) {
    long step = settings.backOffMin().toNanos();
    for (int at = 0; at < attempt && step < settings.backOffMax().toNanos(); at++) {
      step *= 2;
    }
    step = Math.min(step, settings.backOffMax().toNanos());
    return Duration.ofNanos(step / 2 + ThreadLocalRandom.current().nextLong(step / 2 + 1));
  }

  // ---- the stream

  private void dial() {
    if (isClosed) {
      return;
    }
    Hello.Builder hello =
        Hello.newBuilder()
            .setName(settings.name())
            .setIncarnation(settings.incarnation())
            .addProtocolVersions(Wire.PROTOCOL_VERSION)
            .setGroupMessagesMax(Wire.GROUP_MESSAGES_MAX);
    try {
      hello.setCredentials(ByteString.copyFrom(settings.credentials().get()));
    } catch (RuntimeException unreadable) {
      again("the credentials cannot be had: " + unreadable);
      return;
    }
    try {
      channel = channel();
    } catch (IOException | RuntimeException unusable) {
      again("the files of TLS cannot be used: " + unusable);
      return;
    }
    streams = daemon.nextStream();
    Stream made = new Stream(channel.newCall(Wire.PUBLISH, CallOptions.DEFAULT));
    stream = made;
    made.call.start(made, new Metadata());
    made.call.request(2);
    made.call.sendMessage(SourceMessage.newBuilder().setHello(hello).build());
    later(
        HELLO_TIMEOUT,
        () -> {
          if (!made.isGreeted) {
            made.end(
                Status.DEADLINE_EXCEEDED.withDescription(
                    "no Hello within " + HELLO_TIMEOUT.toSeconds() + " s"));
          }
        });
  }

  private ManagedChannel channel() throws IOException {
    ChannelCredentials shown =
        settings.tls().isPresent()
            ? settings.tls().get().credentials()
            : InsecureChannelCredentials.create();
    OkHttpChannelBuilder dialling;
    if (UnixAddress.is(address)) {
      dialling =
          OkHttpChannelBuilder.forTarget("dns:///" + ANY_HOST, shown)
              .socketFactory(new UnixSockets(UnixAddress.of(address)))
              .overrideAuthority(LOCAL_AUTHORITY);
    } else {
      dialling = OkHttpChannelBuilder.forTarget("dns:///" + address, shown);
    }
    settings
        .tls()
        .map(LinkTls::serverName)
        .filter(name -> !name.isEmpty())
        .ifPresent(dialling::overrideAuthority);
    return dialling
        .executor(daemon::run)
        .proxyDetector(address -> null)
        .disableRetry()
        .keepAliveTime(settings.keepAlive().toNanos(), TimeUnit.NANOSECONDS)
        .keepAliveTimeout(settings.keepAlive().toNanos() / 2, TimeUnit.NANOSECONDS)
        .keepAliveWithoutCalls(true)
        .maxInboundMessageSize(Wire.RECEIVE_BYTES_MAX)
        .build();
  }

  /** One stream; after its end nothing of it counts. */
  private final class Stream extends ClientCall.Listener<KeeperMessage> {
    private final ClientCall<SourceMessage, KeeperMessage> call;
    private boolean isGreeted;

    Stream(ClientCall<SourceMessage, KeeperMessage> call) {
      this.call = call;
    }

    @Override
    public void onMessage(KeeperMessage message) {
      if (stream != this) {
        return;
      }
      call.request(1);
      if (message.getMessageCase() == KeeperMessage.MessageCase.GROUP) {
        message.getGroup().getMessagesList().forEach(this::receive);
      } else {
        receive(message);
      }
    }

    private void receive(KeeperMessage message) {
      if (message.getMessageCase() == KeeperMessage.MessageCase.HELLO) {
        greeted(message.getHello());
        return;
      }
      int handle = handleOf(message);
      Cursor cursor = handles.get(handle);
      if (cursor == null) {
        return; // it has just ended here
      }
      try {
        cursor.receive(message);
      } catch (RuntimeException wrong) {
        LOG.log(Level.ERROR, "a message of the keeper could not be taken", wrong);
        cursor.giveUp(
            new KeeperException(
                Code.BAD_MESSAGE,
                cursor.topic() + "|" + cursor.subscription(),
                "a message of the keeper could not be taken: " + wrong,
                "report this; open it again"));
      }
    }

    private void greeted(Hello hello) {
      if (isGreeted) {
        return;
      }
      if (!hello.getProtocolVersionsList().contains(Wire.PROTOCOL_VERSION)) {
        end(
            Status.FAILED_PRECONDITION.withDescription(
                "keeper "
                    + hello.getName()
                    + " speaks the protocol versions "
                    + hello.getProtocolVersionsList()
                    + ", this client "
                    + Wire.PROTOCOL_VERSION
                    + "; upgrade one of the two"));
        return;
      }
      if (hello.getLayoutLedgersMax() == 0) {
        end(
            Status.FAILED_PRECONDITION.withDescription(
                "keeper "
                    + hello.getName()
                    + " is of release 0.1, which knows no fencing tokens:"
                    + " who was replaced could take acks back; upgrade it"));
        return;
      }
      isGreeted = true;
      attempts = 0;
      limits = Limits.of(hello);
      keeper = hello.getName() + "/" + hello.getIncarnation();
      problem = "";
      daemon.greeted(Link.this, hello);
      cursors.forEach(Cursor::up);
      flushSoon();
    }

    @Override
    public void onReady() {
      if (stream == this) {
        flushSoon();
      }
    }

    @Override
    public void onClose(Status ended, Metadata trailers) {
      end(ended);
    }

    private void end(Status ended) {
      if (stream != this) {
        return;
      }
      String text =
          ended.getCode()
              + (ended.getDescription() == null ? "" : ": " + ended.getDescription())
              + (ended.getCause() == null ? "" : " (" + ended.getCause().getMessage() + ")");
      drop(text);
      if (REFUSING.contains(ended.getCode())) {
        refusal =
            new KeeperException(Code.LINK_REFUSED, "", text, "correct credentials or version");
        List.copyOf(cursors).forEach(each -> each.refusedLink(refusal));
      } else {
        refusal = null;
      }
      again(text);
    }
  }

  private void drop(String why) {
    Stream before = stream;
    stream = null;
    if (before != null) {
      before.call.cancel(why, null);
    }
    if (channel != null) {
      channel.shutdownNow();
      channel = null;
    }
    handles.clear();
    first.clear();
    limits = Limits.NOT_TOLD;
    List.copyOf(cursors).forEach(Cursor::down);
  }

  private void again(String why) {
    problem = why;
    daemon.tell();
    later(pause(attempts++), this::dial);
  }

  private static int handleOf(KeeperMessage message) {
    return switch (message.getMessageCase()) {
      case OPENED -> message.getOpened().getHandle();
      case STATE_PART -> message.getStatePart().getHandle();
      case STATE_END -> message.getStateEnd().getHandle();
      case DURABLE -> message.getDurable().getHandle();
      case CREDIT -> message.getCredit().getHandle();
      case PAUSE -> message.getPause().getHandle();
      case RESUME -> message.getResume().getHandle();
      case REFUSED -> message.getRefused().getHandle();
      case DEPOSED -> message.getDeposed().getHandle();
      case CLOSED -> message.getClosed().getHandle();
      case DELETED -> message.getDeleted().getHandle();
      case RESET_DONE -> message.getResetDone().getHandle();
      default -> 0; // of a newer version
    };
  }

  // ---- sending

  private void flushSoon() {
    if (isFlushing.compareAndSet(false, true)) {
      daemon.run(this::flush);
    }
  }

  private void flush() {
    long now = System.nanoTime();
    if (now - gapUntilNs < 0) {
      later(Duration.ofNanos(gapUntilNs - now), this::flush);
      return;
    }
    isFlushing.set(false); // who wakes a cursor from now on asks for another turn
    if (!isUp()) {
      return;
    }
    List<SourceMessage> group = new ArrayList<>();
    int bytes = 0;
    boolean isAny = false;
    while (stream.call.isReady()) {
      SourceMessage message = nextMessage();
      if (message == null) {
        break;
      }
      int size = Wire.groupedBytes(message);
      if (!group.isEmpty()
          && (bytes + size > Wire.GROUP_BYTES || group.size() >= limits.groupMessages())) {
        send(group);
        bytes = 0;
      }
      group.add(message);
      bytes += size;
      isAny = true;
    }
    send(group);
    if (isAny) {
      gapUntilNs = System.nanoTime() + GAP_NS;
    }
  }

  private SourceMessage nextMessage() {
    if (!first.isEmpty()) {
      return first.poll();
    }
    Cursor cursor;
    while ((cursor = queue.poll()) != null) {
      if (cursor.link() != this) {
        continue; // it was moved meanwhile, and is queued there
      }
      cursor.isQueued.set(false);
      SourceMessage message = next(cursor);
      if (message != null) {
        if (cursor.isQueued.compareAndSet(false, true)) {
          queue.add(cursor); // behind the others, for what it has beside this
        }
        return message;
      }
    }
    return null;
  }

  private static SourceMessage next(Cursor cursor) {
    try {
      return cursor.next();
    } catch (RuntimeException wrong) { // costs this cursor, and nobody else's turn
      LOG.log(Level.ERROR, "bug: a message could not be made", wrong);
      cursor.giveUp(
          new KeeperException(
              Code.BAD_MESSAGE,
              cursor.topic() + "|" + cursor.subscription(),
              "a message could not be made: " + wrong,
              "report this; open it again"));
      return null;
    }
  }

  private void send(List<SourceMessage> group) {
    if (group.isEmpty()) {
      return;
    }
    stream.call.sendMessage(
        group.size() == 1
            ? group.get(0)
            : SourceMessage.newBuilder()
                .setGroup(SourceGroup.newBuilder().addAllMessages(group))
                .build());
    group.clear();
  }
}
