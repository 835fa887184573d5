package io.cursorkeeper.gateway.failure;

import io.cursorkeeper.gateway.process.Failed;
import io.cursorkeeper.gateway.process.OutOfMemory;
import io.cursorkeeper.ledgers.v1.Failure;
import io.cursorkeeper.ledgers.v1.Outcome;
import io.cursorkeeper.ledgers.v1.Reaction;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import org.apache.bookkeeper.client.api.BKException;

/**
 * A failed operation in the words of the contract: what a call ends with, or what an append stream
 * carries as a message. Made from a BookKeeper failure by {@link CodeTable}, or by the gateway's
 * own refusals below.
 */
public final class LedgerFailure extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Metadata.Key<byte[]> TRAILER =
      Metadata.Key.of("cursorkeeper-failure-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private final transient Failure failure;
  private final Status.Code status;

  private LedgerFailure(Status.Code status, Failure failure) {
    super(failure.getMessage(), null, false, false);
    this.failure = failure;
    this.status = status;
  }

  /** What went wrong in an operation on a ledger; {@code ledgerId} -1: none yet. */
  public static LedgerFailure of(Operation operation, long ledgerId, Throwable thrown) {
    Throwable cause = Failed.cause(thrown);
    OutOfMemory.look(cause);
    if (cause instanceof LedgerFailure known) {
      return known;
    }
    int code =
        cause instanceof BKException bookkeeper
            ? bookkeeper.getCode()
            : BKException.Code.UnexpectedConditionException;
    CodeTable.Row row = CodeTable.row(code);
    String detail =
        cause instanceof BKException ? BKException.getMessage(code) : Failed.inOneLine(cause);
    return new LedgerFailure(
        row.status(),
        Failure.newBuilder()
            .setBookkeeperCode(code)
            .setReaction(row.reaction(operation))
            .setOutcome(row.outcome(operation))
            .setReason(row.reason())
            .setMessage(operation + subject(ledgerId) + " failed: " + detail + ". " + row.advice())
            .build());
  }

  /** The gateway's own refusal of something that cannot become right by repeating it. */
  public static LedgerFailure refused(Status.Code status, String reason, String message) {
    return own(status, Reaction.REFUSED, reason, message);
  }

  /** The gateway's own "not now". */
  public static LedgerFailure later(String reason, String message) {
    return own(Status.Code.RESOURCE_EXHAUSTED, Reaction.RETRY, reason, message);
  }

  /** The ledger cannot be written here any more, or never could. */
  public static LedgerFailure roll(String reason, String message) {
    return own(Status.Code.FAILED_PRECONDITION, Reaction.ROLL, reason, message);
  }

  /** What a handle answers after it failed: nothing was even tried. */
  public LedgerFailure afterwards(long ledgerId) {
    Reaction reaction = failure.getReaction() == Reaction.FENCED ? Reaction.FENCED : Reaction.ROLL;
    return new LedgerFailure(
        Status.Code.FAILED_PRECONDITION,
        failure.toBuilder()
            .setReaction(reaction)
            .setOutcome(Outcome.NOT_DONE)
            .setMessage(
                "ledger "
                    + ledgerId
                    + " failed before ("
                    + failure.getReason()
                    + ") and takes no more entries. Fence it, continue in a new one.")
            .build());
  }

  public Failure failure() {
    return failure;
  }

  public int bookkeeperCode() {
    return failure.getBookkeeperCode();
  }

  /** The end of a call: status, and the failure in its trailers. */
  public StatusRuntimeException toStatus() {
    return Status.fromCode(status)
        .withDescription(failure.getMessage())
        .asRuntimeException(trailers());
  }

  /** Status and trailers for places that have no exception, such as an interceptor. */
  public Status status() {
    return Status.fromCode(status).withDescription(failure.getMessage());
  }

  public Metadata trailers() {
    Metadata trailers = new Metadata();
    trailers.put(TRAILER, failure.toByteArray());
    return trailers;
  }

  private static LedgerFailure own(
      Status.Code status, Reaction reaction, String reason, String message) {
    return new LedgerFailure(
        status,
        Failure.newBuilder()
            .setReaction(reaction)
            .setOutcome(Outcome.NOT_DONE)
            .setReason(reason)
            .setMessage(message)
            .build());
  }

  private static String subject(long ledgerId) {
    return ledgerId < 0 ? "" : " of ledger " + ledgerId;
  }
}
