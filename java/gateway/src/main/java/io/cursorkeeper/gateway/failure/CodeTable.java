package io.cursorkeeper.gateway.failure;

import static io.cursorkeeper.ledgers.v1.Outcome.NOT_DONE;
import static io.cursorkeeper.ledgers.v1.Outcome.UNKNOWN;
import static io.cursorkeeper.ledgers.v1.Reaction.FENCED;
import static io.cursorkeeper.ledgers.v1.Reaction.REFUSED;
import static io.cursorkeeper.ledgers.v1.Reaction.RETRY;
import static io.cursorkeeper.ledgers.v1.Reaction.ROLL;

import io.cursorkeeper.ledgers.v1.Outcome;
import io.cursorkeeper.ledgers.v1.Reaction;
import io.grpc.Status;
import java.util.HashMap;
import java.util.Map;
import org.apache.bookkeeper.client.api.BKException.Code;

/**
 * The law of failures: one row for every BookKeeper code. A call and an append react differently to
 * the same code, because a failed append ends its handle whatever the cause. A test compares the
 * rows with the client's codes.
 */
public final class CodeTable {
  /**
   * One code.
   *
   * @param call reaction of everything but an append
   * @param outcome of a call that changes something; what only reads is always NOT_DONE
   * @param append reaction of an append
   * @param advice for people
   */
  public record Row(
      int code,
      String reason,
      Status.Code status,
      Reaction call,
      Outcome outcome,
      Reaction append,
      String advice) {

    /** The reaction in an operation. */
    public Reaction reaction(Operation operation) {
      return operation == Operation.APPEND ? append : call;
    }

    /** The outcome in an operation. */
    public Outcome outcome(Operation operation) {
      if (!operation.changes()) {
        return NOT_DONE;
      }
      if (operation == Operation.APPEND) {
        // The client closed the handle before this entry was sent; every other failed add may have
        // reached a bookie.
        return code == Code.LedgerClosedException ? NOT_DONE : UNKNOWN;
      }
      // Too few bookies stop a create before anything is written; a recovery or a delete may be
      // half way.
      return code == Code.NotEnoughBookiesException && operation != Operation.CREATE
          ? UNKNOWN
          : outcome;
    }
  }

  private static final Map<Integer, Row> ROWS = new HashMap<>();

