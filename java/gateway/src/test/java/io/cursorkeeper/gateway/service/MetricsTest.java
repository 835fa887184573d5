package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class MetricsTest {
  @Test
  void whatRunsIsToldAsLabels() {
    Metrics metrics = new Metrics();
    metrics.build(Versions.built());
    String page = metrics.text();
    String line =
        "cursorkeeper_gateway_build_info{version=\""
            + Versions.built().gateway()
            + "\",bookkeeper=\"4.";
    assertTrue(page.contains("\n" + line), page);
  }
}
