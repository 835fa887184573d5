package io.cursorkeeper.gateway.service;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/**
 * Serves plain HTTP to machines: /metrics for Prometheus, and /health, which says what the gRPC health says, in a status
 * that every load balancer and container runtime can read: 200 SERVING, or 503 NOT_SERVING and why.
 */
final class MetricsServer {
  private static final int BACKLOG_MAX = 16;

  private final HttpServer server;

  private MetricsServer(HttpServer server) {
    this.server = server;
  }

  static MetricsServer start(String host, int port, Metrics metrics, Health health) throws IOException {
    HttpServer server = HttpServer.create(new InetSocketAddress(host, port), BACKLOG_MAX);
    server.createContext("/metrics", exchange -> {
      answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", metrics.text());
    });
    server.createContext("/health", exchange -> {
      String reason = health.whyNotServing();
      answer(exchange, reason.isEmpty() ? 200 : 503, "text/plain; charset=utf-8",
          reason.isEmpty() ? "SERVING\n" : "NOT_SERVING: " + reason + "\n");
    });
    server.start();
    return new MetricsServer(server);
  }

  private static void answer(HttpExchange exchange, int status, String type, String text) throws IOException {
    byte[] page = text.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("Content-Type", type);
    exchange.sendResponseHeaders(status, page.length);
    exchange.getResponseBody().write(page);
    exchange.close();
  }

  int port() {
    return server.getAddress().getPort();
  }

  void stop() {
    server.stop(0);
  }
}
