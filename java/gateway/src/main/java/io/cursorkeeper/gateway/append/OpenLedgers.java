package io.cursorkeeper.gateway.append;

import io.cursorkeeper.gateway.access.Role;
import io.cursorkeeper.gateway.access.Whose;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.bookkeeper.client.api.WriteHandle;

/**
 * The write handles of this process. They exist nowhere else: with the process they are gone, and a
 * ledger that is not here can only be recovered, never continued.
 */
public final class OpenLedgers {
  private final ConcurrentMap<Long, OpenLedger> ledgers = new ConcurrentHashMap<>();
  private final Window window;
  private final AppendMeter meter;
  private final int handlesMax;
  private final int entryBytesMax;

  public OpenLedgers(Window window, AppendMeter meter, int handlesMax, int entryBytesMax) {
    this.window = window;
    this.meter = meter;
    this.handlesMax = handlesMax;
    this.entryBytesMax = entryBytesMax;
  }

  /** What is answered to whoever may not use a handle, or where there is none. */
  public static LedgerFailure noHandle(long ledgerId) {
    return LedgerFailure.roll(
        "NO_HANDLE",
        "ledger "
            + ledgerId
            + " is not open for this stream in this gateway: it was created elsewhere, belongs to"
            + " another stream, or its stream ended. Fence it, continue in a new one.");
  }

  /** Throws if no further handle may be opened. */
  public void requireRoom() {
    if (ledgers.size() >= handlesMax) {
      throw LedgerFailure.later(
          "TOO_MANY_HANDLES",
          "this gateway holds "
              + ledgers.size()
              + " open ledgers, the limit is "
              + handlesMax
              + "; close some");
    }
  }

  /** A new one, created by a caller of this role; whose it is, its metadata says. */
  public void add(WriteHandle handle, Role creator, Whose whose) {
    ledgers.put(
        handle.getId(), new OpenLedger(handle, creator, whose, window, meter, entryBytesMax));
  }

  /** The ledger or null. */
  public OpenLedger get(long ledgerId) {
    return ledgers.get(ledgerId);
  }

  /** The ledger, if a stream or a caller of this process may still end it here. */
  public CompletableFuture<OpenLedger> held(long ledgerId) {
    OpenLedger ledger = ledgers.get(ledgerId);
    return ledger == null
        ? CompletableFuture.failedFuture(noHandle(ledgerId))
        : CompletableFuture.completedFuture(ledger);
  }

  /**
   * Drains and closes. The handle stays here until then, so that its stream hears CLOSING; after a
   * failed close it is gone too, and only a recovery helps.
   */
  public CompletableFuture<Void> close(long ledgerId) {
    OpenLedger ledger = ledgers.get(ledgerId);
    if (ledger == null) {
      throw noHandle(ledgerId);
    }
    return ledger.close().whenComplete((closed, failure) -> ledgers.remove(ledgerId, ledger));
  }

  /** Lets go of the handle if there is one. */
  public void release(long ledgerId) {
    OpenLedger ledger = ledgers.remove(ledgerId);
    if (ledger != null) {
      ledger.release();
    }
  }

  /** Lets go of handles whose creator never appended, or that failed this long ago. */
  public void releaseUseless(long millis) {
    ledgers
        .values()
        .forEach(
            ledger -> {
              if (ledger.uselessFor(millis)) {
                release(ledger.id());
              }
            });
  }

  public int size() {
    return ledgers.size();
  }
}
