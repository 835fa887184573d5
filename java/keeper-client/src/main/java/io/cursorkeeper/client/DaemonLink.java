package io.cursorkeeper.client;

import io.cursorkeeper.acks.v1.Hello;
import io.cursorkeeper.client.KeeperException.Code;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/**
 * The streams to all workers of a daemon, each cursor on that of its name. One thread does
 * everything. Until the daemon's first Hello there is the stream that was asked for, and every
 * cursor waits on it.
 *
 * <p>Invariant: a cursor belongs to one stream; it moves only while it is open on none.
 */
final class DaemonLink implements KeeperLink {

  private static final Logger LOG = System.getLogger("io.cursorkeeper.client");

  static final String NOTHING_YET = "no connection yet";

  private final LinkSettings settings;
  private final ScheduledThreadPoolExecutor thread;
  private final AtomicLong pending = new AtomicLong();
  private final AtomicBoolean isCounting = new AtomicBoolean();
  private volatile boolean isMemoryFull;
  private volatile boolean isClosed;
  private volatile LinkStatus status =
      new LinkStatus(false, "", 0, 0, 0, false, Optional.of(NOTHING_YET));

  // Of the thread.
  private final Consumer<String> told;
  private String toldProblem;
  private long streams;
  private long connects;
  private int handles;

  /** The stream that was asked for; its Hello says which workers there are. */
  private final Link home;

  private List<String> addresses = List.of();

  /** By the worker's number. */
  private List<Link> links;

