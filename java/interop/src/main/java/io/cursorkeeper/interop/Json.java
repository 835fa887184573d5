package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.bookkeeper.mledger.Position;

/**
 * JSON in one place. A position is {@code [ledger, entry]}; a bit set is the signed words of {@code
 * BitSet.toLongArray}.
 */
final class Json {
  static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  static ArrayNode array() {
    return MAPPER.createArrayNode();
  }

  static ArrayNode position(Position position) {
    return array().add(position.getLedgerId()).add(position.getEntryId());
  }

  static ArrayNode words(long[] words) {
    ArrayNode all = array();
    for (long word : words) {
      all.add(word);
    }
    return all;
  }
}
