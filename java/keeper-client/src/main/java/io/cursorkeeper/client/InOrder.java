package io.cursorkeeper.client;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.util.ArrayDeque;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * Runs what it is given on an executor, one after the other and in order. Its lock is never held
 * while something runs.
 */
final class InOrder {

  private static final Logger LOG = System.getLogger("io.cursorkeeper.client");

  private final Executor executor;
  private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();
  private boolean running;

  InOrder(Executor executor) {
    this.executor = executor;
  }

  void run(Runnable task) {
    synchronized (tasks) {
      tasks.add(task);
      if (running) {
        return;
      }
      running = true;
    }
    try {
      executor.execute(this::runAll);
    } catch (RejectedExecutionException closed) {
      runAll(); // an answer must not be lost with the program's executor
    }
  }

  private void runAll() {
    while (true) {
      Runnable next;
      synchronized (tasks) {
        next = tasks.poll();
        if (next == null) {
          running = false;
          return;
        }
      }
      try {
        next.run();
      } catch (RuntimeException | Error wrong) {
        LOG.log(Level.ERROR, "a listener, or what depends on an answer, failed", wrong);
      }
    }
  }
}
