package io.cursorkeeper.interop;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Waiting with a limit, and what really went wrong. */
final class Failures {
    /** No single step of the managed ledger may take longer; deleting ten million entries takes seconds. */
    static final int STEP_MAX_S = 120;

    private Failures() {
    }

    static <T> T await(CompletableFuture<T> future) throws Exception {
        return future.get(STEP_MAX_S, TimeUnit.SECONDS);
    }

    static Throwable cause(Throwable thrown) {
        Throwable found = thrown;
        while ((found instanceof CompletionException || found instanceof ExecutionException) && found.getCause() != null) {
            found = found.getCause();
        }
        return found;
    }
}
