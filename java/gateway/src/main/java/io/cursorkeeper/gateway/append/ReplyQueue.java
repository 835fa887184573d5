package io.cursorkeeper.gateway.append;

import io.cursorkeeper.ledgers.v1.AppendFailure;
import io.cursorkeeper.ledgers.v1.AppendReply;
import io.cursorkeeper.ledgers.v1.Appended;
import io.cursorkeeper.ledgers.v1.Failure;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Queue;

/**
 * The answers of one stream that are not sent yet. Acknowledgements are cumulative, so they take
 * one place per ledger however long the client does not read; failures are few, and {@link
 * #crowded} says when to stop reading requests.
 */
final class ReplyQueue {
  private static final int APPENDED_PER_MESSAGE_MAX = 8_192;
  private static final int FAILURES_PER_MESSAGE_MAX = 1_024;

  private final Map<Long, Long> acknowledged = new LinkedHashMap<>();
  private final Queue<AppendFailure> failures = new ArrayDeque<>();
  private final Map<Long, AppendFailure> newest = new HashMap<>();

  synchronized void acknowledged(long ledgerId, long lastEntryId) {
    acknowledged.put(ledgerId, lastEntryId);
  }

  synchronized void failed(long ledgerId, long firstEntryId, Failure failure) {
    AppendFailure waiting = newest.get(ledgerId);
    if (waiting != null
        && waiting.getFirstEntryId() <= firstEntryId
        && waiting.getFailure().getReason().equals(failure.getReason())) {
      return; // Said already: it stands for every later entry too.
    }
    AppendFailure entry =
        AppendFailure.newBuilder()
            .setLedgerId(ledgerId)
            .setFirstEntryId(firstEntryId)
            .setFailure(failure)
            .build();
    failures.add(entry);
    newest.put(ledgerId, entry);
  }

  synchronized boolean isEmpty() {
    return acknowledged.isEmpty() && failures.isEmpty();
  }

  synchronized boolean crowded() {
    return failures.size() >= FAILURES_PER_MESSAGE_MAX;
  }

  /** The next message. A failure never overtakes an acknowledgement of its ledger. */
  synchronized AppendReply take() {
    AppendReply.Builder reply = AppendReply.newBuilder();
    Iterator<Map.Entry<Long, Long>> ledgers = acknowledged.entrySet().iterator();
    while (ledgers.hasNext() && reply.getAppendedCount() < APPENDED_PER_MESSAGE_MAX) {
      Map.Entry<Long, Long> ledger = ledgers.next();
      reply.addAppended(
          Appended.newBuilder().setLedgerId(ledger.getKey()).setLastEntryId(ledger.getValue()));
      ledgers.remove();
    }
    while (acknowledged.isEmpty()
        && !failures.isEmpty()
        && reply.getFailuresCount() < FAILURES_PER_MESSAGE_MAX) {
      AppendFailure failure = failures.poll();
      newest.remove(failure.getLedgerId(), failure);
      reply.addFailures(failure);
    }
    return reply.build();
  }
}
