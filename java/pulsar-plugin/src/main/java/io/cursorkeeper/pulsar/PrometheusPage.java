package io.cursorkeeper.pulsar;

import io.prometheus.client.Collector;
import io.prometheus.client.CollectorRegistry;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Supplier;

/**
 * Serves the broker's operator: the plugin's figures on the broker's own page, by the registry that
 * the page shows.
 */
public final class PrometheusPage extends Collector implements AutoCloseable {

  private static final List<String> OF_A_CURSOR =
      List.of("namespace", "ledger_name", "cursor_name");

  private final CollectorRegistry registry;
  private final Supplier<Figures> figures;

  /**
   * Shows them until it is closed. IllegalArgumentException if the page has such figures already.
   */
  public PrometheusPage(CollectorRegistry registry, Supplier<Figures> figures) {
    this.registry = registry;
    this.figures = figures;
    registry.register(this);
  }

  @Override
  public List<MetricFamilySamples> collect() {
    Figures now = figures.get();
    List<MetricFamilySamples> page = new ArrayList<>();
    for (Figures.Single each : Figures.ALL) {
      page.add(
          new MetricFamilySamples(
              each.name(),
              each.onlyGrows() ? Type.COUNTER : Type.GAUGE,
              each.help(),
              List.of(sample(each.name(), List.of(), List.of(), each.value().applyAsDouble(now)))));
    }
    List<MetricFamilySamples.Sample> states = new ArrayList<>();
    now.cursors()
        .forEach(
            (state, count) ->
                states.add(
                    sample(
                        Figures.CURSORS,
                        List.of("state"),
                        List.of(state.name().toLowerCase(Locale.ROOT)),
                        count)));
    page.add(new MetricFamilySamples(Figures.CURSORS, Type.GAUGE, Figures.CURSORS_HELP, states));
    page.add(receipts(now.counters().receipts));
    for (Figures.OfOne each :
        now.longest().isEmpty() ? List.<Figures.OfOne>of() : Figures.OF_CURSORS) {
      List<MetricFamilySamples.Sample> samples = new ArrayList<>();
      for (Figures.OfCursor of : now.longest()) {
        samples.add(
            sample(
                each.name(),
                OF_A_CURSOR,
                List.of(of.namespace(), of.ledger(), of.cursor()),
                each.value().applyAsDouble(of)));
      }
      page.add(new MetricFamilySamples(each.name(), Type.GAUGE, each.help(), samples));
    }
    return page;
  }

  private static MetricFamilySamples receipts(Latencies of) {
    List<MetricFamilySamples.Sample> samples = new ArrayList<>();
    long[] counts = of.cumulative();
    for (int i = 0; i < counts.length; i++) {
      String bound =
          i < Latencies.BOUNDS_S.length ? doubleToGoString(Latencies.BOUNDS_S[i]) : "+Inf";
      samples.add(
          sample(Figures.RECEIPTS + "_bucket", List.of("le"), List.of(bound), (double) counts[i]));
    }
    samples.add(
        sample(
            Figures.RECEIPTS + "_count", List.of(), List.of(), (double) counts[counts.length - 1]));
    samples.add(sample(Figures.RECEIPTS + "_sum", List.of(), List.of(), of.sumSeconds()));
    return new MetricFamilySamples(
        Figures.RECEIPTS, Type.HISTOGRAM, Figures.RECEIPTS_HELP, samples);
  }

  private static MetricFamilySamples.Sample sample(
      String name, List<String> labels, List<String> values, double value) {
    return new MetricFamilySamples.Sample(name, labels, values, value);
  }

  @Override
  public void close() {
    registry.unregister(this);
  }
}
