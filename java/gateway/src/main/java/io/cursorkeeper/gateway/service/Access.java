package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.grpc.Status;

/**
 * Which role may do what with whose ledger: the table of the contract. Pure; every method but
 * {@link #sees} throws a refusal that names the ledger, what it is, and the remedy.
 */
final class Access {
  /** From a release whose daemons name no deployment: for as long as a rolling upgrade takes. */
  private final boolean callersMayNameNone;

  Access(boolean callersMayNameNone) {
    this.callersMayNameNone = callersMayNameNone;
  }

  /** Whether the caller may know the ledger at all: Read, List, Metadata. */
  boolean sees(Caller caller, Whose whose) {
    return switch (whose.kind()) {
      case OURS -> true;
      case PULSAR_CURSOR -> caller.role() != Role.WRITER;
      case PULSAR_MESSAGES, FOREIGN -> false;
    };
  }

  void mayRead(Caller caller, long ledgerId, Whose whose) {
    if (!sees(caller, whose)) {
      throw notOurs(
          ledgerId,
          whose,
          whose.kind() == Whose.Kind.PULSAR_CURSOR
              ? "read it with cursorkeeper-role: reader"
              : "only ledgers of cursors are given out here");
    }
  }

  /**
   * Where it ends, and nothing that is in it: whoever moves a topic's cursors must know its last
   * message.
   */
  void maySeeTheEnd(Caller caller, long ledgerId, Whose whose) {
    if (whose.kind() != Whose.Kind.PULSAR_MESSAGES || caller.role() == Role.WRITER) {
      mayRead(caller, ledgerId, whose);
    }
  }

  void mayCreate(Caller caller, Whose whose) {
    mayWrite(caller, -1, whose);
  }

  /** Never Pulsar's: a fence could depose a live broker. */
  void mayFence(Caller caller, long ledgerId, Whose whose) {
    if (whose.kind() != Whose.Kind.OURS) {
      throw notOurs(
          ledgerId,
          whose,
          "only ledgers of CursorKeeper are fenced here"
              + (whose.kind() == Whose.Kind.PULSAR_CURSOR
                  ? ": a fence could depose a live broker"
                  : ""));
    }
    mayEnd(caller, ledgerId, whose);
  }

  /**
   * Whether a stream of the caller may use the handle of a ledger that a caller of this role
   * created.
   */
  boolean mayAppend(Caller caller, String creator, String deployment) {
    return caller.role().word().equals(creator)
        && (caller.role() != Role.WRITER || actsFor(caller, deployment));
  }

  private boolean actsFor(Caller caller, String deployment) {
    return deployment.equals(caller.deployment())
        || (callersMayNameNone && caller.deployment().isEmpty());
  }

  /** Throws where the caller may neither close nor delete the ledger. */
  void mayEnd(Caller caller, long ledgerId, Whose whose) {
    mayWrite(caller, ledgerId, whose);
    if (whose.kind() == Whose.Kind.OURS && !actsFor(caller, whose.deployment())) {
      throw refused(
          "OTHER_DEPLOYMENT",
          name(ledgerId)
              + " is "
              + whose.said()
              + ", and the caller acts for "
              + (caller.deployment().isEmpty() ? "none" : caller.deployment())
              + ": send the ledger's in cursorkeeper-deployment, if it is yours; the id is the data"
              + " of the root node in ZooKeeper"
              + (caller.deployment().isEmpty()
                  ? ". Daemons of release 0.1 name none: upgrade them first, or see"
                      + " --callers-without-deployment"
                  : ""));
    }
  }

  private static void mayWrite(Caller caller, long ledgerId, Whose whose) {
    switch (whose.kind()) {
      case OURS -> {
        if (caller.role() != Role.WRITER) {
          throw refused(
              "WRITERS_ONLY",
              name(ledgerId)
                  + " is "
                  + whose.said()
                  + ": writers change it; send cursorkeeper-role: writer");
        }
      }
      case PULSAR_CURSOR -> {
        if (caller.role() != Role.MIGRATOR) {
          throw refused(
              "MIGRATORS_ONLY",
              name(ledgerId)
                  + " is "
                  + whose.said()
                  + ": send cursorkeeper-role: migrator; the gateway has that role with"
                  + " --migrator-token-file, or with --migrator where no role has a token");
        }
      }
      case PULSAR_MESSAGES, FOREIGN ->
          throw notOurs(
              ledgerId,
              whose,
              "custom metadata must say application=cursorkeeper, or all of a Pulsar cursor's"
                  + " (application=pulsar, component=managed-ledger, pulsar/managed-ledger,"
                  + " pulsar/cursor), to be written or deleted here");
    }
  }

  private static String name(long ledgerId) {
    return ledgerId < 0 ? "the new ledger" : "ledger " + ledgerId;
  }

  private static LedgerFailure notOurs(long ledgerId, Whose whose, String remedy) {
    return refused("NOT_OURS", name(ledgerId) + " is " + whose.said() + ": " + remedy);
  }

  private static LedgerFailure refused(String reason, String message) {
    return LedgerFailure.refused(Status.Code.PERMISSION_DENIED, reason, message);
  }
}
