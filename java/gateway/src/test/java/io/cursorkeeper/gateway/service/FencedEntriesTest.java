package io.cursorkeeper.gateway.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.junit.jupiter.api.Test;

class FencedEntriesTest {
  private static final byte[] FIRST = {1, 2, 3};
  private static final byte[] SECOND = {4};
  private static final long LENGTH = FIRST.length + SECOND.length;

  private final CompletableFuture<LedgerEntries> read = new CompletableFuture<>();
  private final List<Long> reserved = new ArrayList<>();
  private boolean isClosed;
  private int reads;

  private ReadHandle ledger(long last, long length) {
    return (ReadHandle)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {ReadHandle.class},
            (self, method, arguments) ->
                switch (method.getName()) {
                  case "getLastAddConfirmed" -> last;
                  case "getLength" -> length;
                  case "readAsync" -> {
                    reads++;
                    yield read;
                  }
                  default -> throw new AssertionError(method);
                });
  }

  private static LedgerEntry entry(byte[] bytes) {
    return (LedgerEntry)
        Proxy.newProxyInstance(
            FencedEntriesTest.class.getClassLoader(),
            new Class<?>[] {LedgerEntry.class},
            (self, method, arguments) -> {
              assertEquals("getEntryBytes", method.getName());
              return bytes;
            });
  }

  private LedgerEntries entries(byte[]... all) {
    List<LedgerEntry> found = new ArrayList<>();
    for (byte[] one : all) {
      found.add(entry(one));
    }
    return (LedgerEntries)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {LedgerEntries.class},
            (self, method, arguments) ->
                switch (method.getName()) {
                  case "iterator" -> found.iterator();
                  case "close" -> {
                    isClosed = true;
                    yield null;
                  }
                  default -> throw new AssertionError(method);
                });
  }

  private CompletableFuture<List<ByteString>> asked(long last, long length, long wanted) {
    return FencedEntries.of(ledger(last, length), wanted, bytes -> reserved.add(bytes));
  }

  private static List<ByteString> of(CompletableFuture<List<ByteString>> answer) throws Exception {
    return answer.get(60, TimeUnit.SECONDS);
  }

  @Test
  void allEntriesOfASmallLedger() throws Exception {
    read.complete(entries(FIRST, SECOND));
    assertEquals(
        List.of(ByteString.copyFrom(FIRST), ByteString.copyFrom(SECOND)),
        of(asked(1, LENGTH, LENGTH)));
    assertTrue(isClosed);
    assertEquals(List.of(LENGTH), reserved);
  }

  @Test
  void nothingIsReadOfOneThatIsEmptyOrLargeOrNotAskedFor() throws Exception {
    assertEquals(List.of(), of(asked(-1, 0, 1_000)));
    assertEquals(List.of(), of(asked(1, LENGTH, 0)));
    assertEquals(List.of(), of(asked(1, 0, 0)));
    assertEquals(List.of(), of(asked(1, LENGTH, LENGTH - 1)));
    assertEquals(List.of(), of(asked(1, FencedEntries.BYTES_MAX + 1, Long.MAX_VALUE)));
    assertEquals(List.of(), of(asked(FencedEntries.ENTRIES_MAX, LENGTH, 1_000)));
    assertEquals(0, reads);
    assertTrue(reserved.isEmpty());
  }

  @Test
  void nothingIsReadWithoutRoomForTheAnswer() throws Exception {
    assertEquals(List.of(), of(FencedEntries.of(ledger(1, LENGTH), 1_000, bytes -> false)));
    assertEquals(0, reads);
  }

  @Test
  void whatComesLateIsNotWaitedForAndItsBuffersAreGivenBack() throws Exception {
    CompletableFuture<List<ByteString>> answer = asked(1, LENGTH, 1_000);
    assertEquals(List.of(), of(answer));
    assertFalse(isClosed);
    read.complete(entries(FIRST, SECOND));
    assertTrue(isClosed);
  }

  @Test
  void aReadThatFailsIsNoFailureOfTheFence() throws Exception {
    read.completeExceptionally(new IllegalStateException("no copy matches its digest"));
    assertEquals(List.of(), of(asked(1, LENGTH, 1_000)));
  }

  @Test
  void moreThanTheLedgerSaysIsNotGiven() throws Exception {
    read.complete(entries(FIRST, SECOND));
    assertEquals(List.of(), of(asked(1, LENGTH - 1, 1_000)));
    assertTrue(isClosed);
  }
}
