package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The commands by name. Everything but {@code connect}, {@code version} and {@code halt} needs a
 * connection first.
 */
final class Commands {
  private interface Command {
    JsonNode run(Request request) throws Exception;
  }

  private final Map<String, Command> table = new LinkedHashMap<>();
  private Connection connection;
  private Topics topics;
  private RawLedgers raw;

  Commands() {
    table.put("connect", this::connect);
    table.put("version", request -> Json.object().put("managedLedger", Connection.pulsarVersion()));
    table.put("halt", Commands::halt);
    table.put("fabricate", request -> Fabricator.fabricate(connection(), request));
    table.put("open_ledger", request -> topics().open(request));
    table.put("close_ledger", request -> topics().close(request));
    table.put("layout", request -> topics().layout(request));
    table.put("append", request -> topics().append(request));
    table.put("open_cursor", request -> topics().openCursor(request));
    table.put("close_cursor", request -> topics().closeCursor(request));
    table.put("delete", request -> topics().onCursor(request, Acks::delete));
    table.put("mark_delete", request -> topics().onCursor(request, Acks::markDelete));
    table.put(
        "set_cursor_properties", request -> topics().onCursor(request, Acks::setCursorProperties));
    table.put("throttle", request -> Acks.throttle(topics().cursor(request), request));
    table.put("switch_ledger", request -> Acks.switchLedger(topics().cursor(request)));
    table.put("flush", request -> Acks.flush(topics().cursor(request)));
    table.put("report", request -> Report.of(topics().cursor(request)));
    table.put("internals", request -> Report.internals(topics().cursor(request)));
    table.put("write_cursor_ledger", request -> raw().write(request));
    table.put("read_ledger", request -> raw().read(request));
  }

  JsonNode run(Request request) throws Exception {
    Command command = table.get(request.op());
    if (command == null) {
      throw new HarnessException(
          "unknown command '" + request.op() + "'; there are " + table.keySet());
    }
    return command.run(request);
  }

  private JsonNode connect(Request request) throws Exception {
    if (connection != null) {
      throw new HarnessException("connected already");
    }
    connection =
        new Connection(
            request.text("zookeeper"),
            request.text("ledgersPath", "/ledgers"),
            request.part("client"));
    topics = new Topics(connection);
    raw = new RawLedgers(connection);
    return Json.object().put("version", Connection.pulsarVersion());
  }

  private static JsonNode halt(Request request) {
    Runtime.getRuntime().halt((int) request.number("status", 137));
    throw new AssertionError();
  }

  private Connection connection() {
    if (connection == null) {
      throw new HarnessException("say connect first");
    }
    return connection;
  }

  private Topics topics() {
    connection();
    return topics;
  }

  private RawLedgers raw() {
    connection();
    return raw;
  }
}
