package io.cursorkeeper.gateway.access;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.grpc.Status;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.LongConsumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Who changed or was refused what, for whoever must answer for it later: one line of JSON each, in
 * a file of its own. No line holds a token.
 *
 * <p>Whoever tells it something never waits: lines go through a bounded queue to one thread, and
 * what finds no room is counted. A file that was moved away is made anew.
 */
public final class AuditLog {
  private static final Logger LOG = LoggerFactory.getLogger(AuditLog.class);
  private static final JsonMapper JSON = new JsonMapper();
  private static final String STANDARD_ERROR = "-";
  private static final int LINES_WAITING_MAX = 8_192;
  private static final int LINES_AT_ONCE_MAX = 512;
  private static final int CHARS_MAX = 400;
  private static final long LOOK_MS = 1_000;
  private static final long DRAIN_MAX_MS = 500;

  private final BlockingQueue<Map<String, Object>> waiting =
      new ArrayBlockingQueue<>(LINES_WAITING_MAX);
  private final AuditRates rates = new AuditRates();
  private final LongConsumer dropped;

  /** Null: standard error. */
  private final Path path;

  /** Null: the log is off. */
  private final Thread writing;

  private FileChannel file;
  private Object opened;
  private boolean isBroken;
  private volatile boolean isStopped;

  /**
   * {@code file} empty: off; {@code dropped} hears of lines that were lost. Throws
   * IllegalArgumentException with a message for people.
   */
  public AuditLog(String file, LongConsumer dropped) {
    this.dropped = dropped;
    path = file.isEmpty() || file.equals(STANDARD_ERROR) ? null : Path.of(file);
    if (path != null) {
      try {
        open();
      } catch (IOException | UnsupportedOperationException wrong) {
        throw new IllegalArgumentException(
            "--"
                + AccessSettings.AUDIT_LOG_FILE
                + " "
                + file
                + " cannot be written: "
                + wrong
                + "; name a file in a folder that this user may write",
            wrong);
      }
    }
    writing = file.isEmpty() ? null : new Thread(this::write, "gateway-audit");
    if (writing != null) {
      writing.setDaemon(true);
      writing.start();
    }
  }

  /**
   * A call has ended; {@code failure} null: well. What changes nothing is told if it is refused.
   */
  public void ended(Audited call, boolean changes, LedgerFailure failure) {
    if (writing == null) {
      return;
    }
    if (failure == null) {
      if (changes) {
        put(line(call.call().toLowerCase(Locale.ROOT), "ok", call));
      }
    } else if (isRefusal(failure)) {
      refused(call, failure);
    } else if (changes) {
      seldom(
          line(call.call().toLowerCase(Locale.ROOT), failure.failure().getReason(), call),
          call.who());
    }
  }

  /** A caller that is known may not do this. */
  public void refused(Audited call, LedgerFailure failure) {
    if (writing != null) {
      Map<String, Object> line = line("refused", failure.failure().getReason(), call);
      line.put("call", call.call());
      seldom(line, call.who());
    }
  }

  /** A caller did not prove who it is, or does no longer. */
  void unauthenticated(String call, String from, String name, LedgerFailure failure) {
    if (writing == null) {
      return;
    }
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("time", now());
    line.put("action", "unauthenticated");
    line.put("result", failure.failure().getReason());
    line.put("who", name);
    line.put("from", from);
    line.put("call", call);
    line.put("what", shown(failure.getMessage()));
    seldom(line, host(from));
  }

  /** Tells of lines that were left out; called every second or so. */
  public void look() {
    if (writing != null) {
      rates
          .over(System.nanoTime())
          .forEach(
              (key, count) -> {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("time", now());
                line.put("action", "refused");
                line.put("result", "LEFT_OUT");
                line.put("who", key);
                line.put("left_out", count);
                put(line);
              });
    }
  }

  /** Writes what waits, and ends. */
  public void stop() throws InterruptedException {
    isStopped = true;
    if (writing != null) {
      writing.join(DRAIN_MAX_MS + LOOK_MS);
    }
  }

