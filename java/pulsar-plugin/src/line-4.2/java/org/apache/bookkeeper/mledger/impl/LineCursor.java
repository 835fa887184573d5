package org.apache.bookkeeper.mledger.impl;

import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.function.Consumer;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;

/**
 * Serves the kept cursor: the hooks of Pulsar's cursor that differ between lines of Pulsar, here
 * for 4.2 and later.
 */
abstract class LineCursor extends ManagedCursorImpl {

  LineCursor(BookKeeper bookKeeper, ManagedLedgerImpl ledger, String name) {
    super(bookKeeper, ledger, name);
  }

  /** What guards the memory of acks. */
  final Lock writeLock() {
    return lock.writeLock();
  }

  /** Pulsar would persist a change of the memory here. Under the write lock. */
  abstract void changed(
      Position markDelete, Map<String, Long> properties, MarkDeleteCallback callback, Object ctx);

  /**
   * Pulsar would persist a reset here, whose memory has not changed yet.
   *
   * @param memory changes it; to be run under the write lock
   * @param answer tells the caller; null = it is done
   */
  abstract void reset(Position target, Runnable memory, Consumer<ManagedLedgerException> answer);

  @Override
  protected final void internalAsyncMarkDelete(
      Position position,
      Map<String, Long> properties,
      MarkDeleteCallback callback,
      Object ctx,
      Runnable reset) {
    if (reset == null) {
      changed(position, properties, callback, ctx);
    } else {
      reset(position, reset, failure -> KeptManagedCursor.tellMarkDelete(callback, ctx, failure));
    }
  }
}
