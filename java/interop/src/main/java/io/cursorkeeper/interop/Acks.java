package io.cursorkeeper.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.bookkeeper.mledger.AsyncCallbacks.DeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;
import org.apache.bookkeeper.mledger.PositionFactory;
import org.apache.bookkeeper.mledger.impl.AckSetStateUtil;
import org.apache.bookkeeper.mledger.impl.CursorAccess;
import org.apache.bookkeeper.mledger.impl.ManagedCursorImpl;

/** Acknowledging, as the broker does it. Each answer comes after Pulsar's own callback. */
final class Acks {
  private Acks() {}

  /**
   * One {@code asyncDelete} for all of: {@code positions} [[ledger, entry]...], {@code batches}
   * [[ledger, entry, [words of the remaining set]]...], {@code runs} [[ledger, runs]...] (see
   * {@link Runs}). In this order.
   */
  static JsonNode delete(ManagedCursorImpl cursor, Request request) throws Exception {
    List<Position> first = new ArrayList<>();
    for (JsonNode at : request.body().path("positions")) {
      first.add(PositionFactory.create(at.get(0).asLong(), at.get(1).asLong()));
    }
    for (JsonNode at : request.body().path("batches")) {
      first.add(
          AckSetStateUtil.createPositionWithAckSet(
              at.get(0).asLong(), at.get(1).asLong(), words(at.get(2))));
    }
    Stream<Position> runs =
        StreamSupport.stream(request.body().path("runs").spliterator(), false)
            .flatMap(at -> entries(at.get(0).asLong(), Runs.decode(at.get(1).asText())));
    delete(cursor, () -> Stream.concat(first.stream(), runs).iterator());
    return Json.object();
  }

  /** {@code position} [ledger, entry] and {@code properties}. */
  static JsonNode markDelete(ManagedCursorImpl cursor, Request request) throws Exception {
    JsonNode at = request.required("position");
    CompletableFuture<Void> done = new CompletableFuture<>();
    cursor.asyncMarkDelete(
        PositionFactory.create(at.get(0).asLong(), at.get(1).asLong()),
        request.numbers("properties"),
        new MarkDeleteCallback() {
          @Override
          public void markDeleteComplete(Object context) {
            done.complete(null);
          }

          @Override
          public void markDeleteFailed(ManagedLedgerException e, Object context) {
            done.completeExceptionally(e);
          }
        },
        null);
    Failures.await(done);
    return Json.object();
  }

  static JsonNode setCursorProperties(ManagedCursorImpl cursor, Request request) throws Exception {
    Failures.await(cursor.setCursorProperties(request.texts("cursorProperties")));
    return Json.object();
  }

  /** {@code markDeletesPerSecond}, 0 = no limit. */
  static JsonNode throttle(ManagedCursorImpl cursor, Request request) {
    cursor.setThrottleMarkDelete(request.fraction("markDeletesPerSecond", 0));
    return Json.object();
  }

  /**
   * What Pulsar's timer does; the throttle holds for it too. Answers when it was started: see what
   * became of it in the internals.
   */
  static JsonNode flush(ManagedCursorImpl cursor) {
    CursorAccess.flush(cursor);
    return Report.internals(cursor);
  }

  /**
   * Begins a switch to a new ledger that the cursor's state does not show. Answers when it was
   * started.
   */
  static JsonNode switchLedger(ManagedCursorImpl cursor) {
    CursorAccess.switchLedger(cursor);
    return Json.object();
  }

  private static void delete(ManagedCursorImpl cursor, Iterable<Position> positions)
      throws Exception {
    CompletableFuture<Void> done = new CompletableFuture<>();
    cursor.asyncDelete(
        positions,
        new DeleteCallback() {
          @Override
          public void deleteComplete(Object context) {
            done.complete(null);
          }

          @Override
          public void deleteFailed(ManagedLedgerException e, Object context) {
            done.completeExceptionally(e);
          }
        },
        null);
    Failures.await(done);
  }

  private static Stream<Position> entries(long ledger, int[] runs) {
    return IntStream.range(0, runs.length / 2)
        .boxed()
        .flatMap(
            i ->
                IntStream.rangeClosed(runs[2 * i], runs[2 * i + 1])
                    .mapToObj(e -> PositionFactory.create(ledger, e)));
  }

  private static long[] words(JsonNode words) {
    long[] all = new long[words.size()];
    Iterator<JsonNode> each = ((ArrayNode) words).elements();
    for (int i = 0; i < all.length; i++) {
      all[i] = each.next().asLong();
    }
    return all;
  }
}
