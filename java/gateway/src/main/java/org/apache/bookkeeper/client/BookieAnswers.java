package org.apache.bookkeeper.client;

import java.util.concurrent.CompletableFuture;
import org.apache.bookkeeper.net.BookieId;

/**
 * Asks one bookie something that changes nothing, over the client's own connections. The client's
 * public question goes to all bookies at once, and leaves out those that refuse it and why.
 */
public final class BookieAnswers {
  private static final long FREE_DISK_SPACE = 2;

  private BookieAnswers() {}

  /** The code of its answer, as in {@code BKException.Code}; 0: it lets us in. */
  public static CompletableFuture<Integer> ask(BookKeeper client, BookieId bookie) {
    CompletableFuture<Integer> code = new CompletableFuture<>();
    client
        .getBookieClient()
        .getBookieInfo(
            bookie, FREE_DISK_SPACE, (answer, info, context) -> code.complete(answer), null);
    return code;
  }
}
