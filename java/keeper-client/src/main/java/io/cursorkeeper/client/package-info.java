/**
 * The ack stream for Java: a program that consumes tells the keeper what was acknowledged and hears
 * what is durable.
 *
 * <p>{@link KeeperLink} is one connection for many cursors, {@link KeptCursor} one of them. No call
 * waits: work is handed over, answers come as futures and to a {@link CursorListener}, on an
 * executor that the caller names. What the messages mean is in {@code proto/acks.proto}; nothing of
 * gRPC, protobuf or of bitmaps is in this package's signatures.
 */
package io.cursorkeeper.client;
