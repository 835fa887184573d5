package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.BitSet;
import java.util.Map;
import java.util.TreeMap;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.proto.ManagedLedgerInfo.LedgerInfo;

/** What a cursor says about itself. */
final class Report {
  private Report() {}

  /**
   * The state as a consumer would meet it. {@code acked}: entries above mark-delete for which
   * {@code isMessageDeleted} is true, asked one by one over the topic's layout. {@code ranges}:
   * what is in the cursor's range set, whether the topic has the entry or not. {@code batches}:
   * [[ledger, entry, remaining words]...]. Mark-delete and both maps are read one after the other:
   * ask a quiet cursor.
   */
  static ObjectNode of(ManagedCursorImpl cursor) {
    ObjectNode report = Json.object();
    Position markDelete = cursor.getMarkDeletedPosition();
    report.set("markDelete", Json.position(markDelete));
    report.set("acked", acked(cursor, markDelete));
    report.set("ranges", ranges(cursor));
    report.set("batches", batches(cursor));
    report.set("properties", Json.MAPPER.valueToTree(cursor.getProperties()));
    report.set("cursorProperties", Json.MAPPER.valueToTree(cursor.getCursorProperties()));
    report.set("layout", Topics.describe((ManagedLedgerImpl) cursor.getManagedLedger()));
    return report;
  }

  static ObjectNode internals(ManagedCursorImpl cursor) {
    ObjectNode all = Json.object();
    all.put("state", cursor.getState());
    all.put("cursorLedger", cursor.getCursorLedger());
    all.put("cursorLedgerLastEntry", cursor.getCursorLedgerLastEntry());
    all.set("markDelete", Json.position(cursor.getMarkDeletedPosition()));
    Position persistent = cursor.getPersistentMarkDeletedPosition();
    all.set("persistentMarkDelete", persistent == null ? null : Json.position(persistent));
    all.set("readPosition", Json.position(cursor.getReadPosition()));
    all.put("ranges", cursor.getTotalNonContiguousDeletedMessagesRange());
    all.put("serializedBytes", cursor.getNonContiguousDeletedMessagesRangeSerializedSize());
    all.put("fullyPersistable", cursor.isCursorDataFullyPersistable());
    all.put("backlog", cursor.getNumberOfEntriesInBacklog(true));
    all.put("ledgerWriteErrors", cursor.getStats().getPersistLedgerErrors());
    all.put("ledgerWrites", cursor.getStats().getPersistLedgerSucceed());
    all.put("ledgerWriteBytes", cursor.getStats().getWriteCursorLedgerSize());
    all.put("znodeWriteErrors", cursor.getStats().getPersistZookeeperErrors());
    all.put("znodeWrites", cursor.getStats().getPersistZookeeperSucceed());
    String text =
        cursor.getTotalNonContiguousDeletedMessagesRange() <= 1_000
            ? cursor.getIndividuallyDeletedMessages()
            : "";
    all.put("individuallyDeleted", text);
    return all;
  }

  private static ArrayNode acked(ManagedCursorImpl cursor, Position markDelete) {
    ManagedLedgerImpl ledger = (ManagedLedgerImpl) cursor.getManagedLedger();
    ArrayNode all = Json.array();
    for (LedgerInfo info :
        ledger.getLedgersInfo().tailMap(markDelete.getLedgerId(), true).values()) {
      long from = info.getLedgerId() == markDelete.getLedgerId() ? markDelete.getEntryId() + 1 : 0;
      Runs runs = new Runs();
      for (long entry = from, entries = Topics.entries(ledger, info); entry < entries; entry++) {
        if (cursor.isMessageDeleted(PositionFactory.create(info.getLedgerId(), entry))) {
          runs.add(entry, entry);
        }
      }
      if (!runs.isEmpty()) {
        all.add(Json.array().add(info.getLedgerId()).add(runs.encode()));
      }
    }
    return all;
  }

  private static ArrayNode ranges(ManagedCursorImpl cursor) {
    Map<Long, Runs> byLedger = new TreeMap<>();
    cursor
        .getIndividuallyDeletedMessagesSet()
        .forEachRawRange(
            (lowerLedger, lower, upperLedger, upper) -> {
              if (lowerLedger != upperLedger) {
                throw new IllegalStateException(
                    "a range across ledgers: "
                        + lowerLedger
                        + ":"
                        + lower
                        + ".."
                        + upperLedger
                        + ":"
                        + upper);
              }
              byLedger.computeIfAbsent(lowerLedger, ignored -> new Runs()).add(lower + 1, upper);
              return true;
            });
    ArrayNode all = Json.array();
    byLedger.forEach((ledger, runs) -> all.add(Json.array().add(ledger).add(runs.encode())));
    return all;
  }

  private static ArrayNode batches(ManagedCursorImpl cursor) {
    ArrayNode all = Json.array();
    if (cursor.getBatchDeletedIndexes() == null) {
      return all;
    }
    for (Position at : cursor.getBatchDeletedIndexes().keySet()) {
      long[] remaining = cursor.getDeletedBatchIndexesAsLongArray(at);
      if (remaining != null && !BitSet.valueOf(remaining).isEmpty()) {
        all.add(Json.position(at).add(Json.words(remaining)));
      }
    }
    return all;
  }
}
