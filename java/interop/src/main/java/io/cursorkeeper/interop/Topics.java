package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.mledger.AsyncCallbacks.AddEntryCallback;
import org.apache.bookkeeper.mledger.ManagedCursor;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.impl.CursorAccess;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl;
import org.apache.bookkeeper.mledger.proto.ManagedLedgerInfo.LedgerInfo;
import org.apache.pulsar.common.api.proto.CommandSubscribe.InitialPosition;

/** The open managed ledgers and their cursors, by Pulsar's own names. */
final class Topics {
  /** Something done to an open cursor. */
  interface Step {
    JsonNode run(ManagedCursorImpl cursor, Request request) throws Exception;
  }

  private static final int UNANSWERED_MAX = 500;

  private final Connection connection;
  private final Map<String, ManagedLedgerImpl> open = new HashMap<>();

  Topics(Connection connection) {
    this.connection = connection;
  }

  /** Opens the ledger and with it every cursor that it has. */
  JsonNode open(Request request) throws Exception {
    String name = request.text("ledger");
    if (open.containsKey(name)) {
      throw new HarnessException(name + " is open already: close_ledger first");
    }
    connection.bookKeeper.forget(name);
    Request config = request.part("config");
    ManagedLedgerImpl ledger =
        (ManagedLedgerImpl) connection.factory(config).open(name, config(config));
    open.put(name, ledger);
    settle(ledger);
    return describe(ledger);
  }

  /** Closes the cursors too, in order, as a broker's unload does. */
  JsonNode close(Request request) throws Exception {
    ManagedLedgerImpl ledger = ledger(request);
    settle(ledger);
    ledger.close();
    open.remove(request.text("ledger"));
    return Json.object();
  }

  /**
   * An answer is given when all that was begun has ended: Pulsar's close, and whoever reads the
   * znode, would meet a switch on its way.
   */
  JsonNode onCursor(Request request, Step step) throws Exception {
    ManagedCursorImpl cursor = cursor(request);
    JsonNode answer = step.run(cursor, request);
    settle(cursor);
    return answer;
  }

  private void settle(ManagedLedgerImpl ledger) throws Exception {
    for (ManagedCursor cursor : ledger.getCursors()) {
      settle((ManagedCursorImpl) cursor);
    }
  }