  DaemonLink(LinkSettings settings, Consumer<String> told) {
    this.settings = settings;
    this.told = told;
    thread =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread made = new Thread(task, "cursorkeeper-link");
              made.setDaemon(true);
              return made;
            },
            new ThreadPoolExecutor.DiscardPolicy());
    thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    thread.setRemoveOnCancelPolicy(true);
    home = new Link(this, settings, settings.address());
    links = List.of(home);
    home.begin();
  }

  // ---- for the program

  @Override
  public CompletableFuture<OpenedCursor> open(OpenRequest request, CursorListener listener) {
    Cursor cursor = new Cursor(home, request, listener);
    CompletableFuture<OpenedCursor> opened = cursor.opened();
    begin(cursor);
    return opened;
  }

  @Override
  public CompletableFuture<Void> delete(String topic, String subscription, long fencingToken) {
    OpenRequest request = OpenRequest.of(topic, subscription).withFencingToken(fencingToken);
    Cursor cursor = new Cursor(home, request, why -> {});
    Answer<Void> answer = cursor.asDeletion();
    begin(cursor);
    return answer;
  }

  @Override
  public CompletableFuture<CursorState> read(String topic, String subscription) {
    Answer<CursorState> answer = new Answer<>();
    synchronized (thread) {
      if (!isClosed) {
        run(() -> linkOf(topic, subscription).read(topic, subscription, answer));
        return answer;
      }
    }
    answer.fail(closedHere());
    return answer;
  }

  private void begin(Cursor cursor) {
    synchronized (thread) {
      if (!isClosed) {
        run(
            () -> {
              Link link = linkOf(cursor.topic(), cursor.subscription());
              cursor.moveTo(link);
              link.add(cursor);
              cursor.begin(settings.openTimeout());
              note();
            });
        return;
      }
    }
    cursor.refuse(closedHere());
  }

  @Override
  public LinkStatus status() {
    LinkStatus told = status;
    return new LinkStatus(
        told.up(),
        told.keeper(),
        told.connects(),
        told.cursors(),
        pending.get(),
        isMemoryFull,
        told.problem());
  }

  @Override
  public void close() {
    synchronized (thread) {
      if (isClosed) {
        return;
      }
      isClosed = true;
      run(
          () -> {
            KeeperException why = closedHere();
            links.forEach(link -> link.cursors().forEach(each -> each.end(why)));
            links.forEach(link -> link.close("the link was closed"));
            thread.shutdown();
          });
    }
  }

  private static KeeperException closedHere() {
    return new KeeperException(Code.LINK_CLOSED, "", "the link was closed here", "connect again");
  }

  // ---- for the streams

  void count(long grown) {
    long now = pending.addAndGet(grown);
    boolean isOver = now > settings.memoryBytesMax();
    boolean isUnder = now <= settings.memoryBytesMax() / 2;
    if ((isMemoryFull ? isUnder : isOver) && isCounting.compareAndSet(false, true)) {
      run(
          () -> {
            isCounting.set(false);
            isMemoryFull =
                pending.get()
                    > (isMemoryFull ? settings.memoryBytesMax() / 2 : settings.memoryBytesMax());
            links.forEach(link -> link.cursors().forEach(Cursor::tellPause));
          });
    }
  }

  boolean isMemoryFull() {
    return isMemoryFull;
  }

  void run(Runnable task) {
    thread.execute(guarded(task));
  }

  Future<?> later(Duration delay, Runnable task) {
    return thread.schedule(guarded(task), delay.toNanos(), TimeUnit.NANOSECONDS);
  }

  private static Runnable guarded(Runnable task) {
    return () -> {
      try {
        task.run();
      } catch (RuntimeException | Error wrong) {
        LOG.log(Level.ERROR, "bug: a task of the link failed", wrong);
      }
    };
  }

  // Of the thread.

  long nextStream() {
    return ++streams;
  }

  int nextHandle() {
    return ++handles;
  }

  /** A worker has said Hello, and none of its cursors is open yet. */
  void greeted(Link link, Hello hello) {
    connects++;
    if (link == home) {
      know(hello.getWorkerAddressesList(), hello.getWorker());
    }
    tell();
  }

  /** Of another number of workers than before, or of others, every cursor is opened anew. */
  private void know(List<String> now, int own) {
    if (now.equals(addresses) && links.get(own) == home) {
      return;
    }
    List<Link> before = links;
    before.stream().filter(link -> link != home).forEach(link -> link.close("another worker"));
    addresses = List.copyOf(now);
    List<Link> made = new ArrayList<>();
    for (int number = 0; number < Math.max(1, now.size()); number++) {
      made.add(number == own ? home : new Link(this, settings, addressOf(now.get(number))));
    }
    links = List.copyOf(made);
    links.stream().filter(link -> link != home).forEach(Link::begin);
    for (Link link : before) {
      for (Cursor cursor : link.cursors()) {
        link.remove(cursor);
        Link next = linkOf(cursor.topic(), cursor.subscription());
        cursor.moveTo(next);
        next.add(cursor);
      }
    }
  }

  /** Without a host it is the one that was asked for; who dials a socket is on its machine. */
  private String addressOf(String told) {
    if (!told.startsWith(":")) {
      return told;
    }
    String asked = settings.address();
    return UnixAddress.is(asked)
        ? "127.0.0.1" + told
        : asked.substring(0, asked.lastIndexOf(':')) + told;
  }

  private Link linkOf(String topic, String subscription) {
    return links.size() == 1 ? home : links.get(Workers.of(topic, subscription, links.size()));
  }

  /** A stream has come, or has ended: says why there is not one to every worker, once. */
  void tell() {
    String problem = note();
    if (!problem.equals(toldProblem) && !problem.equals(NOTHING_YET)) {
      toldProblem = problem;
      told.accept(problem);
    }
  }

  /** Notes what the streams are doing now; returns what is wrong with the first that is not up. */
  String note() {
    int cursors = links.stream().mapToInt(Link::cursorCount).sum();
    Optional<String> problem =
        links.stream().filter(link -> !link.isUp()).findFirst().map(Link::problem);
    status = new LinkStatus(problem.isEmpty(), home.keeper(), connects, cursors, 0, false, problem);
    return problem.orElse("");
  }
}
