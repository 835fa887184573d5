package org.apache.bookkeeper.mledger.impl;

/** What the harness needs and Pulsar keeps package-private. Nothing is changed by being here. */
public final class CursorAccess {
    private CursorAccess() {
    }

    /** What Pulsar's timer does every {@code cursorPositionFlushSeconds}: persist if dirty. Answers before it is done. */
    public static void flush(ManagedCursorImpl cursor) {
        cursor.flush();
    }

}
