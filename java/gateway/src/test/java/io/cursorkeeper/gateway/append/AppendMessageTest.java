package io.cursorkeeper.gateway.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.cursorkeeper.ledgers.v1.AppendRequest;
import io.cursorkeeper.ledgers.v1.LedgerAppend;
import java.io.ByteArrayInputStream;
import org.junit.jupiter.api.Test;

class AppendMessageTest {
  private static AppendMessage read(byte[] bytes) {
    return AppendMessage.marshaller(10, 4).parse(new ByteArrayInputStream(bytes));
  }

  private static byte[] message(int ledgers, int entriesEach) {
    AppendRequest.Builder request = AppendRequest.newBuilder();
    for (int ledger = 0; ledger < ledgers; ledger++) {
      LedgerAppend.Builder append = LedgerAppend.newBuilder().setLedgerId(ledger);
      for (int entry = 0; entry < entriesEach; entry++) {
        append.addPayloads(ByteString.copyFromUtf8("entry " + entry));
      }
      request.addAppends(append);
    }
    return request.build().toByteArray();
  }

  @Test
  void whatKeepsToTheLimitsIsReadAsItIs() throws Exception {
    for (byte[] bytes :
        new byte[][] {message(0, 0), message(4, 2), message(1, 10), message(4, 0)}) {
      AppendMessage read = read(bytes);
      assertNull(read.refusal());
      assertEquals(AppendRequest.parseFrom(bytes), read.request());
    }
  }

  @Test
  void whatDoesNotIsRefusedByName() {
    assertTrue(
        read(message(5, 0)).refusal().getMessage().contains("4 ledgers (message_ledgers_max)"));
    assertTrue(
        read(message(1, 11)).refusal().getMessage().contains("10 entries (message_entries_max)"));
    assertTrue(read(message(4, 3)).refusal().getMessage().contains("message_entries_max"));
    assertEquals(
        "BAD_REQUEST", read(new byte[] {0x0a, 0x7f, 0x01}).refusal().failure().getReason());
  }
}
