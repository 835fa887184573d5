package io.cursorkeeper.client;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/** Small helpers of the tests. */
final class Testing {

  /** A limit for what never comes, also on a busy machine. */
  static final int WAIT_MAX_S = 120;

  static final ExecutorService ANSWERS =
      Executors.newCachedThreadPool(
          task -> {
            Thread made = new Thread(task, "answers");
            made.setDaemon(true);
            return made;
          });

  private Testing() {}

  static LinkSettings settings(String address) {
    return LinkSettings.of(address, ANSWERS)
        .withTls(tls())
        .withBackOff(Duration.ofMillis(10), Duration.ofMillis(200))
        .withTimeouts(Duration.ofSeconds(WAIT_MAX_S / 2), Duration.ofSeconds(WAIT_MAX_S / 2));
  }

  /** As the daemon of {@link ContractMain} wants it. */
  private static Optional<LinkTls> tls() {
    String folder = System.getProperty("cursorkeeper.certificates", "");
    return folder.isEmpty()
        ? Optional.empty()
        : Optional.of(
            new LinkTls(
                Optional.of(Path.of(folder, "authority.pem")),
                Optional.of(Path.of(folder, "source.pem")),
                Optional.of(Path.of(folder, "source-key.pem")),
                "broker.example.com"));
  }

  static <T> T get(CompletableFuture<T> future) {
    try {
      return future.get(WAIT_MAX_S, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      if (e.getCause() instanceof KeeperException why) {
        throw why;
      }
      throw new AssertionError(e.getCause());
    } catch (InterruptedException | TimeoutException e) {
      throw new AssertionError("no answer", e);
    }
  }

  static KeeperException failure(CompletableFuture<?> future) {
    return assertThrows(KeeperException.class, () -> get(future));
  }

  static void until(BooleanSupplier condition) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_MAX_S);
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > end) {
        throw new AssertionError("not within " + WAIT_MAX_S + " s");
      }
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  static List<Long> entries(CursorState state, long ledger) {
    List<Long> found = new ArrayList<>();
    AckedEntries acked = state.acked().get(ledger);
    if (acked != null) {
      acked.forEachRange(
          (first, last) -> {
            for (long entry = first; entry <= last; entry++) {
              found.add(entry);
            }
          });
    }
    return found;
  }

  static Acks entries(int generation, long ledger, long... entries) {
    Acks acks = new Acks(generation);
    Arrays.stream(entries).forEach(each -> acks.entry(ledger, each));
    return acks;
  }

  /** An ack set whose bits are these. */
  static long[] missing(int... indexes) {
    java.util.BitSet bits = new java.util.BitSet();
    Arrays.stream(indexes).forEach(bits::set);
    return bits.toLongArray();
  }
}
