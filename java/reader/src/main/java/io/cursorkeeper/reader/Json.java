package io.cursorkeeper.reader;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as RFC 8259 has it: objects are maps, arrays lists, integers longs (or BigInteger),
 * everything else with a point BigDecimal.
 */
final class Json {
  private static final int DEPTH_MAX = 200;
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.space();
    if (json.at != text.length()) {
      throw Refused.damage("JSON: more than one value");
    }
    return value;
  }

  private Refused wrong() {
    return Refused.damage("not JSON at character " + at);
  }

  private void space() {
    while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private char next() {
    if (at >= text.length()) {
      throw wrong();
    }
    return text.charAt(at++);
  }

  private void expect(char wanted) {
    space();
    if (next() != wanted) {
      throw wrong();
    }
  }

  private boolean takes(char wanted) {
    space();
    if (at < text.length() && text.charAt(at) == wanted) {
      at++;
      return true;
    }
    return false;
  }

  private Object value(int depth) {
    if (depth > DEPTH_MAX) {
      throw wrong();
    }
    space();
    char c = next();
    if (c == '{') {
      return object(depth);
    }
    if (c == '[') {
      return array(depth);
    }
    if (c == '"') {
      return string();
    }
    at--;
    for (Object[] word : new Object[][] {{"true", true}, {"false", false}, {"null", null}}) {
      if (text.startsWith((String) word[0], at)) {
        at += ((String) word[0]).length();
        return word[1];
      }
    }
    return number();
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> found = new LinkedHashMap<>();
    if (takes('}')) {
      return found;
    }
    do {
      expect('"');
      String name = string();
      expect(':');
      Object value = value(depth + 1);
      if (found.containsKey(name)) {
        throw Refused.damage("member " + name + " comes twice");
      }
      found.put(name, value);
    } while (takes(','));
    expect('}');
    return found;
  }

  private List<Object> array(int depth) {
    List<Object> found = new ArrayList<>();
    if (takes(']')) {
      return found;
    }
    do {
      found.add(value(depth + 1));
    } while (takes(','));
    expect(']');
    return found;
  }

  private String string() {
    StringBuilder out = new StringBuilder();
    while (true) {
      char c = next();
      if (c == '"') {
        return out.toString();
      }
      if (c < ' ') {
        throw wrong();
      }
      out.append(c == '\\' ? escaped() : c);
    }
  }

  private char escaped() {
    char c = next();
    int known = "\"\\/bfnrt".indexOf(c);
    if (known >= 0) {
      return "\"\\/\b\f\n\r\t".charAt(known);
    }
    if (c != 'u'
        || at + 4 > text.length()
        || !text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) {
      throw wrong();
    }
    at += 4;
    return (char) Integer.parseInt(text.substring(at - 4, at), 16);
  }

  private Number number() {
    int start = at;
    while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    String told = text.substring(start, at);
    if (!told.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
      throw wrong();
    }
    if (told.matches(".*[.eE].*")) {
      return new BigDecimal(told);
    }
    BigInteger number = new BigInteger(told);
    return number.bitLength() < 64 ? (Number) number.longValue() : number;
  }

  static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(out, value);
    return out.toString();
  }

  private static void write(StringBuilder out, Object value) {
    if (value instanceof Map<?, ?> map) {
      String between = "{";
      for (Map.Entry<?, ?> member : map.entrySet()) {
        out.append(between);
        write(out, member.getKey().toString());
        out.append(':');
        write(out, member.getValue());
        between = ",";
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else if (value instanceof Iterable<?> list) {
      String between = "[";
      for (Object item : list) {
        out.append(between);
        write(out, item);
        between = ",";
      }
      out.append(between.equals("[") ? "[]" : "]");
    } else if (value instanceof String string) {
      out.append('"');
      for (int at = 0; at < string.length(); at++) {
        char c = string.charAt(at);
        out.append(
            c >= ' ' && c < 127 && c != '"' && c != '\\'
                ? String.valueOf(c)
                : String.format("\\u%04x", (int) c));
      }
      out.append('"');
    } else {
      out.append(value);
    }
  }
}
