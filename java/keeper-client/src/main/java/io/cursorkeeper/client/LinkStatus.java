package io.cursorkeeper.client;

import java.util.Optional;

/**
 * What a link is doing, for metrics and logs.
 *
 * @param up whether a daemon has said Hello on the stream of now
 * @param keeper its name and incarnation, newest; empty before the first
 * @param connects streams that came so far
 * @param cursors open, or being opened
 * @param pendingBytes of all cursors, see {@link KeptCursor#pendingBytes}
 * @param memoryFull whether these are too many, as the cursors' listeners hear: every change of it
 *     is told to them afterwards
 * @param problem why the newest stream ended or did not come; empty while up
 */
public record LinkStatus(
    boolean up,
    String keeper,
    long connects,
    int cursors,
    long pendingBytes,
    boolean memoryFull,
    Optional<String> problem) {}
