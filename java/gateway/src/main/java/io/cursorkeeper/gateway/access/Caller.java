package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.grpc.Context;
import io.grpc.Status;
import java.util.OptionalLong;

/**
 * Who makes this call, as {@link Callers} found out, the role that it names, and the deployment
 * that it acts for. Its rights are those of its identity now: a file that was read again counts for
 * calls that are open.
 */
public final class Caller {
  private static final Context.Key<Caller> KEY =
      Context.keyWithDefault("caller", new Caller(Role.READER, ""));

  private final Role role;
  private final String deployment;
  private final String from;
  private volatile Identity identity;

  /** {@code deployment} empty: the caller names none; {@code from}: the peer's address. */
  Caller(Identity identity, Role role, String deployment, String from) {
    this.identity = identity;
    this.role = role;
    this.deployment = deployment;
    this.from = from;
  }

  /** Where nobody is told from another. */
  Caller(Role role, String deployment) {
    this(Identity.ANYBODY, role, deployment, "");
  }

  /** Of the call whose thread this is: to be asked before anything is handed to another thread. */
  public static Caller current() {
    return KEY.get();
  }

  public Role role() {
    return role;
  }

  /** Whether it has the role, and not only names it: whoever is known may ask what this is. */
  public boolean hasRole() {
    return identity.roles().contains(role);
  }

  public String deployment() {
    return deployment;
  }

  /** Of its identity. */
  public String name() {
    return identity.name();
  }

  /** What its reads may hold together; empty: no limit of its own. */
  public OptionalLong readBytesMax() {
    return identity.limit(Quota.READ_BYTES);
  }

  /** Its reads hold what they may. */
  public LedgerFailure overReadBytes() {
    return Quotas.over(identity, Quota.READ_BYTES);
  }

  String from() {
    return from;
  }

  Identity identity() {
    return identity;
  }

  void isNow(Identity read) {
    identity = read;
  }

  /** Throws unless its identity holds the role that it names. */
  void requireRole() {
    if (!hasRole()) {
      throw LedgerFailure.refused(
          Status.Code.PERMISSION_DENIED,
          "ROLE_NOT_HELD",
          identity.name()
              + " has not the role "
              + role.word()
              + " (of a gateway's it has "
              + identity.roles().stream().map(Role::word).sorted().toList()
              + "): send another in cursorkeeper-role, or add it to \"roles\" in the file that --"
              + AccessSettings.IDENTITIES_FILE
              + " names");
    }
  }

  /** The context of a call of this caller. */
  Context in(Context context) {
    return context.withValue(KEY, this);
  }
}
