package io.cursorkeeper.client;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Writes down what a listener hears. */
final class Recorder implements CursorListener {

  private final List<String> heard = new ArrayList<>();
  private KeeperException ended;

  @Override
  public synchronized void paused(String reason) {
    note("paused: " + reason);
  }

  @Override
  public void resumed() {
    note("resumed");
  }

  @Override
  public void reopened(CursorState state) {
    note("reopened");
  }

  @Override
  public void refused(KeeperException why) {
    note("refused: " + why.code());
  }

  @Override
  public void linkDown() {
    note("down");
  }

  @Override
  public void linkUp() {
    note("up");
  }

  @Override
  public synchronized void ended(KeeperException why) {
    ended = why;
    note("ended: " + why.code());
  }

  private synchronized void note(String what) {
    heard.add(what);
    notifyAll();
  }

  synchronized List<String> heard() {
    return List.copyOf(heard);
  }

  /** Returns once something that begins so was heard. */
  synchronized void await(String beginning) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Testing.WAIT_MAX_S);
    while (heard.stream().noneMatch(each -> each.startsWith(beginning))) {
      long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
      if (left <= 0) {
        throw new AssertionError("not heard: " + beginning + ", only " + heard);
      }
      try {
        wait(left);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  KeeperException awaitEnd() {
    await("ended");
    synchronized (this) {
      return ended;
    }
  }
}