  private static boolean isRefusal(LedgerFailure failure) {
    return failure.status().getCode() == Status.Code.PERMISSION_DENIED
        || failure.failure().getReason().equals("QUOTA");
  }

  private static Map<String, Object> line(String action, String result, Audited call) {
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("time", now());
    line.put("action", action);
    line.put("result", result);
    line.put("who", call.who().name());
    line.put("role", call.who().role().word());
    line.put("from", call.who().from());
    if (call.ledgerId() >= 0) {
      line.put("ledger", call.ledgerId());
    }
    Whose whose = call.whose();
    line.put(
        "deployment",
        shown(
            whose == null || whose.deployment().isEmpty()
                ? call.who().deployment()
                : whose.deployment()));
    if (whose != null) {
      line.put("what", shown(whose.said()));
    }
    return line;
  }

  private static String now() {
    return Instant.now().truncatedTo(ChronoUnit.MILLIS).toString();
  }

  private static String shown(String text) {
    return text.length() <= CHARS_MAX ? text : text.substring(0, CHARS_MAX);
  }

  // Of everybody who is told from others, or of each machine.
  private void seldom(Map<String, Object> line, Caller who) {
    seldom(line, who.identity().isOfAFile() ? who.name() : host(who.from()));
  }

  private void seldom(Map<String, Object> line, String key) {
    long leftOut = rates.take(key, System.nanoTime());
    if (leftOut < 0) {
      return;
    }
    if (leftOut > 0) {
      line.put("left_out", leftOut);
    }
    put(line);
  }

  private static String host(String from) {
    int colon = from.lastIndexOf(':');
    return colon < 0 ? from : from.substring(0, colon);
  }

  private void put(Map<String, Object> line) {
    if (!waiting.offer(line)) {
      dropped.accept(1);
    }
  }

  private void write() {
    List<Map<String, Object>> batch = new ArrayList<>();
    try {
      while (true) {
        Map<String, Object> first = waiting.poll(isStopped ? 0 : LOOK_MS, TimeUnit.MILLISECONDS);
        if (first == null) {
          if (isStopped) {
            break;
          }
          continue;
        }
        batch.clear();
        batch.add(first);
        waiting.drainTo(batch, LINES_AT_ONCE_MAX - 1);
        write(batch);
      }
    } catch (InterruptedException stopping) {
      Thread.currentThread().interrupt();
    } finally {
      close();
    }
  }

  private void write(List<Map<String, Object>> lines) {
    try {
      byte[] bytes = text(lines).getBytes(StandardCharsets.UTF_8);
      if (path == null) {
        System.err.write(bytes);
        System.err.flush();
      } else {
        reopenIfMoved();
        ByteBuffer left = ByteBuffer.wrap(bytes);
        while (left.hasRemaining()) {
          file.write(left);
        }
      }
      isBroken = false;
    } catch (IOException | RuntimeException wrong) {
      dropped.accept(lines.size());
      if (!isBroken) {
        LOG.warn(
            "--{} {} cannot be written, lines are lost: {}",
            AccessSettings.AUDIT_LOG_FILE,
            path,
            wrong.toString());
      }
      isBroken = true;
    }
  }

  private static String text(List<Map<String, Object>> lines) throws JsonProcessingException {
    StringBuilder all = new StringBuilder();
    for (Map<String, Object> line : lines) {
      all.append(JSON.writeValueAsString(line)).append('\n');
    }
    return all.toString();
  }

  private void reopenIfMoved() throws IOException {
    if (file == null || !Files.exists(path) || !opened.equals(inode())) {
      close();
      open();
    }
  }

  private void open() throws IOException {
    file =
        FileChannel.open(
            path,
            Set.of(StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    opened = inode();
  }

  private Object inode() throws IOException {
    return Files.getAttribute(path, "unix:ino");
  }

  private void close() {
    if (file == null) {
      return;
    }
    try {
      file.close();
    } catch (IOException ignored) {
      // What could be written is written.
    }
    file = null;
  }
}
