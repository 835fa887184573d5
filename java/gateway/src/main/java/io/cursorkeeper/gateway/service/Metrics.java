package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.append.AppendMeter;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;

/**
 * Counters, gauges and one histogram in the text format of Prometheus. Names start with
 * cursorkeeper_gateway_.
 */
final class Metrics implements AppendMeter {
  private static final String PREFIX = "cursorkeeper_gateway_";
  private static final double[] LATENCY_BOUNDS_S = {
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15
  };

  enum Counter {
    APPENDS("appends_total", "Entries acknowledged by their ack quorum"),
    APPEND_BYTES("append_bytes_total", "Bytes of acknowledged entries"),
    APPENDS_FAILED("appends_failed_total", "Entries that were sent and failed"),
    READ_ENTRIES("read_entries_total", "Entries sent to readers"),
    READ_BYTES("read_bytes_total", "Bytes sent to readers"),
    CREATES("creates_total", "Ledgers created"),
    FENCES("fences_total", "Ledgers recovered"),
    CLOSES("closes_total", "Ledgers closed"),
    DELETES("deletes_total", "Ledgers deleted"),
    AUDIT_LINES_LOST("audit_lines_lost_total", "Lines that the audit log had no room for");

    private final String metric;
    private final String help;

    Counter(String metric, String help) {
      this.metric = metric;
      this.help = help;
    }
  }

  private record Gauge(String help, LongSupplier value) {}

  private final Map<Counter, LongAdder> counters = new EnumMap<>(Counter.class);
  private final LongAdder[] latency = adders(LATENCY_BOUNDS_S.length + 1);
  private final LongAdder latencyNanos = new LongAdder();
  private final Map<String, LongAdder> failures = new ConcurrentSkipListMap<>();
  private final Map<String, Gauge> gauges = new LinkedHashMap<>();
  private String build = "";

  Metrics() {
    for (Counter counter : Counter.values()) {
      counters.put(counter, new LongAdder());
    }
  }

  /** Registers a value that is read when somebody asks; only while the gateway is put together. */
  void gauge(String name, String help, LongSupplier value) {
    gauges.put(name, new Gauge(help, value));
  }

  /** What runs, for the labels of a gauge that is always 1. */
  void build(Versions versions) {
    build =
        "{version=\""
            + versions.gateway()
            + "\",bookkeeper=\""
            + versions.bookkeeper()
            + "\",java=\""
            + Runtime.version().feature()
            + "\"}";
  }

  void add(Counter counter, long amount) {
    counters.get(counter).add(amount);
  }

  void failure(LedgerFailure failure) {
    failures.computeIfAbsent(failure.failure().getReason(), reason -> new LongAdder()).increment();
  }

  @Override
  public void answered(int entryBytes, long nanos, Throwable thrown) {
    if (thrown != null) {
      add(Counter.APPENDS_FAILED, 1);
      return;
    }
    add(Counter.APPENDS, 1);
    add(Counter.APPEND_BYTES, entryBytes);
    double seconds = nanos / 1e9;
    int bucket = 0;
    while (bucket < LATENCY_BOUNDS_S.length && seconds > LATENCY_BOUNDS_S[bucket]) {
      bucket++;
    }
    latency[bucket].increment();
    latencyNanos.add(nanos);
  }

  /** Forgets what the warm-up counted. */
  void reset() {
    for (LongAdder counter : counters.values()) {
      counter.reset();
    }
    for (LongAdder bucket : latency) {
      bucket.reset();
    }
    latencyNanos.reset();
    failures.clear();
  }

  /** All metrics as Prometheus reads them. */
  String text() {
    StringBuilder page = new StringBuilder();
    for (Counter counter : Counter.values()) {
      head(page, counter.metric, counter.help, "counter");
      line(page, counter.metric, "", counters.get(counter).sum());
    }
    head(page, "failures_total", "Failures told to clients, by reason", "counter");
    failures.forEach(
        (reason, count) ->
            line(page, "failures_total", "{reason=\"" + reason + "\"}", count.sum()));
    gauges.forEach(
        (name, gauge) -> {
          head(page, name, gauge.help(), "gauge");
          line(page, name, "", gauge.value().getAsLong());
        });
    head(page, "build_info", "1; what runs, as labels", "gauge");
    line(page, "build_info", build, 1);
    latency(page);
    return page.toString();
  }

  private void latency(StringBuilder page) {
    String name = "append_seconds";
    head(
        page,
        name,
        "From handing an entry to the client library to its acknowledgement",
        "histogram");
    long count = 0;
    for (int bucket = 0; bucket < LATENCY_BOUNDS_S.length; bucket++) {
      count += latency[bucket].sum();
      line(page, name + "_bucket", "{le=\"" + LATENCY_BOUNDS_S[bucket] + "\"}", count);
    }
    count += latency[LATENCY_BOUNDS_S.length].sum();
    line(page, name + "_bucket", "{le=\"+Inf\"}", count);
    page.append(PREFIX).append(name).append("_sum ").append(latencyNanos.sum() / 1e9).append('\n');
    line(page, name + "_count", "", count);
  }

  private static void head(StringBuilder page, String name, String help, String type) {
    page.append("# HELP ").append(PREFIX).append(name).append(' ').append(help).append('\n');
    page.append("# TYPE ").append(PREFIX).append(name).append(' ').append(type).append('\n');
  }

  private static void line(StringBuilder page, String name, String labels, long value) {
    page.append(PREFIX).append(name).append(labels).append(' ').append(value).append('\n');
  }

  private static LongAdder[] adders(int count) {
    LongAdder[] adders = new LongAdder[count];
    for (int at = 0; at < count; at++) {
      adders[at] = new LongAdder();
    }
    return adders;
  }
}
