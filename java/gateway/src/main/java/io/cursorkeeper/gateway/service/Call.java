package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.gateway.failure.Operation;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Ends a call with one answer or one failure, whichever way the work ends: a value, a failed
 * future, an exception.
 */
final class Call {
  private final Consumer<LedgerFailure> failures;

  Call(Consumer<LedgerFailure> failures) {
    this.failures = failures;
  }

  /** Runs the work and answers with its result. */
  <A> void answer(
      StreamObserver<A> caller,
      Operation operation,
      long ledgerId,
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
            fail(caller, operation, ledgerId, thrown);
          } else {
            caller.onNext(answer);
            caller.onCompleted();
          }
        });
  }

  /** Ends a call with a failure. */
  void fail(StreamObserver<?> caller, Operation operation, long ledgerId, Throwable thrown) {
    LedgerFailure failure = LedgerFailure.of(operation, ledgerId, thrown);
    failures.accept(failure);
    caller.onError(failure.toStatus());
  }
}
