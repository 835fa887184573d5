package io.cursorkeeper.client;

/** What an opening gave. The link does not keep the state: who drops this drops it. */
public record OpenedCursor(KeptCursor cursor, CursorState state) {}
