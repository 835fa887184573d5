package io.cursorkeeper.gateway.append;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.cursorkeeper.gateway.access.Role;
import io.cursorkeeper.gateway.access.Whose;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.netty.buffer.ByteBuf;
import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.junit.jupiter.api.Test;

/** The story of a handle, told by a client library that answers when the test says so. */
class OpenLedgerTest {
  private static final int ENTRY_BYTES_MAX = 10;

  private static final Whose OURS = Whose.of(Map.of());

  private record Add(CompletableFuture<Long> answer, ByteBuf entry) {}

  private final Deque<Add> adds = new ArrayDeque<>();
  private final Window window = new Window(1_000, 1_000);
  private final List<String> heard = new ArrayList<>();
  private long nextId;
  private boolean handleClosed;

  private final OpenLedger ledger =
      new OpenLedger(
          handle(), Role.WRITER, OURS, window, (bytes, nanos, thrown) -> {}, ENTRY_BYTES_MAX);
  private final OpenLedger.Listener listener = listener(heard);

  private WriteHandle handle() {
    return (WriteHandle)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {WriteHandle.class},
            (proxy, method, args) ->
                switch (method.getName()) {
                  case "getId" -> 7L;
                  case "appendAsync" -> {
                    adds.add(new Add(new CompletableFuture<>(), (ByteBuf) args[0]));
                    yield adds.getLast().answer();
                  }
                  case "closeAsync" -> {
                    handleClosed = true;
                    yield CompletableFuture.completedFuture(null);
                  }
                  default -> throw new UnsupportedOperationException(method.getName());
                });
  }

  private static OpenLedger.Listener listener(List<String> heard) {
    return new OpenLedger.Listener() {
      @Override
      public void acknowledged(long ledgerId, long lastEntryId) {
        heard.add("ack " + lastEntryId);
      }

      @Override
      public void failed(long ledgerId, long firstEntryId, LedgerFailure failure) {
        heard.add(
            failure.failure().getReason()
                + " "
                + firstEntryId
                + " "
                + failure.failure().getReaction()
                + " "
                + failure.failure().getOutcome());
      }

      @Override
      public void ended(OpenLedger ledger) {
        heard.add("ended");
      }
    };
  }

  private void append(long first, int... sizes) {
    ledger.bind(listener);
    List<ByteString> payloads = new ArrayList<>();
    for (int size : sizes) {
      payloads.add(ByteString.copyFrom(new byte[size]));
    }
    ledger.append(listener, first, payloads);
  }

  private void acknowledge() {
    Add add = adds.remove();
    add.answer().complete(nextId++);
    add.entry().release();
  }

  private void fail(int code) {
    Add add = adds.remove();
    add.answer().completeExceptionally(new BKException(code));
    add.entry().release();
  }

  @Test
  void entriesAreAcknowledgedInOrderAndCounted() {
    append(0, 1, 2);
    append(2, 3);
    assertEquals(6, window.bytes());
    acknowledge();
    acknowledge();
    acknowledge();
    assertEquals(List.of("ack 0", "ack 1", "ack 2"), heard);
    assertEquals(0, window.bytes());
    assertEquals(0, window.entries());
  }

  @Test
  void aRepeatIsRefusedAfterTheAnswersOfWhatIsInFlight() {
    append(0, 1, 1);
    append(0, 1, 1);
    assertEquals(2, adds.size());
    assertEquals(List.of(), heard);
    acknowledge();
    acknowledge();
    assertEquals(List.of("ack 0", "ack 1", "UNEXPECTED_ENTRY_ID 0 REFUSED NOT_DONE"), heard);
    append(2, 1);
    acknowledge();
    assertEquals("ack 2", heard.get(3));
  }

  @Test
  void aLargeEntryEndsItsBatchAndHarmsNothing() {
    append(0, 1, ENTRY_BYTES_MAX + 1, 1);
    assertEquals(1, adds.size());
    acknowledge();
    assertEquals(List.of("ack 0", "ENTRY_TOO_LARGE 1 REFUSED NOT_DONE"), heard);
    append(1, ENTRY_BYTES_MAX);
    acknowledge();
    assertEquals("ack 1", heard.get(2));
  }

  @Test
  void theFirstFailureEndsTheHandle() {
    append(0, 1, 1, 1);
    acknowledge();
    fail(BKException.Code.AddEntryQuorumTimeoutException);
    fail(BKException.Code.LedgerClosedException);
    append(3, 1);
    assertEquals(
        List.of("ack 0", "WRITE_TIMEOUT 1 ROLL UNKNOWN", "WRITE_TIMEOUT 3 ROLL NOT_DONE"), heard);
    assertEquals(0, adds.size());
    assertEquals(0, window.entries());
    assertTrue(ledger.close().isCompletedExceptionally());
  }

  @Test
  void whatTheClientHoldsIsCountedHoweverItWasAnswered() {
    append(0, 3, 4);
    ByteBuf acknowledged = adds.getFirst().entry().retainedDuplicate();
    ByteBuf failed = adds.getLast().entry().retainedDuplicate();
    acknowledge();
    fail(BKException.Code.TimeoutException);
    assertEquals(2, heard.size());
    assertEquals(List.of(7L, 2L), List.of(window.bytes(), window.entries()));
    acknowledged.release();
    assertEquals(List.of(4L, 1L), List.of(window.bytes(), window.entries()));
    failed.release();
    assertEquals(List.of(0L, 0L), List.of(window.bytes(), window.entries()));
  }

  @Test
  void afterAFenceItSaysFenced() {
    append(0, 1);
    fail(BKException.Code.LedgerFencedException);
    append(1, 1);
    assertEquals(List.of("FENCED 0 FENCED UNKNOWN", "FENCED 1 FENCED NOT_DONE"), heard);
  }

  @Test
  void onlyTheFirstStreamMayAppend() {
    List<String> other = new ArrayList<>();
    append(0, 1);
    assertFalse(ledger.bind(listener(other)));
    ledger.append(listener(other), 1, Collections.singleton(ByteString.EMPTY));
    assertEquals(List.of("NO_HANDLE 1 ROLL NOT_DONE"), other);
    assertEquals(1, adds.size());
  }

  @Test
  void aCloseDrainsFirst() {
    append(0, 1);
    CompletableFuture<Void> closed = ledger.close();
    append(1, 1);
    assertFalse(handleClosed);
    acknowledge();
    assertTrue(handleClosed);
    assertTrue(closed.isDone());
    assertEquals(List.of("ack 0", "CLOSING 1 ROLL NOT_DONE", "ended"), heard);
  }

  @Test
  void aReleasedHandleIsSilentAndWaitsForWhatIsInFlight() {
    append(0, 1);
    ledger.release();
    assertFalse(handleClosed);
    acknowledge();
    assertTrue(handleClosed);
    assertEquals(List.of("ended"), heard);
    assertFalse(ledger.bind(listener));
  }
}
