package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.append.AppendMeter;
import io.cursorkeeper.gateway.failure.CodeTable;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.cursorkeeper.gateway.process.OutOfMemory;
import io.cursorkeeper.ledgers.v1.Reaction;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.api.BKException.Code;

/**
 * Whether appends come through at all, by their answers: they do not when for some seconds every
 * one of them failed. A fence is somebody's will, and what follows a failed append in its ledger
 * was never tried: neither says anything of the bookies.
 */
final class AppendHealth implements AppendMeter {
  private static final long FAILING_MIN_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final int FAILURES_MIN = 3;

  private final AppendMeter next;
  private long failingSinceNanos;
  private int failures;
  private String last = "";

  AppendHealth(AppendMeter next) {
    this.next = next;
  }

  @Override
  public void answered(int entryBytes, long nanos, Throwable thrown) {
    next.answered(entryBytes, nanos, thrown);
    if (thrown == null) {
      works();
      return;
    }
    OutOfMemory.look(thrown);
    int code = LedgerFailure.of(Operation.APPEND, -1, thrown).bookkeeperCode();
    if (code != Code.LedgerClosedException
        && CodeTable.row(code).reaction(Operation.APPEND) != Reaction.FENCED) {
      failed(CodeTable.row(code).reason());
    }
  }

  /** One came through: whatever was before is over. */
  synchronized void works() {
    failingSinceNanos = 0;
    failures = 0;
  }

  /** Empty while they come through, as far as anybody tried; else one line for people. */
  synchronized String whyNot(long nowNanos) {
    if (failures < FAILURES_MIN || nowNanos - failingSinceNanos < FAILING_MIN_NANOS) {
      return "";
    }
    return "appends fail: "
        + failures
        + " in "
        + TimeUnit.NANOSECONDS.toSeconds(nowNanos - failingSinceNanos)
        + " s, and none came through; the last: "
        + last;
  }

  private synchronized void failed(String reason) {
    if (failures++ == 0) {
      failingSinceNanos = System.nanoTime();
    }
    last = reason;
  }
}
