package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.opentelemetry.api.OpenTelemetry;
import io.prometheus.client.CollectorRegistry;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class PagesTest {

  private final Counters counters = new Counters();
  private final CollectorRegistry registry = new CollectorRegistry(true);

  private Figures figures() {
    Map<Figures.State, Long> cursors = Figures.noCursors();
    cursors.put(Figures.State.KEPT, 3L);
    return new Figures(
        true,
        2,
        cursors,
        7,
        512,
        0.25,
        1.5,
        1,
        List.of(
            new Figures.OfCursor(
                "public/default", "public/default/persistent/t", "sub", 5, 100, 1.5)),
        counters);
  }

  private Double value(String name, String... labels) {
    String[] names = new String[labels.length / 2];
    String[] values = new String[labels.length / 2];
    for (int i = 0; i < names.length; i++) {
      names[i] = labels[2 * i];
      values[i] = labels[2 * i + 1];
    }
    return registry.getSampleValue(name, names, values);
  }

  @Test
  void prometheusShowsThem() {
    counters.imports.add(4);
    counters.receipts.record(TimeUnit.MILLISECONDS.toNanos(3));
    counters.receipts.record(TimeUnit.SECONDS.toNanos(60));
    try (PrometheusPage page = new PrometheusPage(registry, this::figures)) {
      assertEquals(1, value("pulsar_cursorkeeper_link_up"));
      assertEquals(0.25, value("pulsar_cursorkeeper_waiting_ratio"));
      assertEquals(4, value("pulsar_cursorkeeper_imports_total"));
      assertEquals(3, value("pulsar_cursorkeeper_cursors", "state", "kept"));
      assertEquals(0, value("pulsar_cursorkeeper_cursors", "state", "stock"));
      assertEquals(0, value("pulsar_cursorkeeper_receipt_latency_seconds_bucket", "le", "0.002"));
      assertEquals(1, value("pulsar_cursorkeeper_receipt_latency_seconds_bucket", "le", "0.005"));
      assertEquals(1, value("pulsar_cursorkeeper_receipt_latency_seconds_bucket", "le", "30.0"));
      assertEquals(2, value("pulsar_cursorkeeper_receipt_latency_seconds_bucket", "le", "+Inf"));
      assertEquals(60.003, value("pulsar_cursorkeeper_receipt_latency_seconds_sum"), 1e-6);
      assertEquals(
          5,
          value(
              "pulsar_cursorkeeper_cursor_waiting_acks",
              "namespace",
              "public/default",
              "ledger_name",
              "public/default/persistent/t",
              "cursor_name",
              "sub"));
      assertThrows(
          IllegalArgumentException.class, () -> new PrometheusPage(registry, this::figures));
    }
    assertEquals(null, value("pulsar_cursorkeeper_link_up"));
  }

  @Test
  void everyFigureHasANameOfItsOwnOnBothPages() {
    Set<String> names = new HashSet<>();
    for (Figures.Single each : Figures.ALL) {
      assertTrue(names.add(each.name()) && names.add(each.meter()), each.name());
      assertTrue(each.name().matches("pulsar_cursorkeeper_[a-z_]+"), each.name());
      assertTrue(each.meter().matches("pulsar\\.broker\\.cursorkeeper\\.[a-z_.]+"), each.meter());
    }
  }

  @Test
  void metersCanBeMadeAndClosed() {
    try (Meters meters = new Meters(OpenTelemetry.noop(), this::figures)) {
      meters.receipt(1);
    }
  }
}
