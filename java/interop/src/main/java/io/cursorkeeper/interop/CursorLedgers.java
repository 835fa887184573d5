package io.cursorkeeper.interop;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.client.AsyncCallback.CreateCallback;
import org.apache.bookkeeper.client.AsyncCallback.DeleteCallback;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.api.CreateBuilder;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/**
 * A BookKeeper client that knows which cursor ledgers are on their way: asked for, and neither
 * their cursor's ledger yet nor deleted. Pulsar's own state does not say it. A cursor that switches
 * to a new ledger first writes the acks that waited, and says "Open" afterwards; if the write is
 * answered in between, it begins a second switch, which goes on behind the state "Open". 4.2.4
 * creates with {@code asyncCreateLedger}, 5.0 with {@code newCreateLedgerOp}.
 */
final class CursorLedgers extends BookKeeper {
  /** No ledger has this id, and no cursor says it: one without a ledger says -1. */
  private static final long CREATING = Long.MIN_VALUE;

  private final List<OnItsWay> onTheirWay = new ArrayList<>();

  CursorLedgers(ClientConfiguration settings)
      throws IOException, InterruptedException, BKException {
    super(settings);
  }

  /** Whether a ledger of this cursor was asked for, and is neither {@code current} nor deleted. */
  boolean hasOneOnItsWay(String managedLedger, String cursor, long current) {
    synchronized (onTheirWay) {
      return onTheirWay.stream()
          .anyMatch(one -> one.isOf(managedLedger, cursor) && one.id != current);
    }
  }

  /** What an earlier opening of the topic left. */
  void forget(String managedLedger) {
    synchronized (onTheirWay) {
      onTheirWay.removeIf(one -> one.managedLedger.equals(managedLedger));
    }
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
    OnItsWay one = begin(metadata);
    super.asyncCreateLedger(
        ensemble,
        writeQuorum,
        ackQuorum,
        digest,
        password,
        (rc, handle, same) -> {
          created(one, rc == BKException.Code.OK ? handle.getId() : CREATING);
          callback.createComplete(rc, handle, same);
        },
        context,
        metadata);
  }

  @Override
  public CreateBuilder newCreateLedgerOp() {
    return watched(super.newCreateLedgerOp());
  }

  @Override
  public void asyncDeleteLedger(long id, DeleteCallback callback, Object context) {
    synchronized (onTheirWay) {
      onTheirWay.removeIf(one -> one.id == id);
    }
    super.asyncDeleteLedger(id, callback, context);
  }

  private OnItsWay begin(Map<String, byte[]> metadata) {
    if (metadata == null || !metadata.containsKey("pulsar/cursor")) {
      return null;
    }
    OnItsWay one =
        new OnItsWay(text(metadata, "pulsar/managed-ledger"), text(metadata, "pulsar/cursor"));
    synchronized (onTheirWay) {
      onTheirWay.add(one);
    }
    return one;
  }

  private void created(OnItsWay one, long id) {
    synchronized (onTheirWay) {
      if (one != null && id == CREATING) {
        onTheirWay.remove(one);
      } else if (one != null) {
        one.id = id;
      }
    }
  }

  /**
   * The builder as it is, but for its metadata, which are remembered, and its end, which is noted
   * before Pulsar hears of it.
   */
  private CreateBuilder watched(CreateBuilder builder) {
    List<Map<String, byte[]>> metadata = new ArrayList<>();
    CreateBuilder[] self = new CreateBuilder[1];
    self[0] =
        (CreateBuilder)
            Proxy.newProxyInstance(
                getClass().getClassLoader(),
                new Class<?>[] {CreateBuilder.class},
                (proxy, method, arguments) -> {
                  if (method.getName().equals("execute")) {
                    OnItsWay one =
                        begin(metadata.isEmpty() ? null : metadata.get(metadata.size() - 1));
                    CompletableFuture<WriteHandle> done = builder.execute();
                    return done.whenComplete(
                        (handle, failure) ->
                            created(one, failure == null ? handle.getId() : CREATING));
                  }
                  if (method.getName().equals("withCustomMetadata")) {
                    @SuppressWarnings("unchecked")
                    Map<String, byte[]> given = (Map<String, byte[]>) arguments[0];
                    metadata.add(given);
                  }
                  try {
                    Object answer = method.invoke(builder, arguments);
                    return answer == builder ? self[0] : answer;
                  } catch (InvocationTargetException e) {
                    throw e.getCause();
                  }
                });
    return self[0];
  }

  private static String text(Map<String, byte[]> metadata, String key) {
    return new String(metadata.get(key), StandardCharsets.UTF_8);
  }

  private static final class OnItsWay {
    final String managedLedger;
    final String cursor;
    long id = CREATING;

    OnItsWay(String managedLedger, String cursor) {
      this.managedLedger = managedLedger;
      this.cursor = cursor;
    }

    boolean isOf(String ledger, String name) {
      return managedLedger.equals(ledger) && cursor.equals(name);
    }
  }
}
