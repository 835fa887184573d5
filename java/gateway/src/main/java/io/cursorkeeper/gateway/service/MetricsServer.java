package io.cursorkeeper.gateway.service;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/** Serves the metrics page at /metrics, and nothing else. */
final class MetricsServer {
  private static final int BACKLOG_MAX = 16;

  private final HttpServer server;

  private MetricsServer(HttpServer server) {
    this.server = server;
  }

  static MetricsServer start(String host, int port, Metrics metrics) throws IOException {
    HttpServer server = HttpServer.create(new InetSocketAddress(host, port), BACKLOG_MAX);
    server.createContext("/metrics", exchange -> {
      byte[] page = metrics.text().getBytes(StandardCharsets.UTF_8);
      exchange.getResponseHeaders().set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
      exchange.sendResponseHeaders(200, page.length);
      exchange.getResponseBody().write(page);
      exchange.close();
    });
    server.start();
    return new MetricsServer(server);
  }

  int port() {
    return server.getAddress().getPort();
  }

  void stop() {
    server.stop(0);
  }
}