  static {
    String later = "Try again.";
    String bug = "This is a defect of the gateway; report it with its log.";
    String damaged = "No replica has good data; use an older copy and look at the bookies.";
    row(Code.OK, "OK", Status.Code.OK, REFUSED, UNKNOWN, ROLL, bug);
    row(Code.UNINITIALIZED, "UNEXPECTED", Status.Code.INTERNAL, REFUSED, UNKNOWN, ROLL, bug);
    row(
        Code.ReadException,
        "READ_FAILED",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "No bookie of the ledger gave the entry. Try again; look at the bookies if it stays.");
    row(
        Code.QuorumException,
        "BAD_QUORUM",
        Status.Code.INVALID_ARGUMENT,
        REFUSED,
        NOT_DONE,
        ROLL,
        "The quorums must satisfy ensemble >= write quorum >= ack quorum.");
    row(
        Code.NoBookieAvailableException,
        "NOT_ENOUGH_BOOKIES",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "No bookie is writable. Look at the bookies.");
    row(
        Code.DigestNotInitializedException,
        "UNEXPECTED",
        Status.Code.INTERNAL,
        REFUSED,
        UNKNOWN,
        ROLL,
        bug);
    row(
        Code.DigestMatchException,
        "DAMAGED",
        Status.Code.DATA_LOSS,
        REFUSED,
        UNKNOWN,
        ROLL,
        damaged);
    row(
        Code.NotEnoughBookiesException,
        "NOT_ENOUGH_BOOKIES",
        Status.Code.UNAVAILABLE,
        RETRY,
        NOT_DONE,
        ROLL,
        "Fewer bookies are writable than the ensemble needs. Try again, or ask for a smaller"
            + " ensemble.");
    row(
        Code.NoSuchLedgerExistsException,
        "NO_SUCH_LEDGER_AT_BOOKIE",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "A bookie does not know the ledger. Try again; it may just have been deleted.");
    row(
        Code.BookieHandleNotAvailableException,
        "BOOKIE_UNREACHABLE",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        later);
    row(
        Code.ZKException,
        "ZOOKEEPER_FAILED",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "ZooKeeper did not do it or did not answer. Try again; a create may have left an unused"
            + " ledger.");
    row(
        Code.LedgerRecoveryException,
        "RECOVERY_INCOMPLETE",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "Too few bookies of the ledger answered. Try again; never go on without its entries.");
    row(
        Code.LedgerClosedException,
        "HANDLE_CLOSED",
        Status.Code.FAILED_PRECONDITION,
        ROLL,
        NOT_DONE,
        ROLL,
        "The handle was closed by an earlier failure. Fence the ledger, continue in a new one.");
    row(
        Code.WriteException,
        "WRITE_FAILED",
        Status.Code.UNAVAILABLE,
        ROLL,
        UNKNOWN,
        ROLL,
        "A bookie did not take the entry. Fence the ledger, continue in a new one.");
    row(
        Code.NoSuchEntryException,
        "NO_SUCH_ENTRY",
        Status.Code.DATA_LOSS,
        REFUSED,
        UNKNOWN,
        ROLL,
        "An entry that must exist is missing. " + damaged);
    row(
        Code.IncorrectParameterException,
        "BAD_REQUEST",
        Status.Code.INVALID_ARGUMENT,
        REFUSED,
        NOT_DONE,
        ROLL,
        "The client library refused the parameters; check the quorums and the range.");
    row(
        Code.InterruptedException,
        "STOPPING",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "The gateway is stopping. Try again after its restart.");
    row(
        Code.ProtocolVersionException,
        "BOOKIE_INCOMPATIBLE",
        Status.Code.UNIMPLEMENTED,
        REFUSED,
        UNKNOWN,
        ROLL,
        "A bookie does not speak the client's protocol; compare their versions.");
    row(
        Code.MetadataVersionException,
        "METADATA_CHANGED",
        Status.Code.ABORTED,
        FENCED,
        UNKNOWN,
        FENCED,
        "Somebody else changed the ledger. Find out who owns it now.");
    row(
        Code.MetaStoreException,
        "ZOOKEEPER_FAILED",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        later);
    row(
        Code.ClientClosedException,
        "STOPPING",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "The gateway is stopping. Try again after its restart.");
    row(
        Code.LedgerExistException,
        "LEDGER_EXISTS",
        Status.Code.ALREADY_EXISTS,
        RETRY,
        NOT_DONE,
        ROLL,
        "The ledger id was taken. Try again: it gets another one.");
    row(
        Code.AddEntryQuorumTimeoutException,
        "WRITE_TIMEOUT",
        Status.Code.DEADLINE_EXCEEDED,
        ROLL,
        UNKNOWN,
        ROLL,
        "No ack quorum in time. Fence the ledger, continue in a new one.");
    row(
        Code.DuplicateEntryIdException,
        "UNEXPECTED",
        Status.Code.INTERNAL,
        REFUSED,
        UNKNOWN,
        ROLL,
        bug);
    row(
        Code.TimeoutException,
        "TIMEOUT",
        Status.Code.DEADLINE_EXCEEDED,
        RETRY,
        UNKNOWN,
        ROLL,
        "No answer in time; it may still happen.");
    row(
        Code.SecurityException,
        "BOOKIE_AUTH_FAILED",
        Status.Code.UNAUTHENTICATED,
        REFUSED,
        UNKNOWN,
        ROLL,
        "The bookie refused the connection; check TLS and credentials of the gateway.");
    row(
        Code.NoSuchLedgerExistsOnMetadataServerException,
        "NO_SUCH_LEDGER",
        Status.Code.NOT_FOUND,
        REFUSED,
        NOT_DONE,
        ROLL,
        "The ledger does not exist, or was deleted.");
    row(Code.IllegalOpException, "UNEXPECTED", Status.Code.INTERNAL, REFUSED, UNKNOWN, ROLL, bug);
    row(
        Code.LedgerFencedException,
        "FENCED",
        Status.Code.ABORTED,
        FENCED,
        UNKNOWN,
        FENCED,
        "The ledger was recovered by somebody else, perhaps by auto-recovery. Check who owns it,"
            + " then roll or stop.");
    row(
        Code.UnauthorizedAccessException,
        "BAD_PASSWORD",
        Status.Code.PERMISSION_DENIED,
        REFUSED,
        NOT_DONE,
        ROLL,
        "The password is not the one the ledger was created with.");
    row(
        Code.UnclosedFragmentException,
        "LEDGER_OPEN",
        Status.Code.FAILED_PRECONDITION,
        RETRY,
        UNKNOWN,
        ROLL,
        later);
    row(
        Code.WriteOnReadOnlyBookieException,
        "BOOKIE_READ_ONLY",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "A bookie is read-only: often its disk is full.");
    row(
        Code.TooManyRequestsException,
        "OVERLOADED",
        Status.Code.RESOURCE_EXHAUSTED,
        RETRY,
        UNKNOWN,
        ROLL,
        "A bookie has too much to do. Wait, then try again.");
    row(
        Code.LedgerIdOverflowException,
        "LEDGER_IDS_EXHAUSTED",
        Status.Code.RESOURCE_EXHAUSTED,
        REFUSED,
        NOT_DONE,
        ROLL,
        "ZooKeeper has no ledger ids left in this format.");
    row(
        Code.MetadataSerializationException,
        "METADATA_UNREADABLE",
        Status.Code.DATA_LOSS,
        REFUSED,
        UNKNOWN,
        ROLL,
        "The ledger's metadata in ZooKeeper cannot be read; look at it with BookKeeper's own"
            + " tools.");
    row(
        Code.DataUnknownException,
        "DATA_UNKNOWN",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        "A bookie lost its journal and does not know yet. Try again; repair the bookie if it"
            + " stays.");
    row(
        Code.ReplicationException,
        "REPLICATION_FAILED",
        Status.Code.UNAVAILABLE,
        RETRY,
        UNKNOWN,
        ROLL,
        later);
    row(
        Code.UnexpectedConditionException,
        "UNEXPECTED",
        Status.Code.INTERNAL,
        ROLL,
        UNKNOWN,
        ROLL,
        bug);
  }

  private CodeTable() {}

  /** The row of a code; a code that a newer library invents is treated as unexpected. */
  public static Row row(int code) {
    return ROWS.getOrDefault(code, ROWS.get(Code.UnexpectedConditionException));
  }

  static boolean has(int code) {
    return ROWS.containsKey(code);
  }

  private static void row(
      int code,
      String reason,
      Status.Code status,
      Reaction call,
      Outcome outcome,
      Reaction append,
      String advice) {
    if (ROWS.put(code, new Row(code, reason, status, call, outcome, append, advice)) != null) {
      throw new IllegalStateException("two rows for code " + code);
    }
  }
}
