package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.access.AuditLog;
import io.cursorkeeper.gateway.access.Audited;
import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Ends a call with one answer or one failure, whichever way the work ends: a value, a failed
 * future, an exception; the audit log hears of it.
 */
final class Call {
  private final Consumer<LedgerFailure> failures;
  private final AuditLog audit;

  Call(Consumer<LedgerFailure> failures, AuditLog audit) {
    this.failures = failures;
    this.audit = audit;
  }

  /** Runs the work and answers with its result. */
  <A> void answer(
      StreamObserver<A> caller,
      Operation operation,
      Audited asked,
      Supplier<CompletableFuture<A>> work) {
    CompletableFuture<A> result;
    try {
      result = work.get();
    } catch (RuntimeException failure) {
      result = CompletableFuture.failedFuture(failure);
    }
    result.whenComplete(
        (answer, thrown) -> {
          if (thrown != null) {
            fail(caller, operation, asked, thrown);
          } else {
            audit.ended(asked, operation.changes(), null);
            caller.onNext(answer);
            caller.onCompleted();
          }
        });
  }

  /** Ends a call with a failure. */
  void fail(StreamObserver<?> caller, Operation operation, Audited asked, Throwable thrown) {
    LedgerFailure failure = LedgerFailure.of(operation, asked.ledgerId(), thrown);
    failures.accept(failure);
    audit.ended(asked, operation.changes(), failure);
    caller.onError(failure.toStatus());
  }
}
