package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BiConsumer;

/** One command's arguments, by name. A missing one without a default is an error that names it. */
record Request(String op, JsonNode body) {

  String text(String name) {
    return required(name).asText();
  }

  String text(String name, String otherwise) {
    return body.hasNonNull(name) ? body.get(name).asText() : otherwise;
  }

  long number(String name) {
    return required(name).asLong();
  }

  long number(String name, long otherwise) {
    return body.hasNonNull(name) ? body.get(name).asLong() : otherwise;
  }

  double fraction(String name, double otherwise) {
    return body.hasNonNull(name) ? body.get(name).asDouble() : otherwise;
  }

  boolean flag(String name, boolean otherwise) {
    return body.hasNonNull(name) ? body.get(name).asBoolean() : otherwise;
  }

  boolean has(String name) {
    return body.hasNonNull(name);
  }

  JsonNode required(String name) {
    if (!body.hasNonNull(name)) {
      throw new HarnessException(op + " needs '" + name + "'");
    }
    return body.get(name);
  }

  /** The object {@code name} as a request of its own; empty if it is not there. */
  Request part(String name) {
    JsonNode part = body.get(name);
    return new Request(op + "." + name, part == null || part.isNull() ? Json.object() : part);
  }

  Map<String, String> texts(String name) {
    Map<String, String> all = new LinkedHashMap<>();
    entries(name, (key, value) -> all.put(key, value.asText()));
    return all;
  }

  Map<String, Long> numbers(String name) {
    Map<String, Long> all = new LinkedHashMap<>();
    entries(name, (key, value) -> all.put(key, value.asLong()));
    return all;
  }

  private void entries(String name, BiConsumer<String, JsonNode> each) {
    if (body.get(name) instanceof ObjectNode found) {
      for (Iterator<String> keys = found.fieldNames(); keys.hasNext(); ) {
        String key = keys.next();
        each.accept(key, found.get(key));
      }
    }
  }
}
