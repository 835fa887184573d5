package io.cursorkeeper.gateway.process;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * How a long-running command ends: what was started last is stopped first, by SIGTERM or when the
 * parent is gone, and a stop that hangs is cut off. Steps must not depend on the order of other
 * hooks.
 */
public final class Lifetime {
  private static final Logger LOG = LoggerFactory.getLogger(Lifetime.class);
  private static final long STOP_MAX_MS = 5_000;
  private static final long PARENT_POLL_MS = 1_000;

  private final Deque<Step> steps = new ArrayDeque<>();
  private final CountDownLatch never = new CountDownLatch(1);
  private volatile boolean stopping;

  private record Step(String name, Stop stop) {}

  /** One thing to stop. */
  @FunctionalInterface
  public interface Stop {
    void run() throws Exception;
  }

  public Lifetime() {
    Runtime.getRuntime().addShutdownHook(new Thread(this::stop, "shutdown"));
  }

  /** Registers what was just started. */
  public synchronized void add(String name, Stop stop) {
    steps.push(new Step(name, stop));
  }

  /** Ends this process once another one is gone; 0: never. */
  public void endWith(long parentPid) {
    if (parentPid == 0) {
      return;
    }
    Thread watch =
        new Thread(
            () -> {
              // Asked by id every time: the handle of a process also knows whether the id was given
              // to another one.
              ProcessHandle parent = ProcessHandle.of(parentPid).orElse(null);
              while (parent != null && !isGone(parent, ProcessHandle.current())) {
                try {
                  Thread.sleep(PARENT_POLL_MS);
                } catch (InterruptedException stopping) {
                  return;
                }
              }
              LOG.warn("parent process {} is gone, ending", parentPid);
              System.exit(0);
            },
            "parent-watch");
    watch.setDaemon(true);
    watch.start();
  }

  /**
   * A process that cannot be looked at, because no file can be opened, is not alive for Java, nor
   * are we then: that tells nothing about the other one.
   */
  static boolean isGone(ProcessHandle other, ProcessHandle self) {
    return !other.isAlive() && self.isAlive();
  }

  /** Blocks the main thread for as long as the process lives. */
  public void await() throws InterruptedException {
    never.await();
  }

  /**
   * Ends the process because what it runs has ended by itself: a server's other threads would keep
   * it alive, of use to nobody, and no restart policy would see it. Does nothing while the process
   * stops anyway.
   */
  public void died(String reason) {
    if (!stopping) {
      System.err.println("cursorkeeper-gateway: " + reason);
      System.err.flush();
      Runtime.getRuntime().halt(1);
    }
  }

  private void stop() {
    stopping = true;
    // Servers in one process stop each other's helpers and complain about it; nothing here can be
    // lost by it.
    Configurator.setLevel("org.apache", Level.OFF);
    Thread cutOff =
        new Thread(
            () -> {
              try {
                Thread.sleep(STOP_MAX_MS);
              } catch (InterruptedException unexpected) {
                return;
              }
              Runtime.getRuntime().halt(1);
            },
            "shutdown-limit");
    cutOff.setDaemon(true);
    cutOff.start();
    Step step;
    while ((step = next()) != null) {
      long startNanos = System.nanoTime();
      try {
        step.stop().run();
        LOG.info(
            "stopped {} in {} ms",
            step.name(),
            TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNanos));
      } catch (Exception | LinkageError failure) {
        LOG.warn("stopping {} failed: {}", step.name(), Failed.inOneLine(failure));
      }
    }
  }

  private synchronized Step next() {
    return steps.poll();
  }
}
