package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

class MetadatasTest {
  private static final Map<String, String> OURS = Map.of("application", "cursorkeeper");
  private static final Map<String, String> PULSAR_CURSOR = Map.of("application", "pulsar",
      "component", "managed-ledger", "pulsar/managed-ledger", "public/default/persistent/t", "pulsar/cursor", "s");

  private static Map<String, byte[]> bytes(Map<String, String> pairs) {
    Map<String, byte[]> bytes = new HashMap<>();
    pairs.forEach((key, value) -> bytes.put(key, value.getBytes(StandardCharsets.UTF_8)));
    return bytes;
  }

  private static Map<String, byte[]> pulsarCursorBut(String key, String value) {
    Map<String, byte[]> custom = bytes(PULSAR_CURSOR);
    if (value == null) {
      custom.remove(key);
    } else {
      custom.put(key, value.getBytes(StandardCharsets.UTF_8));
    }
    return custom;
  }

  private static void assertNotOurs(org.junit.jupiter.api.function.Executable refused) {
    assertEquals("NOT_OURS", assertThrows(LedgerFailure.class, refused).failure().getReason());
  }

  @Test
  void onlyOursAreFencedAndPulsarCursorsMayBeWrittenToo() {
    assertDoesNotThrow(() -> Metadatas.requireOurs(1, bytes(OURS)));
    assertDoesNotThrow(() -> Metadatas.requireOursOrPulsarCursor(1, bytes(OURS)));
    assertDoesNotThrow(() -> Metadatas.requireOursOrPulsarCursor(-1, bytes(PULSAR_CURSOR)));
    assertNotOurs(() -> Metadatas.requireOurs(1, bytes(PULSAR_CURSOR)));
    assertNotOurs(() -> Metadatas.requireOursOrPulsarCursor(1, Map.of()));
  }

  @Test
  void whateverIsNotCertainlyACursorIsNotTouched() {
    // A message ledger has everything but pulsar/cursor; a schema ledger another component.
    for (String key : PULSAR_CURSOR.keySet()) {
      assertNotOurs(() -> Metadatas.requireOursOrPulsarCursor(1, pulsarCursorBut(key, null)));
      assertNotOurs(() -> Metadatas.requireOursOrPulsarCursor(1, pulsarCursorBut(key, "")));
    }
    assertNotOurs(() -> Metadatas.requireOursOrPulsarCursor(1, pulsarCursorBut("component", "schema")));
    assertNotOurs(() -> Metadatas.requireOursOrPulsarCursor(1, pulsarCursorBut("application", "someone")));
  }
}
