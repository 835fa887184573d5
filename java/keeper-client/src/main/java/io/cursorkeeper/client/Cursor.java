package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.AckBatch;
import io.cursorkeeper.acks.v1.CloseCursor;
import io.cursorkeeper.acks.v1.DeleteCursor;
import io.cursorkeeper.acks.v1.KeeperMessage;
import io.cursorkeeper.acks.v1.Layout;
import io.cursorkeeper.acks.v1.OpenCursor;
import io.cursorkeeper.acks.v1.Opened;
import io.cursorkeeper.acks.v1.Refused;
import io.cursorkeeper.acks.v1.ResetCursor;
import io.cursorkeeper.acks.v1.ResetDone;
import io.cursorkeeper.acks.v1.ResumePoint;
import io.cursorkeeper.acks.v1.SetCursorProperties;
import io.cursorkeeper.acks.v1.SourceMessage;
import io.cursorkeeper.client.KeeperException.Code;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * One cursor over all its openings: what waits, what is sent and not confirmed, and who waits for
 * it. The stream is the link's.
 *
 * <p>Callers only join what they bring, under the monitor; everything else is done by the link's
 * thread. Invariants: a change is in exactly one of {@code waiting} (the callers'), {@code sending}
 * and {@code inFlight} (the link's), or confirmed; an answer is with the last of what it waits for;
 * seqs grow per handle; bytes sent never exceed the credit.
 */
final class Cursor implements KeptCursor {

  /**
   * Of one handle, not confirmed; more are joined meanwhile. The keeper takes 1,000 control
   * messages.
   */
  private static final int IN_FLIGHT_MESSAGES_MAX = 500;

  /** With less credit than this, what is in flight is waited for. */
  private static final int CREDIT_BYTES_MIN = 2_048;

  private static final int LAYOUT_LEDGERS_KEPT = 10_000;

  /**
   * While something is in flight, what comes is joined for so long at most: the keeper writes it
   * behind that anyway.
   */
  private static final long IN_FLIGHT_NS = TimeUnit.MILLISECONDS.toNanos(10);

  /**
   * For each call of a message, what comes behind it is joined for so long, up to the maximum:
   * where many wait, a message more costs the processes on its way 2 ms of CPU together, and who
   * calls one after the other does not notice.
   */
  private static final long CALL_NS = TimeUnit.MILLISECONDS.toNanos(2);

  private static final long CALLS_NS_MAX = TimeUnit.MILLISECONDS.toNanos(20);

  private enum Phase {
    /** No handle, and none to be had now: no stream, or a pause. */
    IDLE,
    /** There is a stream; to be opened in its turn. */
    WANTED,
    OPENING,
    LIVE,
    /** Its closing or deletion is sent. */
    LEAVING,
    ENDED
  }

  private record Sent(long seq, int parts, Changes content, long bytes) {}

  private static final class Reset {
    Position target;
    final List<Answer<?>> answers = new ArrayList<>();

    /** 0: not sent on the handle of now. */
    long seq;
  }

  private volatile Link link;
  private final OpenRequest request;
  private final CursorListener listener;
  private final String display;
  final InOrder callbacks;
  final AtomicBoolean isQueued = new AtomicBoolean();

  // Of the monitor.
  private Changes waiting = new Changes();
  private Answer<Void> waitingAnswer;

  /** Since when something waits, if it is patient. */
  private long waitingSinceNs;

  /** Calls for which somebody waits. */
  private int urgent;

  private int generation;
  private Reset resetWanted;
  private Reset resetting;
  private KeeperException shut;
  private Answer<Void> closing;
  private Answer<Void> deleting;

  // Of the link's thread.
  private Phase phase = Phase.IDLE;

  /** Null when it is settled: it holds the whole state that the cursor had then. */
  private Answer<OpenedCursor> opened = new Answer<>();

  private boolean wasOpened;
  private Changes sending = new Changes();
  private long sendingBytes;
  private final ArrayDeque<Sent> inFlight = new ArrayDeque<>();
  private int inFlightParts;
  private long inFlightBytes;

  /** When what waited was taken, and how many urgent calls it was. */
  private long takenNs = System.nanoTime();

  private int taken;

  /** The next look at what waits; null: none is needed. */
  private Future<?> look;

  private long lookNs;
  private int handle;
  private long seq;
  private long granted;
  private long spent;
  private int wireGeneration;
  private ResumePoint resume;
  private StateParts parts;
  private List<List<DataLedger>> laterRuns = List.of();

  /** The run that was told so far. */
  private final TreeMap<Long, DataLedger> layout = new TreeMap<>();

  private int attempts;
  private KeeperException refusal;
  private boolean deleteWasSent;
  private boolean deleteIsRepeated;
  private String toldPause;
  private boolean toldDown;

  // Written by the link's thread.
  private volatile long epoch;
  private volatile String keeperPause;
  private volatile long truncatedAcks;
  private final AtomicLong pending = new AtomicLong();

  Cursor(Link link, OpenRequest request, CursorListener listener) {
    this.link = link;
    this.request = request;
    this.listener = listener;
    this.display = request.topic() + "|" + request.subscription();
    this.callbacks = new InOrder(link.settings.executor());
    request.layout().forEach(each -> layout.put(each.ledger(), each));
  }

  /** The worker's stream that it belongs to. */
  Link link() {
    return link;
  }

  /** While it is open on none. */
  void moveTo(Link next) {
    link = next;
    isQueued.set(false); // where it was queued, it is passed over
    next.wake(this);
  }

  private void wake() {
    Link at = link;
    at.wake(this);
    if (at != link) {
      moveTo(link); // it was moved while it was queued
    }
  }

  Answer<OpenedCursor> opened() {
    return opened;
  }

  // ---- for the program

  @Override
  public String topic() {
    return request.topic();
  }

  @Override
  public String subscription() {
    return request.subscription();
  }

  @Override
  public long fencingToken() {
    return request.fencingToken();
  }

  @Override
  public long epoch() {
    return epoch;
  }

  @Override
  public synchronized int generation() {
    return generation;
  }

  @Override
  public CompletableFuture<Void> ack(Acks acks) {
    Answer<Void> answer;
    long grown = 0;
    boolean isNews;
    synchronized (this) {
      if (shut != null) {
        return failed(shut);
      }
      if (acks.properties != null && Wire.bytesMax(acks.properties) > Wire.PROPERTIES_BYTES_MAX) {
        String text =
            acks.properties.size()
                + " properties of a mark-delete are more than "
                + Wire.PROPERTIES_BYTES_MAX
                + " bytes";
        return failed(
            new KeeperException(
                Code.TOO_LARGE, display, text, "keep fewer, or with shorter names"));
      }
      if (acks.generation > generation) {
        throw new IllegalArgumentException(
            display
                + ": acks of generation "
                + acks.generation
                + ", the cursor is in "
                + generation);
      }
      if (acks.isEmpty() || acks.generation < generation) {
        return CompletableFuture.completedFuture(null);
      }
      isNews = waits(acks.patient);
      answer = waitingAnswer();
      if (!isResetting()) {
        long before = waiting.acks.bytes();
        waiting.acks.join(acks);
        grown = waiting.acks.bytes() - before;
      }
    }
    count(grown);
    if (isNews) {
      wake();
    }
    return answer;
  }

  @Override
  public void hurry() {
    synchronized (this) {
      if (waitingAnswer == null || !waits(false)) {
        return;
      }
    }
    wake();
  }

  /**
   * One more waits. Whether that changes when the link has to look. Under the monitor, before there
   * is an answer for it.
   */
  private boolean waits(boolean patiently) {
    boolean isFirst = waitingAnswer == null;
    if (isFirst) {
      waitingSinceNs = System.nanoTime();
    }
    if (patiently) {
      return isFirst;
    }
    return ++urgent == 1 || isFirst;
  }

  @Override
  public CompletableFuture<Void> setProperties(Map<String, String> properties) {
    Map<String, String> values = Map.copyOf(properties);
    return change(() -> waiting.cursorProperties = values);
  }

  @Override
  public CompletableFuture<Void> layout(List<DataLedger> run) {
    List<DataLedger> told = List.copyOf(run);
    return change(() -> waiting.tell(told));
  }

  private CompletableFuture<Void> change(Runnable join) {
    Answer<Void> answer;
    long grown;
    synchronized (this) {
      if (shut != null) {
        return failed(shut);
      }
      long before = waiting.bytes();
      join.run();
      grown = waiting.bytes() - before;
      waits(false);
      answer = waitingAnswer();
    }
    count(grown);
    wake();
    return answer;
  }

  @Override
  public CompletableFuture<Integer> reset(Position target) {
    if (target.ledger() < 0 || target.entry() < -1) {
      throw new IllegalArgumentException("no target of a reset: " + target);
    }
    Answer<Integer> answer = new Answer<>();
    long shrunk;
    synchronized (this) {
      if (shut != null) {
        return failed(shut);
      }
      if (resetWanted == null) {
        resetWanted = new Reset();
      }
      resetWanted.target = target;
      resetWanted.answers.add(answer);
      shrunk = waiting.acks.bytes();
      waiting.acks.clear();
    }
    count(-shrunk);
    wake();
    return answer;
  }

  @Override
  public CompletableFuture<Void> close() {
    Answer<Void> answer = new Answer<>();
    synchronized (this) {
      if (shut != null) {
        return failed(shut);
      }
      closing = answer;
      shut = new KeeperException(Code.CLOSED, display, "it was closed here", "open it again");
    }
    leaveWithin(answer, link.settings.answerTimeout());
    return answer;
  }

  @Override
  public CompletableFuture<Void> delete() {
    Answer<Void> answer = new Answer<>();
    synchronized (this) {
      if (shut != null) {
        return failed(shut);
      }
      deleting = answer;
      shut =
          new KeeperException(
              Code.DELETED, display, "it was deleted here", "open it again with create");
    }
    leaveWithin(answer, link.settings.answerTimeout());
    return answer;
  }

  @Override
  public boolean persistable() {
    return keeperPause == null && !link.isMemoryFull() && !isShut();
  }

  @Override
  public long pendingBytes() {
    return pending.get();
  }

  @Override
  public long truncatedAcks() {
    return truncatedAcks;
  }

  private synchronized boolean isShut() {
    return shut != null;
  }

  private boolean isResetting() {
    return resetWanted != null || resetting != null;
  }

  private synchronized boolean isResettingNow() {
    return resetting != null;
  }

  private Answer<Void> waitingAnswer() {
    if (waitingAnswer == null) {
      waitingAnswer = new Answer<>();
      waiting.answers.add(waitingAnswer);
    }
    return waitingAnswer;
  }

  private static <T> CompletableFuture<T> failed(KeeperException why) {
    return CompletableFuture.failedFuture(why);
  }

  private void count(long grown) {
    if (grown != 0) {
      pending.addAndGet(grown);
      link.count(grown);
    }
  }

  private void leaveWithin(Answer<Void> answer, Duration limit) {
    wake();
    link.unless(
        answer,
        limit,
        () -> {
          if (!answer.isDone() && phase != Phase.ENDED) {
            String text = "no answer within " + limit.toMillis() + " ms";
            giveUp(
                new KeeperException(
                    Code.TIMED_OUT, display, text, "look at the daemon; it may still come true"));
          }
        });
  }

  // ---- for the link, on its thread

  /** From now on: to be opened, or deleted by name. */
  void begin(Duration limit) {
    link.unless(
        opened,
        limit,
        () -> {
          if (wasOpened || phase == Phase.ENDED) {
            return;
          }
          String text = "not within " + limit.toMillis() + " ms";
          if (refusal != null) {
            giveUp(refusal);
          } else if (link.isUp()) {
            giveUp(
                new KeeperException(
                    Code.TIMED_OUT,
                    display,
                    text,
                    "look at the daemon, and at its ZooKeeper and bookies"));
          } else {
            giveUp(link.noLink(display, text));
          }
        });
    if (link.isUp()) {
      up();
    }
  }

  /** Instead of {@link #begin}. */
  void refuse(KeeperException why) {
    Answer<Void> deletion;
    synchronized (this) {
      deletion = deleting;
    }
    callbacks.run(
        () -> {
          opened.fail(why);
          if (deletion != null) {
            deletion.fail(why);
          }
        });
  }

  /** A deletion of a cursor that is not open here. */
  synchronized Answer<Void> asDeletion() {
    deleting = new Answer<>();
    return deleting;
  }

  void up() {
    if (phase == Phase.IDLE) {
      phase = Phase.WANTED;
      wake();
    }
  }

  void down() {
    if (phase == Phase.ENDED) {
      return;
    }
    boolean wasLeaving = phase == Phase.LEAVING;
    lose();
    if (wasOpened && !toldDown) {
      toldDown = true;
      callbacks.run(listener::linkDown);
    }
    boolean isDone;
    synchronized (this) {
      isDone = wasLeaving && closing != null && waiting.isEmpty();
    }
    if (isDone
        && sending.isEmpty()) { // all is confirmed; the daemon gives the cursor back by itself
      end(new KeeperException(Code.CLOSED, display, "it was closed here", "open it again"));
    }
  }

  /** The daemon does not want us: an opening that waits need not wait longer. */
  void refusedLink(KeeperException why) {
    if (!wasOpened && phase != Phase.ENDED) {
      giveUp(why);
    }
  }

  /** The handle is gone: what it did not confirm is to be sent again. */
  private void lose() {
    phase = Phase.IDLE;
    parts = null;
    link.forget(handle);
    handle = 0;
    parts = null;
    Changes all = new Changes();
    for (Sent each : inFlight) {
      all.join(each.content);
    }
    all.join(sending);
    inFlight.clear();
    inFlightParts = 0;
    recount(all);
    synchronized (this) {
      if (resetting != null) {
        resetting.seq = 0;
      }
    }
  }

  /** Sets what is to be sent next; corrects the count of what was sent or to be sent before. */
  private void recount(Changes all) {
    long before = sendingBytes + inFlightBytes;
    inFlightBytes = 0;
    sending = all;
    sendingBytes = all.bytes();
    count(sendingBytes - before);
  }

  private void openAgainLater(KeeperException why) {
    refusal = why;
    resume = null;
    lose();
    long stream = link.stream();
    link.later(
        link.pause(attempts++),
        () -> {
          if (phase == Phase.IDLE && link.isUp() && link.stream() == stream) {
            up();
          }
        });
  }

  /** The next message that this cursor has to send; null: none now. */
  SourceMessage next() {
    return switch (phase) {
      case WANTED -> isDeleting() ? deleteByName() : open();
      case LIVE -> nextLive();
      default -> null;
    };
  }

  private synchronized boolean isDeleting() {
    return deleting != null;
  }

  private SourceMessage open() {
    List<List<DataLedger>> runs =
        LayoutRuns.forOpening(List.copyOf(layout.values()), start(), link.limits().layoutLedgers());
    laterRuns = runs.subList(1, runs.size());
    handle = link.register(this);
    seq = granted = spent = 0;
    phase = Phase.OPENING;
    OpenCursor.Builder open =
        OpenCursor.newBuilder()
            .setHandle(handle)
            .setTopic(request.topic())
            .setSubscription(request.subscription())
            .setFencingToken(request.fencingToken())
            .setLayout(Wire.layout(runs.get(0)))
            .setCreate(request.create() && !wasOpened)
            .setTakeover(request.takeover() || wasOpened)
            .putAllCursorProperties(request.cursorProperties());
    start().ifPresent(position -> open.setStart(Wire.position(position)));
    if (resume != null) {
      open.setResume(resume);
    }
    return SourceMessage.newBuilder().setOpenCursor(open).build();
  }

  private Optional<Position> start() {
    return wasOpened ? Optional.empty() : request.start();
  }

  private SourceMessage deleteByName() {
    handle = link.register(this);
    phase = Phase.LEAVING;
    deleteIsRepeated = deleteWasSent;
    deleteWasSent = true;
    return SourceMessage.newBuilder()
        .setDeleteCursor(
            DeleteCursor.newBuilder()
                .setHandle(handle)
                .setTopic(request.topic())
                .setSubscription(request.subscription())
                .setFencingToken(request.fencingToken()))
        .build();
  }

  private SourceMessage nextLive() {
    Reset reset = null;
    boolean isClosing;
    long joinedForNs = 0;
    synchronized (this) {
      if (deleting != null) {
        phase = Phase.LEAVING;
        deleteWasSent = true;
        return SourceMessage.newBuilder()
            .setDeleteCursor(DeleteCursor.newBuilder().setHandle(handle))
            .build();
      }
      if (resetting == null && resetWanted != null) {
        resetting = resetWanted;
        resetWanted = null;
        takeWaiting();
      }
      reset = resetting;
      isClosing = closing != null;
      if (reset == null && sending.isEmpty() && waitingAnswer != null) {
        joinedForNs = isClosing ? 0 : joinedForNs();
        if (joinedForNs <= 0) {
          takeWaiting();
        }
      }
    }
    if (joinedForNs > 0) {
      lookIn(joinedForNs);
    }
    if (reset != null) {
      return reset.seq == 0 ? send(reset) : null;
    }
    if (sending.isEmpty()) {
      settle(sending.answers); // what they waited for was dropped by a reset
      sending.answers = new ArrayList<>();
      return isClosing ? close(handle) : null;
    }
    if (inFlight.size() >= IN_FLIGHT_MESSAGES_MAX) {
      return null;
    }
    if (!sending.layout.isEmpty()) {
      return sendLayout();
    }
    return sending.cursorProperties != null ? sendProperties() : sendAcks();
  }

  /**
   * For how long what waits is joined with what comes; not above 0: it is to be sent. Under the
   * monitor.
   */
  private long joinedForNs() {
    long now = System.nanoTime();
    long patience = waitingSinceNs + link.settings.patience().toNanos() - now;
    if (urgent == 0) {
      return patience;
    }
    long apart =
        Math.max(Math.min(taken * CALL_NS, CALLS_NS_MAX), inFlight.isEmpty() ? 0 : IN_FLIGHT_NS);
    return Math.min(patience, takenNs + apart - now);
  }

  private void lookIn(long ns) {
    long at = System.nanoTime() + ns;
    if (look != null) {
      if (lookNs - at <= 0) {
        return;
      }
      look.cancel(false);
    }
    lookNs = at;
    look =
        link.later(
            Duration.ofNanos(ns),
            () -> {
              look = null;
              wake();
            });
  }

  /** What waits is to be sent now. */
  private void takeWaiting() {
    long before = sending.bytes() + waiting.bytes();
    sending.join(waiting);
    sendingBytes = sending.bytes();
    count(sendingBytes - before);
    waiting = new Changes();
    waitingAnswer = null;
    taken = urgent;
    urgent = 0;
    takenNs = System.nanoTime();
    if (look != null) {
      look.cancel(false);
      look = null;
    }
  }

  private SourceMessage close(int number) {
    phase = Phase.LEAVING;
    return closed(number);
  }

  private static SourceMessage closed(int number) {
    return SourceMessage.newBuilder()
        .setCloseCursor(CloseCursor.newBuilder().setHandle(number))
        .build();
  }

  /**
   * Behind the layout, in which the target must be. What the dropped acks' callers wait for is the
   * reset.
   */
  private SourceMessage send(Reset reset) {
    sending.acks.clear();
    recountSending();
    if (!sending.layout.isEmpty()) {
      return sendLayout();
    }
    reset.seq = ++seq;
    return SourceMessage.newBuilder()
        .setResetCursor(
            ResetCursor.newBuilder()
                .setHandle(handle)
                .setSeq(reset.seq)
                .setGeneration(wireGeneration)
                .setTarget(Wire.position(reset.target)))
        .build();
  }

  private SourceMessage sendLayout() {
    List<List<DataLedger>> runs =
        new ArrayList<>(LayoutRuns.cut(sending.layout.remove(0), link.limits().layoutLedgers()));
    List<DataLedger> first = runs.remove(0);
    sending.layout.addAll(0, runs);
    know(first);
    Changes content = new Changes();
    content.layout.add(first);
    sent(content, 0);
    return SourceMessage.newBuilder()
        .setLayout(
            Layout.newBuilder()
                .setHandle(handle)
                .setSeq(seq)
                .setGeneration(wireGeneration)
                .setRun(Wire.layout(first)))
        .build();
  }

  /**
   * A run that has no ledger in common with what was told before leaves a gap: only the newer one
   * can be told as one run.
   */
  private void know(List<DataLedger> run) {
    if (run.stream().noneMatch(each -> layout.containsKey(each.ledger()))) {
      layout.clear();
    }
    run.forEach(each -> layout.put(each.ledger(), each));
  }

  private SourceMessage sendProperties() {
    Changes content = new Changes();
    content.cursorProperties = sending.cursorProperties;
    sending.cursorProperties = null;
    sent(content, 0);
    return SourceMessage.newBuilder()
        .setSetCursorProperties(
            SetCursorProperties.newBuilder()
                .setHandle(handle)
                .setSeq(seq)
                .setGeneration(wireGeneration)
                .setProperties(Wire.properties(content.cursorProperties)))
        .build();
  }

  private SourceMessage sendAcks() {
    long credit = granted - spent;
    if (credit < CREDIT_BYTES_MIN && !inFlight.isEmpty()) {
      return null;
    }
    Limits limits = link.limits();
    int bytes = (int) Math.min(Wire.ACKS_BYTES_MAX, credit) - Wire.HEAD_BYTES_MAX;
    boolean isAlone = inFlight.isEmpty() && granted > 0;
    AckSet piece =
        sending.acks.take(
            new AckSet.Room(
                bytes,
                limits.ledgers(),
                limits.batches(),
                limits.parts() - inFlightParts,
                isAlone));
    if (piece.isEmpty()) {
      return null;
    }
    Changes content = new Changes();
    content.acks.join(piece);
    int count = content.acks.parts();
    AckBatch batch = Wire.acks(handle, seq + 1, wireGeneration, content.acks);
    spent += batch.getSerializedSize();
    sent(content, count);
    return SourceMessage.newBuilder().setAckBatch(batch).build();
  }

  private void sent(Changes content, int count) {
    if (sending.isEmpty() && !isResettingNow()) {
      content.answers.addAll(sending.answers);
      sending.answers = new ArrayList<>();
    }
    long bytes = content.bytes();
    inFlight.add(new Sent(++seq, count, content, bytes));
    inFlightParts += count;
    inFlightBytes += bytes;
    count(bytes);
    recountSending();
  }

  private void recountSending() {
    long now = sending.bytes();
    count(now - sendingBytes);
    sendingBytes = now;
  }

  // ---- what the keeper says

  /** IllegalArgumentException if it cannot be read. */
  void receive(KeeperMessage message) {
    switch (message.getMessageCase()) {
      case OPENED -> opened(message.getOpened());
      case STATE_PART -> {
        if (parts != null) {
          parts.add(message.getStatePart());
        }
      }
      case STATE_END -> {
        if (parts != null) {
          CursorState state = parts.end(message.getStateEnd());
          parts = null;
          recovered(state);
        }
      }
      case CREDIT -> {
        granted = Math.max(granted, message.getCredit().getGrantedBytes());
        wake();
      }
      case DURABLE -> {
        truncatedAcks = message.getDurable().getTruncatedAcks();
        confirm(message.getDurable().getSeq());
      }
      case PAUSE -> {
        String reason = message.getPause().getReason();
        keeperPause = reason.isEmpty() ? "the keeper asks for it" : reason;
        tellPause();
      }
      case RESUME -> {
        keeperPause = null;
        tellPause();
      }
      case RESET_DONE -> resetDone(message.getResetDone());
      case REFUSED -> refused(message.getRefused());
      case DEPOSED -> deposed(message.getDeposed().getEpoch());
      case CLOSED -> closed();
      case DELETED ->
          end(
              new KeeperException(
                  Code.DELETED, display, "it was deleted", "open it again with create"));
      default ->
          throw new IllegalArgumentException(
              "the keeper sent " + message.getMessageCase() + " out of place");
    }
  }

  private void opened(Opened message) {
    if (phase != Phase.OPENING) {
      return;
    }
    if (!message.getResumed()) {
      parts = new StateParts(message);
    } else if (resume == null) {
      throw new IllegalArgumentException("the keeper resumes what nobody asked it to");
    } else {
      live(message.getEpoch(), message.getGeneration());
    }
  }

  private void recovered(CursorState state) {
    boolean isForeign;
    synchronized (this) {
      isForeign = wasOpened && !isResetting() && state.generation() != generation;
      if (!wasOpened) {
        generation = state.generation();
      }
    }
    if (isForeign) {
      String text = "it was set back elsewhere, to " + state.markDelete();
      giveUp(new KeeperException(Code.DEPOSED, display, text, "open it again, and take its state"));
      return;
    }
    epoch = state.epoch();
    if (wasOpened) {
      callbacks.run(() -> listener.reopened(state));
    } else {
      wasOpened = true;
      Answer<OpenedCursor> first = opened;
      opened = null;
      callbacks.run(() -> first.settle(new OpenedCursor(this, state)));
    }
    live(state.epoch(), state.generation());
  }

  private void live(long newEpoch, int newGeneration) {
    phase = Phase.LIVE;
    epoch = newEpoch;
    wireGeneration = newGeneration;
    resume = ResumePoint.newBuilder().setEpoch(newEpoch).setGeneration(newGeneration).build();
    attempts = 0;
    refusal = null;
    sending.layout.addAll(0, laterRuns);
    laterRuns = List.of();
    recountSending();
    keeperPause = null;
    tellPause();
    if (toldDown) {
      toldDown = false;
      callbacks.run(listener::linkUp);
    }
    wake();
  }

  private void confirm(long upTo) {
    List<Answer<?>> answers = new ArrayList<>();
    long bytes = 0;
    while (!inFlight.isEmpty() && inFlight.peek().seq <= upTo) {
      Sent sent = inFlight.poll();
      inFlightParts -= sent.parts;
      bytes += sent.bytes;
      answers.addAll(sent.content.answers);
      Position markDelete = sent.content.acks.markDelete;
      if (markDelete != null && layout.size() > LAYOUT_LEDGERS_KEPT) {
        layout.headMap(markDelete.ledger()).clear();
      }
    }
    inFlightBytes -= bytes;
    count(-bytes);
    settle(answers);
    wake();
  }

  private void settle(List<Answer<?>> answers) {
    if (!answers.isEmpty()) {
      callbacks.run(() -> answers.forEach(each -> each.settle(null)));
    }
  }

  private void resetDone(ResetDone done) {
    Reset reset;
    synchronized (this) {
      reset = resetting;
      if (reset == null || reset.seq == 0) {
        return; // of a handle before
      }
    }
    confirm(reset.seq);
    wireGeneration = done.getGeneration();
    resume = resume.toBuilder().setGeneration(wireGeneration).build();
    List<DataLedger> above = List.copyOf(layout.tailMap(reset.target.ledger(), true).values());
    if (!above.isEmpty() && above.get(0).ledger() == reset.target.ledger()) {
      sending.layout.add(0, above); // a target beyond what the keeper knew forgets the layout
      recountSending();
    }
    synchronized (this) {
      resetting = null;
      if (resetWanted != null) { // a later one: all of them get its generation
        resetWanted.answers.addAll(0, reset.answers);
        reset = null;
      }
      generation = wireGeneration;
    }
    if (reset != null) {
      List<Answer<?>> answers = reset.answers;
      int told = wireGeneration;
      callbacks.run(() -> answers.forEach(each -> settled(each, told)));
    }
    wake();
  }

  @SuppressWarnings("unchecked")
  private static void settled(Answer<?> answer, int generation) {
    ((Answer<Integer>) answer).settle(generation);
  }

  private void refused(Refused said) {
    Code code = codeOf(said);
    KeeperException why = new KeeperException(code, display, said.getMessage(), said.getRemedy());
    boolean again =
        why.retryable()
            || (wasOpened && (code == Code.ALREADY_OPEN || code == Code.OPEN_ELSEWHERE));
    if (phase == Phase.LEAVING && isDeleting() && code == Code.NOT_FOUND && deleteIsRepeated) {
      end(
          new KeeperException(
              Code.DELETED, display, "it was deleted", "open it again with create"));
    } else if (again) {
      openAgainLater(why);
    } else if (isOfContent(code) && dropped(said.getSeq(), why)) {
      ResumePoint at = resume;
      openAgainLater(why);
      resume = at; // nobody else has had it
    } else {
      end(why);
    }
  }

  /** Whether the same change would always be refused, and another one need not be. */
  private static boolean isOfContent(Code code) {
    return code == Code.POSITION_OUT_OF_RANGE
        || code == Code.BATCH_CONTRADICTS
        || code == Code.TOO_LARGE;
  }

  /**
   * Gives up a change that is in flight; who waits for it hears why. Not a layout, without which
   * nothing of newer ledgers can be kept.
   *
   * @param number 0: the keeper does not say which one it was
   */
  private boolean dropped(long number, KeeperException why) {
    Sent refused = null;
    List<Answer<?>> waitingForIt = null;
    for (Sent each : inFlight) {
      if (each.seq == number && each.content.layout.isEmpty()) {
        refused = each;
      }
      if (refused != null && waitingForIt == null && !each.content.answers.isEmpty()) {
        waitingForIt = each.content.answers; // with the last of what they wait for
        each.content.answers = new ArrayList<>();
      }
    }
    if (refused == null) {
      return false;
    }
    if (waitingForIt == null) {
      waitingForIt = sending.answers;
      sending.answers = new ArrayList<>();
    }
    inFlight.remove(refused);
    inFlightParts -= refused.parts;
    inFlightBytes -= refused.bytes;
    count(-refused.bytes);
    List<Answer<?>> told = waitingForIt;
    callbacks.run(
        () -> {
          listener.refused(why); // first: who is answered finds it counted
          told.forEach(each -> each.fail(why));
        });
    return true;
  }

  private static Code codeOf(Refused said) {
    try {
      return Code.valueOf(said.getCode().name());
    } catch (IllegalArgumentException newer) {
      return Code.UNKNOWN;
    }
  }

  private void deposed(long by) {
    String text = "somebody else opened it (epoch " + (by == 0 ? "not known" : by) + ")";
    KeeperException why =
        new KeeperException(Code.DEPOSED, display, text, "stop, or open it again with takeover");
    if (request.fencingToken() > 0) {
      openAgainLater(why); // whose it is, the token decides
    } else {
      end(why);
    }
  }

  private void closed() {
    KeeperException why =
        new KeeperException(Code.CLOSED, display, "it was closed", "open it again");
    if (phase == Phase.LEAVING) {
      end(why);
    } else {
      openAgainLater(why);
    }
  }

  /** Pause and memory, as the listener should know them. */
  void tellPause() {
    if (!wasOpened || phase == Phase.ENDED) {
      return;
    }
    String memory = link.isMemoryFull() ? "the link's memory is full of unconfirmed acks" : null;
    String now =
        keeperPause == null ? memory : memory == null ? keeperPause : keeperPause + "; " + memory;
    if (now == null && toldPause != null) {
      callbacks.run(listener::resumed);
    } else if (now != null && !now.equals(toldPause)) {
      callbacks.run(() -> listener.paused(now));
    }
    toldPause = now;
  }

  /** Ends it here, and tells the keeper to forget the handle. */
  void giveUp(KeeperException why) {
    if (handle != 0 && phase != Phase.LEAVING) {
      link.sendFirst(closed(handle));
    }
    end(why);
  }

  void end(KeeperException why) {
    if (phase == Phase.ENDED) {
      return;
    }
    phase = Phase.ENDED;
    parts = null;
    link.forget(handle);
    link.ended(this);
    List<Answer<?>> lost = new ArrayList<>();
    inFlight.forEach(each -> lost.addAll(each.content.answers));
    lost.addAll(sending.answers);
    Answer<Void> left;
    long waitingBytes;
    synchronized (this) {
      lost.addAll(waiting.answers);
      for (Reset each : new Reset[] {resetting, resetWanted}) {
        if (each != null) {
          lost.addAll(each.answers);
        }
      }
      waitingBytes = waiting.bytes();
      waiting = new Changes();
      waitingAnswer = null;
      urgent = 0;
      resetting = resetWanted = null;
      left = closing != null ? closing : deleting;
      shut = shut == null ? why : shut;
    }
    count(-(inFlightBytes + sendingBytes + waitingBytes));
    inFlight.clear();
    inFlightBytes = sendingBytes = 0;
    sending = new Changes();
    boolean isAsked = closingEnds(why);
    Answer<OpenedCursor> unopened = opened;
    callbacks.run(
        () -> {
          lost.forEach(each -> each.fail(why));
          if (left != null && isAsked) {
            left.settle(null);
          } else if (left != null) {
            left.fail(why);
          }
          if (unopened != null) {
            unopened.fail(why);
          } else {
            listener.ended(why);
          }
        });
  }

  /** Whether this is what was asked for. */
  private synchronized boolean closingEnds(KeeperException why) {
    return (closing != null && why.code() == Code.CLOSED)
        || (deleting != null && why.code() == Code.DELETED);
  }
}
