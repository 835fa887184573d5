package io.cursorkeeper.gateway.process;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The one line on stdout that says a command is ready: a flat JSON object, keys in the order they
 * were put.
 */
public final class Ready {
  private final Map<String, Object> fields = new LinkedHashMap<>();

  public Ready(String command) {
    fields.put("ready", command);
  }

  /** Adds a text or a number. */
  public Ready with(String key, Object value) {
    fields.put(key, value);
    return this;
  }

  /** Prints the line; called once. */
  public void print() {
    System.out.println(with("pid", ProcessHandle.current().pid()).json());
    System.out.flush();
  }

  String json() {
    StringBuilder json = new StringBuilder("{");
    fields.forEach(
        (key, value) -> {
          json.append(json.length() == 1 ? "" : ",").append('"').append(key).append("\":");
          if (value instanceof Number || value instanceof Boolean) {
            json.append(value);
          } else {
            json.append('"').append(escaped(value.toString())).append('"');
          }
        });
    return json.append('}').toString();
  }

  private static String escaped(String text) {
    StringBuilder out = new StringBuilder();
    for (int at = 0; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.toString();
  }
}
