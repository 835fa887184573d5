package org.apache.bookkeeper.mledger.impl;

import com.google.common.collect.Range;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.function.Consumer;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.AsyncCallbacks.MarkDeleteCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ResetCursorCallback;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.Position;

/**
 * Serves the kept cursor: the hooks of Pulsar's cursor that differ between lines of Pulsar, here
 * for 4.0. There the lock is private, and a reset is a mark-delete whose callback changes the
 * memory and tells the caller in one call.
 */
abstract class LineCursor extends ManagedCursorImpl {

  private static final VarHandle LOCK = lockOfCursors();

  /**
   * A reset under way: keeps what Pulsar tells its caller until the keeper has it, too. Only on the
   * executor, but for its making.
   */
  private final class Reset implements ResetCursorCallback {
    private final ResetCursorCallback caller;

    /** Pulsar sets it to the reset's before anything is durable. */
    private final MarkDeleteEntry before = lastMarkDeleteEntry;

    private boolean inMemory;
    private Object target;

    Reset(ResetCursorCallback caller) {
      this.caller = caller;
    }

    @Override
    public void resetComplete(Object ctx) {
      inMemory = true;
      target = ctx;
    }

    @Override
    public void resetFailed(ManagedLedgerException exception, Object ctx) {
      ledger.getExecutor().execute(() -> caller.resetFailed(exception, ctx));
    }

    void tell(ManagedLedgerException failure, MarkDeleteCallback callback, Object ctx) {
      if (!inMemory) {
        KeptManagedCursor.tellMarkDelete(callback, ctx, failure);
      } else if (failure == null) {
        caller.resetComplete(target);
      } else {
        caller.resetFailed(failure, target);
      }
    }
  }

  private final Lock writeLock;

  /** Set while Pulsar begins a reset. Guarded by the write lock. */
  private Reset beginning;

  LineCursor(BookKeeper bookKeeper, ManagedLedgerImpl ledger, String name) {
    super(bookKeeper, ledger, name);
    writeLock = ((ReadWriteLock) LOCK.get(this)).writeLock();
  }

  private static VarHandle lockOfCursors() {
    try {
      return MethodHandles.privateLookupIn(ManagedCursorImpl.class, MethodHandles.lookup())
          .findVarHandle(ManagedCursorImpl.class, "lock", ReadWriteLock.class);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** What guards the memory of acks. */
  final Lock writeLock() {
    return writeLock;
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
  protected final void internalResetCursor(Position position, ResetCursorCallback callback) {
    writeLock.lock();
    try {
      beginning = new Reset(callback);
      super.internalResetCursor(position, beginning);
    } finally {
      beginning = null;
      writeLock.unlock();
    }
  }

  @Override
  protected final void internalAsyncMarkDelete(
      Position position, Map<String, Long> properties, MarkDeleteCallback callback, Object ctx) {
    Reset begun = beginning;
    if (begun == null) {
      changed(position, properties, callback, ctx);
      return;
    }
    lastMarkDeleteEntry = begun.before;
    reset(
        position,
        () -> counted(() -> callback.markDeleteComplete(ctx)),
        failure -> begun.tell(failure, callback, ctx));
  }

  /**
   * Pulsar counts wrongly what is consumed when a reset passes entries that are acked one by one,
   * and its backlog stays wrong with it.
   */
  private void counted(Runnable memory) {
    Position last = ledger.getLastPosition();
    long was = messagesConsumedCounter + leftUpTo(last);
    memory.run();
    messagesConsumedCounter = was - leftUpTo(last);
  }

  private long leftUpTo(Position last) {
    return markDeletePosition.compareTo(last) < 0
        ? getNumberOfEntries(Range.openClosed(markDeletePosition, last))
        : 0;
  }

  /** Pulsar removes it within the map, which the keeper was told of. */
  @Override
  public boolean removeProperty(String key) {
    MarkDeleteEntry now =
        LAST_MARK_DELETE_ENTRY_UPDATER.updateAndGet(
            this,
            last -> {
              if (last == null || last.properties == null || !last.properties.containsKey(key)) {
                return last;
              }
              Map<String, Long> rest = new HashMap<>(last.properties);
              rest.remove(key);
              return new MarkDeleteEntry(last.newPosition, rest, null, null);
            });
    return now != null;
  }
}
