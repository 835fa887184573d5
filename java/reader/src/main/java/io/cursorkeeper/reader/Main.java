package io.cursorkeeper.reader;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;

/**
 * Reads cursors, one JSON object a line, and answers one a line: the settled state, or {@code
 * {"refused": kind, "why": text}}. A cursor is {@code {"topic", "subscription", "footer": hex,
 * "znodeVersion", "ledgers": {id: {"metadata": {}, "entries": [hex or null]}}}}.
 */
public final class Main {
  private Main() {}

  public static void main(String[] args) throws IOException {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      out.println(Json.write(answer((Map<?, ?>) Json.parse(line))));
    }
    out.flush();
  }

  private static Map<String, Object> answer(Map<?, ?> cursor) {
    try {
      byte[] data = HexFormat.of().parseHex((String) cursor.get("footer"));
      Long version = (Long) cursor.get("znodeVersion");
      Footer footer =
          new Footer(
              data, version, (String) cursor.get("topic"), (String) cursor.get("subscription"));
      return CursorReader.read(footer, CursorReader.ledgersOf((Map<?, ?>) cursor.get("ledgers")));
    } catch (Refused e) {
      String kind =
          e.kind == Refused.Kind.FOREIGN
              ? "damaged"
              : e.kind.name().toLowerCase(Locale.ROOT).replace('_', ' ');
      return Map.of("refused", kind, "why", String.valueOf(e.getMessage()));
    }
  }
}
