package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.mledger.proto.ManagedLedgerInfo;

/**
 * A topic that says it has closed ledgers of given sizes, without their data: Pulsar opens only a
 * topic's last ledger, and nobody reads messages here, so ten million entries cost a few hundred
 * empty ledgers. The ids are real ones, each of an empty ledger that was created for it, so that no
 * id means two things even if Pulsar deletes it.
 */
final class Fabricator {
  private static final int AT_ONCE = 50;
  private static final long ENTRY_BYTES = 100;

  private Fabricator() {}

  /**
   * {@code ledger} (must not exist yet), {@code entries} [n1, n2, ...]; 0 makes an empty one, which
   * Pulsar drops as it opens.
   */
  static JsonNode fabricate(Connection connection, Request request) throws Exception {
    JsonNode entries = request.required("entries");
    List<Long> ids = new ArrayList<>();
    while (ids.size()
        < entries.size()
            + 1) { // one more: Pulsar drops the last ledger if it is empty, as this one is
      ids.addAll(
          emptyLedgers(
              connection,
              request.text("ledger"),
              Math.min(AT_ONCE, entries.size() + 1 - ids.size())));
    }
    Collections.sort(ids);
    ManagedLedgerInfo info = new ManagedLedgerInfo();
    ArrayNode layout = Json.array();
    for (int i = 0; i < entries.size(); i++) {
      long count = entries.get(i).asLong();
      info.addLedgerInfo()
          .setLedgerId(ids.get(i))
          .setEntries(count)
          .setSize(count * ENTRY_BYTES)
          .setTimestamp(System.currentTimeMillis());
      layout.add(Json.array().add(ids.get(i)).add(count));
    }
    info.addLedgerInfo().setLedgerId(ids.get(entries.size())).setTimestamp(0);
    byte[] bytes = info.toByteArray();
    Failures.await(
        connection.store.put(
            "/managed-ledgers/" + request.text("ledger"), bytes, Optional.of(-1L)));
    return Json.object().set("ledgers", layout);
  }

  private static List<Long> emptyLedgers(Connection connection, String topic, int count)
      throws Exception {
    Map<String, byte[]> metadata = RawLedgers.ofMessages(topic);
    List<CompletableFuture<Long>> created = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      CompletableFuture<Long> one = new CompletableFuture<>();
      created.add(one);
      connection.bookKeeper.asyncCreateLedger(
          1,
          1,
          1,
          DigestType.CRC32C,
          new byte[0],
          (rc, handle, context) -> {
            if (rc == BKException.Code.OK) {
              handle.closeAsync().whenComplete((done, failure) -> complete(one, handle, failure));
            } else {
              one.completeExceptionally(BKException.create(rc));
            }
          },
          null,
          metadata);
    }
    List<Long> ids = new ArrayList<>();
    for (CompletableFuture<Long> one : created) {
      ids.add(Failures.await(one));
    }
    return ids;
  }

  private static void complete(
      CompletableFuture<Long> one, LedgerHandle handle, Throwable failure) {
    if (failure == null) {
      one.complete(handle.getId());
    } else {
      one.completeExceptionally(failure);
    }
  }
}
