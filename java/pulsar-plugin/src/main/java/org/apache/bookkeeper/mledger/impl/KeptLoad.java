package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperException;
import io.cursorkeeper.pulsar.Settings;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerImpl.ManagedLedgerInitializeLedgerCallback;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker: one try to load a topic's cursors from the keeper, and what follows if it
 * fails. Only a keeper that does not answer lets a topic go on with Pulsar's own cursors; one that
 * has something to say against the load is obeyed.
 */
final class KeptLoad implements ManagedLedgerInitializeLedgerCallback {

  private static final Logger LOG = LoggerFactory.getLogger(KeptLoad.class);

  private final KeptLedger topic;
  private final ManagedLedgerInitializeLedgerCallback next;

  /** Pulsar tells of every cursor that fails; the first counts. */
  private final AtomicBoolean isOver = new AtomicBoolean();

  KeptLoad(KeptLedger topic, ManagedLedgerInitializeLedgerCallback next) {
    this.topic = topic;
    this.next = next;
  }

  @Override
  public void initializeComplete() {
    if (isOver.compareAndSet(false, true)) {
      next.initializeComplete();
    }
  }

  @Override
  public void initializeFailed(ManagedLedgerException failure) {
    if (!isOver.compareAndSet(false, true)) {
      return;
    }
    if (topic.settings().onFailedLoad() == Settings.OnFailedLoad.FAIL || !isUnanswered(failure)) {
      next.initializeFailed(failure);
      return;
    }
    topic.counters().stockLoads.increment();
    LOG.error(
        "[{}] Loaded with Pulsar's own cursors, because {}=stock and the keeper did not answer: {}."
            + " They may be older than what the keeper confirmed, so confirmed messages may be"
            + " delivered again. The next load from the keeper does what {} says",
        topic.getName(),
        Settings.ON_FAILED_LOAD,
        failure.getMessage(),
        Settings.ON_STALE);
    topic.loadStock(next);
  }

  /**
   * A daemon that answers and refuses is no outage: nobody may go on with older cursors because of
   * it.
   */
  static boolean isUnanswered(ManagedLedgerException failure) {
    return failure.getCause() instanceof KeeperException why
        && switch (why.code()) {
          case AWAY, TIMED_OUT, UNAVAILABLE, SHUTTING_DOWN -> true;
          default -> false;
        };
  }
}
