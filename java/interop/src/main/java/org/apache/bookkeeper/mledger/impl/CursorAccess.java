package org.apache.bookkeeper.mledger.impl;

import java.lang.reflect.Field;

/** What the harness needs and Pulsar keeps to itself. Nothing is changed by being here. */
public final class CursorAccess {
  private CursorAccess() {}

  /**
   * What Pulsar's timer does every {@code cursorPositionFlushSeconds}: persist if dirty. Answers
   * before it is done.
   */
  public static void flush(ManagedCursorImpl cursor) {
    cursor.flush();
  }

  /**
   * Begins to switch to a new ledger whatever the state is, as Pulsar does if a write is answered
   * too early. Answers before it is done.
   */
  public static void switchLedger(ManagedCursorImpl cursor) {
    cursor.createNewMetadataLedger();
  }

  /**
   * Whether a mark-delete waits or is being written, or the state says that the ledger is being
   * switched.
   */
  public static boolean isBusy(ManagedCursorImpl cursor) throws ReflectiveOperationException {
    Field submitted = ManagedCursorImpl.class.getDeclaredField("pendingMarkDeletedSubmittedCount");
    submitted.setAccessible(true);
    synchronized (cursor.pendingMarkDeleteOps) {
      return !cursor.pendingMarkDeleteOps.isEmpty()
          || submitted.getInt(cursor) > 0
          || cursor.getState().equals("SwitchingLedger");
    }
  }
}
