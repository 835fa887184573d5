package io.cursorkeeper.pulsar;

import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.BatchCallback;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.metrics.ObservableDoubleMeasurement;
import io.opentelemetry.api.metrics.ObservableLongMeasurement;
import io.opentelemetry.api.metrics.ObservableMeasurement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Serves the broker's operator: the plugin's figures by OpenTelemetry, in Pulsar's naming. */
public final class Meters implements AutoCloseable {

  /** Pulsar's own, of everything that its broker measures. */
  private static final String SCOPE = "org.apache.pulsar.broker";

  private static final String SECONDS = "s";
  private static final AttributeKey<String> STATE =
      AttributeKey.stringKey("pulsar.cursorkeeper.cursor.state");
  private static final AttributeKey<String> NAMESPACE = AttributeKey.stringKey("pulsar.namespace");
  private static final AttributeKey<String> LEDGER =
      AttributeKey.stringKey("pulsar.managed_ledger.name");
  private static final AttributeKey<String> CURSOR =
      AttributeKey.stringKey("pulsar.managed_ledger.cursor.name");

  private final DoubleHistogram receipts;
  private final BatchCallback asking;
  private final List<ObservableMeasurement> instruments = new ArrayList<>();
  private final List<Consumer<Figures>> tellers = new ArrayList<>();

  public Meters(OpenTelemetry openTelemetry, Supplier<Figures> figures) {
    Meter meter = openTelemetry.getMeter(SCOPE);
    for (Figures.Single each : Figures.ALL) {
      tell(meter, each);
    }
    ObservableLongMeasurement cursors =
        kept(
            meter
                .upDownCounterBuilder(Figures.METER_PREFIX + "cursor.count")
                .setUnit("{cursor}")
                .setDescription(Figures.CURSORS_HELP)
                .buildObserver());
    tellers.add(
        now ->
            now.cursors()
                .forEach(
                    (state, count) ->
                        cursors.record(
                            count, Attributes.of(STATE, state.name().toLowerCase(Locale.ROOT)))));
    for (Figures.OfOne each : Figures.OF_CURSORS) {
      ObservableDoubleMeasurement gauge = gauge(meter, each.meter(), each.unit(), each.help());
      tellers.add(
          now ->
              now.longest()
                  .forEach(
                      of ->
                          gauge.record(
                              each.value().applyAsDouble(of),
                              Attributes.of(
                                  NAMESPACE,
                                  of.namespace(),
                                  LEDGER,
                                  of.ledger(),
                                  CURSOR,
                                  of.cursor()))));
    }
    receipts =
        meter
            .histogramBuilder(Figures.METER_PREFIX + "receipt.latency")
            .setUnit(SECONDS)
            .setDescription(Figures.RECEIPTS_HELP)
            .setExplicitBucketBoundariesAdvice(Arrays.stream(Latencies.BOUNDS_S).boxed().toList())
            .build();
    asking =
        meter.batchCallback(
            () -> {
              Figures now = figures.get();
              tellers.forEach(each -> each.accept(now));
            },
            instruments.get(0),
            instruments.subList(1, instruments.size()).toArray(ObservableMeasurement[]::new));
  }

  private void tell(Meter meter, Figures.Single each) {
    if (each.onlyGrows()) {
      ObservableLongMeasurement counter =
          kept(
              meter
                  .counterBuilder(each.meter())
                  .setUnit(each.unit())
                  .setDescription(each.help())
                  .buildObserver());
      tellers.add(now -> counter.record((long) each.value().applyAsDouble(now)));
    } else {
      ObservableDoubleMeasurement gauge = gauge(meter, each.meter(), each.unit(), each.help());
      tellers.add(now -> gauge.record(each.value().applyAsDouble(now)));
    }
  }

  private ObservableDoubleMeasurement gauge(Meter meter, String name, String unit, String help) {
    return kept(meter.gaugeBuilder(name).setUnit(unit).setDescription(help).buildObserver());
  }

  private <M extends ObservableMeasurement> M kept(M instrument) {
    instruments.add(instrument);
    return instrument;
  }

  public void receipt(long ns) {
    receipts.record(ns / (double) TimeUnit.SECONDS.toNanos(1));
  }

  @Override
  public void close() {
    asking.close();
  }
}
