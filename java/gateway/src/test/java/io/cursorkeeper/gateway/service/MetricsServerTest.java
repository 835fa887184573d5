package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** It is the liveness probe: whatever others send, it answers. */
@Timeout(300)
class MetricsServerTest {
  private static final byte[] TLS_GREETING = {
    0x16, 0x03, 0x01, 0x00, (byte) 0xc5, 0x01, 0x00, 0x00, (byte) 0xc1, 0x03, 0x03
  };

  private static String ask(int port, String request) throws Exception {
    try (Socket socket = new Socket("127.0.0.1", port)) {
      socket.setSoTimeout(60_000);
      socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
      InputStream answer = socket.getInputStream();
      return new String(answer.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  private static String get(int port, String path) throws Exception {
    return ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }

  @Test
  void halfRequestsAndOtherProtocolsKeepNobodyFromAnAnswer() throws Exception {
    String[] why = {""};
    MetricsServer server =
        MetricsServer.start("127.0.0.1", 0, null, () -> "a_metric 1\n", () -> why[0]);
    List<Socket> hostile = new ArrayList<>();
    try {
      byte[][] beginnings = {
        {},
        "GET /hea".getBytes(StandardCharsets.US_ASCII),
        "GET /health HTTP/1.1\r\nX-Never-Ends: ".getBytes(StandardCharsets.US_ASCII),
        TLS_GREETING
      };
      for (int at = 0; at < 200; at++) {
        Socket socket = new Socket("127.0.0.1", server.port());
        hostile.add(socket);
        try {
          socket.getOutputStream().write(beginnings[at % beginnings.length]);
        } catch (java.net.SocketException evicted) {
          // Older ones go for newer ones: that is what is tested.
        }
        if (at % 50 == 7) {
          assertTrue(get(server.port(), "/health").startsWith("HTTP/1.1 200 OK"));
        }
      }
      assertTrue(get(server.port(), "/health").endsWith("SERVING\n"));
      assertTrue(get(server.port(), "/metrics?x=1").endsWith("a_metric 1\n"));
      why[0] = "no bookies";
      String down = get(server.port(), "/health");
      assertTrue(
          down.startsWith("HTTP/1.1 503 ") && down.endsWith("NOT_SERVING: no bookies\n"), down);
      assertTrue(get(server.port(), "/other").startsWith("HTTP/1.1 404 "));
      assertTrue(
          ask(server.port(), "DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
              .startsWith("HTTP/1.1 405 "));
      assertEquals(200, hostile.size());
    } finally {
      for (Socket socket : hostile) {
        socket.close();
      }
      server.stop();
    }
  }
}