  /**
   * Waits until the cursor writes nothing and has the last ledger that it asked for. The log says
   * where its state did not show it.
   */
  private void settle(ManagedCursorImpl cursor) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Failures.STEP_MAX_S);
    boolean isSaid = false;
    for (boolean isBusy = CursorAccess.isBusy(cursor);
        isBusy || switches(cursor);
        isBusy = CursorAccess.isBusy(cursor)) {
      if (!isBusy && !isSaid) {
        System.err.println(
            cursor.getName() + " switches its ledger in the state " + cursor.getState());
        isSaid = true;
      }
      if (System.nanoTime() > end) {
        throw new HarnessException(
            cursor.getName() + " does not come to rest: " + Report.internals(cursor));
      }
      Thread.sleep(1);
    }
  }

  private boolean switches(ManagedCursorImpl cursor) {
    return connection.bookKeeper.hasOneOnItsWay(
        cursor.getManagedLedger().getName(), cursor.getName(), cursor.getCursorLedger());
  }

  JsonNode layout(Request request) {
    return describe(ledger(request));
  }

  /** {@code count} entries of {@code bytes} bytes; the answer is the new layout. */
  JsonNode append(Request request) throws Exception {
    ManagedLedgerImpl ledger = ledger(request);
    byte[] payload = new byte[(int) request.number("bytes", 8)];
    long count = request.number("count");
    CompletableFuture<?>[] answers = new CompletableFuture<?>[UNANSWERED_MAX];
    for (int at = 0; at < count; at += UNANSWERED_MAX) {
      int now = (int) Math.min(UNANSWERED_MAX, count - at);
      for (int i = 0; i < now; i++) {
        answers[i] = add(ledger, payload);
      }
      for (int i = 0; i < now; i++) {
        Failures.await(answers[i]);
      }
    }
    return describe(ledger);
  }

  JsonNode openCursor(Request request) throws Exception {
    InitialPosition from = InitialPosition.valueOf(request.text("start", "Earliest"));
    ManagedCursorImpl cursor =
        (ManagedCursorImpl)
            ledger(request)
                .openCursor(
                    request.text("cursor"),
                    from,
                    request.numbers("properties"),
                    request.texts("cursorProperties"));
    settle(cursor);
    return Report.internals(cursor);
  }

  JsonNode closeCursor(Request request) throws Exception {
    ManagedCursorImpl cursor = cursor(request);
    settle(cursor);
    cursor.close();
    return Json.object();
  }

  ManagedCursorImpl cursor(Request request) {
    String name = request.text("cursor");
    for (ManagedCursor cursor : ledger(request).getCursors()) {
      if (cursor.getName().equals(name)) {
        return (ManagedCursorImpl) cursor;
      }
    }
    throw new HarnessException("no cursor " + name + " is open in " + request.text("ledger"));
  }

  private ManagedLedgerImpl ledger(Request request) {
    ManagedLedgerImpl ledger = open.get(request.text("ledger"));
    if (ledger == null) {
      throw new HarnessException(request.text("ledger") + " is not open: open_ledger first");
    }
    return ledger;
  }

  private static CompletableFuture<Position> add(ManagedLedgerImpl ledger, byte[] payload) {
    CompletableFuture<Position> added = new CompletableFuture<>();
    ledger.asyncAddEntry(
        payload,
        new AddEntryCallback() {
          @Override
          public void addComplete(Position position, ByteBuf entry, Object context) {
            added.complete(position);
          }

          @Override
          public void addFailed(ManagedLedgerException e, Object context) {
            added.completeExceptionally(e);
          }
        },
        null);
    return added;
  }

  static ObjectNode describe(ManagedLedgerImpl ledger) {
    ArrayNode ledgers = Json.array();
    for (LedgerInfo info : ledger.getLedgersInfo().values()) {
      ledgers.add(Json.array().add(info.getLedgerId()).add(entries(ledger, info)));
    }
    ObjectNode all = Json.object();
    all.set("ledgers", ledgers);
    all.set("lastConfirmed", Json.position(ledger.getLastConfirmedEntry()));
    return all;
  }

  /** The open ledger's count is in memory only. */
  static long entries(ManagedLedgerImpl ledger, LedgerInfo info) {
    boolean current =
        ledger.getCurrentLedger() != null
            && ledger.getCurrentLedger().getId() == info.getLedgerId();
    return current ? ledger.getCurrentLedgerEntries() : info.getEntries();
  }

  /**
   * Pulsar's library defaults, except where a test would lose ledgers (retention) or wait (throttle
   * of roll-over).
   */
  private static ManagedLedgerConfig config(Request config) {
    ManagedLedgerConfig settings = new ManagedLedgerConfig();
    settings.setEnsembleSize((int) config.number("ensemble", 1));
    settings.setWriteQuorumSize((int) config.number("ensemble", 1));
    settings.setAckQuorumSize((int) config.number("ensemble", 1));
    settings.setMetadataEnsembleSize((int) config.number("ensemble", 1));
    settings.setMetadataWriteQuorumSize((int) config.number("ensemble", 1));
    settings.setMetadataAckQuorumSize((int) config.number("ensemble", 1));
    settings.setPersistIndividualAckAsLongArray(config.flag("longArray", true));
    settings.setUnackedRangesOpenCacheSetEnabled(config.flag("openCacheSet", true));
    settings.setDeletionAtBatchIndexLevelEnabled(config.flag("batchIndex", true));
    settings.setMaxUnackedRangesToPersist((int) config.number("maxRanges", 10_000));
    settings.setMaxBatchDeletedIndexToPersist((int) config.number("maxBatches", 10_000));
    settings.setMaxUnackedRangesToPersistInMetadataStore(
        (int) config.number("maxRangesInMetadataStore", 1_000));
    settings.setMaxEntriesPerLedger((int) config.number("entriesPerLedger", 50_000));
    settings.setMinimumRolloverTime(0, TimeUnit.MILLISECONDS);
    settings.setMetadataMaxEntriesPerLedger((int) config.number("cursorEntriesPerLedger", 50_000));
    settings.setThrottleMarkDelete(config.fraction("markDeletesPerSecond", 0));
    settings.setLedgerForceRecovery(config.flag("forceRecovery", false));
    settings.setRetentionTime(-1, TimeUnit.SECONDS);
    settings.setRetentionSizeInMB(-1);
    return settings;
  }
}
