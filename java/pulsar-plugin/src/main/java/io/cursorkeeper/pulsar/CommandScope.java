package io.cursorkeeper.pulsar;

import java.util.concurrent.CompletableFuture;

/**
 * Serves a client's ack receipts: one command of a client while the broker's I/O thread works on it. Pulsar before 5.0 calls the cursor
 * within it and does not wait for the cursor's answer; so the cursor leaves here what the command's receipt has to wait for.
 *
 * <p>One thread uses it. Scopes nest: Pulsar reads the next command within one, when a connection may be read again.
 */
public final class CommandScope {

    private static final ThreadLocal<CommandScope> CURRENT = new ThreadLocal<>();

    private final CommandScope outer;
    private CompletableFuture<Void> durable;

    private CommandScope(CommandScope outer) {
        this.outer = outer;
    }

    /** Begins on this thread, and ends by {@link #close}. */
    public static CommandScope open() {
        CommandScope made = new CommandScope(CURRENT.get());
        CURRENT.set(made);
        return made;
    }

    public void close() {
        CURRENT.set(outer);
    }

    /** The command that this thread is at is not done before this is. Of no effect outside of one. */
    public static void waitsFor(CompletableFuture<Void> change) {
        CommandScope now = CURRENT.get();
        if (now != null) {
            now.durable = now.durable == null || now.durable == change ? change : CompletableFuture.allOf(now.durable, change);
        }
    }

    /** Null: the command has changed no cursor. */
    public CompletableFuture<Void> durable() {
        return durable;
    }
}
