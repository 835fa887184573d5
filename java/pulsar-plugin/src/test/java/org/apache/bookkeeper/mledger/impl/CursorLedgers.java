package org.apache.bookkeeper.mledger.impl;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.bookkeeper.client.AsyncCallback.CreateCallback;
import org.apache.bookkeeper.client.AsyncCallback.DeleteCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * A BookKeeper client that knows which ledgers Pulsar's own cursors wait for. A cursor that makes a
 * ledger first writes the acks that waited, and says "Open" afterwards; if the write is answered in
 * between, it makes a second one behind the state "Open". An ack that is answered meanwhile is in
 * the first one only, and a crash loses it. Pulsar makes ledgers with {@code asyncCreateLedger},
 * from 5.0 on with {@code newCreateLedgerOp}. Serves the tests that compare with Pulsar's own
 * cursors.
 */
final class CursorLedgers extends BookKeeper {

  /** What a cursor without a ledger says. */
  private static final long NONE = -1;

  /** No cursor has a ledger of this id. */
  private static final long ASKED_FOR = Long.MIN_VALUE;

  /** By cursor: the ledger that it asked for last. */
  private final Map<String, Long> newest = new ConcurrentHashMap<>();

  CursorLedgers(ClientConfiguration settings)
      throws IOException, InterruptedException, BKException {
    super(settings);
  }

  /**
   * Completes when the cursor has the last ledger that it asked for; at once if it waits for none.
   */
  static CompletableFuture<Void> atRest(ManagedCursorImpl cursor) {
    CursorLedgers all = (CursorLedgers) cursor.ledger.bookKeeper;
    if (all.has(cursor)) {
      return CompletableFuture.completedFuture(null);
    }
    return CompletableFuture.runAsync(
        () -> {
          try {
            Copies.until(() -> all.has(cursor), cursor.getName() + " waits for its ledger");
          } catch (Exception e) {
            throw new CompletionException(e);
          }
        });
  }

  private boolean has(ManagedCursorImpl cursor) {
    Long asked = newest.get(cursor.ledger.getName() + "|" + cursor.getName());
    long has = cursor.getCursorLedger();
    return asked == null
        || asked == has
        || (asked != ASKED_FOR && has == NONE); // one that was loaded or made anew
  }

  @Override
  public void asyncCreateLedger(
      int ensemble,
      int writeQuorum,
      int ackQuorum,
      DigestType digest,
      byte[] password,
      CreateCallback callback,
      Object context,
      Map<String, byte[]> metadata) {
    String cursor = asks(metadata);
    super.asyncCreateLedger(
        ensemble,
        writeQuorum,
        ackQuorum,
        digest,
        password,
        (rc, handle, same) -> {
          gets(cursor, rc == BKException.Code.OK ? handle.getId() : ASKED_FOR);
          callback.createComplete(rc, handle, same);
        },
        context,
        metadata);
  }

  /**
   * The builder as it is, but for its metadata, which are remembered, and its end, which is noted
   * before Pulsar hears of it.
   */
  @Override
  @SuppressWarnings("unchecked")
  public CreateBuilder newCreateLedgerOp() {
    CreateBuilder builder = super.newCreateLedgerOp();
    Map<String, byte[]> metadata = new HashMap<>();
    return (CreateBuilder)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {CreateBuilder.class},
            (proxy, method, arguments) -> {
              if (method.getName().equals("execute")) {
                String cursor = asks(metadata);
                return builder
                    .execute()
                    .whenComplete(
                        (handle, failure) ->
                            gets(cursor, failure == null ? handle.getId() : ASKED_FOR));
              }
              if (method.getName().equals("withCustomMetadata")) {
                metadata.putAll((Map<String, byte[]>) arguments[0]);
              }
              try {
                Object answer = method.invoke(builder, arguments);
                return answer == builder ? proxy : answer;
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  @Override
  public void asyncDeleteLedger(long id, DeleteCallback callback, Object context) {
    newest.values().remove(id);
    super.asyncDeleteLedger(id, callback, context);
  }

  /** Null: it is no cursor that asks. */
  private String asks(Map<String, byte[]> metadata) {
    if (metadata == null || !metadata.containsKey("pulsar/cursor")) {
      return null;
    }
    String cursor = text(metadata, "pulsar/managed-ledger") + "|" + text(metadata, "pulsar/cursor");
    newest.put(cursor, ASKED_FOR);
    return cursor;
  }

  private void gets(String cursor, long id) {
    if (cursor != null && id == ASKED_FOR) {
      newest.remove(cursor);
    } else if (cursor != null) {
      newest.put(cursor, id);
    }
  }

  private static String text(Map<String, byte[]> metadata, String key) {
    return new String(metadata.get(key), StandardCharsets.UTF_8);
  }
}
