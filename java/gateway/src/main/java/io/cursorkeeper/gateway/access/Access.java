package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.grpc.Status;

/**
 * Which role may do what with whose ledger, and which of those an identity may: the table of the
 * contract. Pure; every method but {@link #sees} and {@link #mayAppend} throws a refusal that names
 * the ledger, and the remedy. What somebody may not know, a refusal does not tell.
 */
public final class Access {
  /** From a release whose daemons name no deployment: for as long as a rolling upgrade takes. */
  private final boolean callersMayNameNone;

  public Access(boolean callersMayNameNone) {
    this.callersMayNameNone = callersMayNameNone;
  }

  /** Whether the caller may know the ledger at all: Read, List, Metadata. */
  public boolean sees(Caller caller, Whose whose) {
    return isOfTheRole(caller, whose) && isItsOwn(caller, whose);
  }

  private static boolean isOfTheRole(Caller caller, Whose whose) {
    return switch (whose.kind()) {
      case OURS -> true;
      case PULSAR_CURSOR -> caller.role() != Role.WRITER;
      case PULSAR_MESSAGES, FOREIGN -> false;
    };
  }

  // Of the deployments and topics that its identity has.
  private static boolean isItsOwn(Caller caller, Whose whose) {
    return switch (whose.kind()) {
      case OURS -> caller.identity().hasDeployment(whose.deployment());
      case PULSAR_CURSOR, PULSAR_MESSAGES -> caller.identity().hasTopic(whose.topic());
      case FOREIGN -> true;
    };
  }

  public void mayRead(Caller caller, long ledgerId, Whose whose) {
    requireItsOwn(caller, ledgerId, whose);
    if (!isOfTheRole(caller, whose)) {
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
  public void maySeeTheEnd(Caller caller, long ledgerId, Whose whose) {
    if (whose.kind() != Whose.Kind.PULSAR_MESSAGES || caller.role() == Role.WRITER) {
      mayRead(caller, ledgerId, whose);
    } else {
      requireItsOwn(caller, ledgerId, whose);
    }
  }

  /**
   * Where nobody is told from another, a caller may create for a deployment that it does not name.
   */
  public void mayCreate(Caller caller, Whose whose) {
    mayWrite(caller, -1, whose);
    if (caller.identity().isOfAFile()) {
      mayEnd(caller, -1, whose);
    }
  }

  /** Never Pulsar's: a fence could depose a live broker. */
  public void mayFence(Caller caller, long ledgerId, Whose whose) {
    requireItsOwn(caller, ledgerId, whose);
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
   * created: for what it could have created itself.
   */
  public boolean mayAppend(Caller caller, Role creator, Whose whose) {
    return caller.role() == creator
        && isItsOwn(caller, whose)
        && (caller.role() != Role.WRITER || actsFor(caller, whose.deployment()));
  }

  private boolean actsFor(Caller caller, String deployment) {
    return deployment.equals(caller.deployment())
        || (callersMayNameNone && caller.deployment().isEmpty());
  }

  /** Throws where the caller may neither close nor delete the ledger. */
  public void mayEnd(Caller caller, long ledgerId, Whose whose) {
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
    requireItsOwn(caller, ledgerId, whose);
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
                  + " --migrator-token-file, or with --migrator where no role has a token, or for"
                  + " who has it in --identities-file");
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

  private static void requireItsOwn(Caller caller, long ledgerId, Whose whose) {
    if (isItsOwn(caller, whose)) {
      return;
    }
    boolean isOurs = whose.kind() == Whose.Kind.OURS;
    throw refused(
        isOurs ? "OTHER_DEPLOYMENT" : "OTHER_TOPIC",
        name(ledgerId)
            + " is of no "
            + (isOurs ? "deployment" : "topic")
            + " of "
            + caller.name()
            + ": if it should be, add it to its \""
            + (isOurs ? "deployments" : "topics")
            + "\" in the file that --identities-file names");
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
