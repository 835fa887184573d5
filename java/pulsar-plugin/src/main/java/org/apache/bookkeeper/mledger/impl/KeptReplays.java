package org.apache.bookkeeper.mledger.impl;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.bookkeeper.mledger.Position;

/**
 * Serves the broker while the daemon is away: replays of entries that are held back. A dispatcher
 * asks for one at a time and waits for its answer, so there are no more of them than dispatchers of
 * the cursor.
 */
final class KeptReplays {

  /** Pulsar's own: returns those of the positions that are acked, for which nothing is answered. */
  @FunctionalInterface
  interface Replay {
    Set<? extends Position> entries(
        Set<? extends Position> positions,
        ReadEntriesCallback callback,
        Object ctx,
        boolean sorted);
  }

  private record Held(
      Set<? extends Position> positions,
      ReadEntriesCallback callback,
      Object ctx,
      boolean sorted) {}

  private List<Held> held = new ArrayList<>();

  synchronized void hold(
      Set<? extends Position> positions, ReadEntriesCallback callback, Object ctx, boolean sorted) {
    held.add(new Held(positions, callback, ctx, sorted));
  }

  private synchronized List<Held> take() {
    List<Held> all = held;
    held = new ArrayList<>();
    return all;
  }

  /** Asks for all that were held. What was acked meanwhile is no entry of the answer. */
  void goOn(Replay replay) {
    for (Held each : take()) {
      Set<? extends Position> acked =
          replay.entries(each.positions, each.callback, each.ctx, each.sorted);
      if (acked.size() == each.positions.size()) {
        each.callback.readEntriesComplete(new ArrayList<>(), each.ctx);
      }
    }
  }
}
