package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;

/**
 * Ledgers by their bytes, with the custom metadata, digest and password of Pulsar's cursor ledgers.
 */
final class RawLedgers {
  private final Connection connection;

  RawLedgers(Connection connection) {
    this.connection = connection;
  }

  /**
   * A cursor ledger with {@code entries} [base64...], closed. {@code metadata} is added. The answer
   * is its id.
   */
  JsonNode write(Request request) throws Exception {
    Map<String, byte[]> metadata = ofMessages(request.text("ledger"));
    metadata.put("pulsar/cursor", bytes(request.text("cursor")));
    request.texts("metadata").forEach((key, value) -> metadata.put(key, bytes(value)));
    try (LedgerHandle handle =
        connection.bookKeeper.createLedger(1, 1, 1, DigestType.CRC32C, new byte[0], metadata)) {
      for (JsonNode entry : request.required("entries")) {
        handle.addEntry(Base64.getDecoder().decode(entry.asText()));
      }
      return Json.object().put("id", handle.getId());
    }
  }

  /**
   * The custom metadata that Pulsar gives to the ledgers of a topic's messages; a cursor's have one
   * key more.
   */
  static Map<String, byte[]> ofMessages(String topic) {
    Map<String, byte[]> metadata = new HashMap<>();
    metadata.put("application", bytes("pulsar"));
    metadata.put("component", bytes("managed-ledger"));
    metadata.put("pulsar/managed-ledger", bytes(topic));
    return metadata;
  }

  /**
   * Entries of ledger {@code id} that a reader may see, without recovery: {@code last} how many
   * from the end (1).
   */
  JsonNode read(Request request) throws Exception {
    try (LedgerHandle handle =
        connection.bookKeeper.openLedgerNoRecovery(
            request.number("id"), DigestType.CRC32C, new byte[0])) {
      long last = handle.getLastAddConfirmed();
      ArrayNode entries = Json.array();
      long first = Math.max(0, last - request.number("last", 1) + 1);
      if (last >= 0) {
        for (Enumeration<LedgerEntry> all = handle.readEntries(first, last);
            all.hasMoreElements(); ) {
          entries.add(Base64.getEncoder().encodeToString(all.nextElement().getEntry()));
        }
      }
      ObjectNode metadata = Json.object();
      handle
          .getCustomMetadata()
          .forEach((key, value) -> metadata.put(key, new String(value, StandardCharsets.UTF_8)));
      return Json.object()
          .put("lastAddConfirmed", last)
          .<ObjectNode>set("entries", entries)
          .set("metadata", metadata);
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
