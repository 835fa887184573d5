package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.Context;
import io.grpc.Contexts;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/**
 * Who calls, and whether that role may call the method at all; {@link Access} then asks whose
 * ledger it is. With tokens the role must be proven: by its own token, or by that of a role that
 * may do more. Health and reflection are open.
 */
final class Roles implements ServerInterceptor {
  static final Metadata.Key<String> ROLE =
      Metadata.Key.of("cursorkeeper-role", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<String> TOKEN =
      Metadata.Key.of("cursorkeeper-token", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<String> DEPLOYMENT =
      Metadata.Key.of("cursorkeeper-deployment", Metadata.ASCII_STRING_MARSHALLER);
  private static final Set<String> CHANGES = Set.of("Create", "Append", "Fence", "Close", "Delete");

  private final Map<Role, String> tokens;
  private final List<Role> on;
  private final Consumer<LedgerFailure> failures;

  Roles(GatewaySettings settings, Consumer<LedgerFailure> failures) {
    this.tokens = new EnumMap<>(settings.tokens());
    this.on = settings.roles();
    this.failures = failures;
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    if (!LedgersGrpc.SERVICE_NAME.equals(call.getMethodDescriptor().getServiceName())) {
      return next.startCall(call, headers);
    }
    Caller caller;
    try {
      Role role =
          check(
              call.getMethodDescriptor().getBareMethodName(),
              headers.get(ROLE),
              headers.get(TOKEN));
      String deployment = headers.get(DEPLOYMENT);
      caller = new Caller(role, deployment == null ? "" : deployment);
    } catch (LedgerFailure refused) {
      failures.accept(refused);
      call.close(refused.status(), refused.trailers());
      return new ServerCall.Listener<>() {};
    }
    Peers.current().isKnown(call.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR));
    return Contexts.interceptCall(caller.in(Context.current()), call, headers, next);
  }

  Role check(String method, String word, String token) {
    Role role =
        word == null
            ? Role.READER
            : Arrays.stream(Role.values())
                .filter(one -> one.word().equals(word))
                .findFirst()
                .orElseThrow(
                    () ->
                        LedgerFailure.refused(
                            Status.Code.INVALID_ARGUMENT,
                            "BAD_ROLE",
                            "cursorkeeper-role is "
                                + Arrays.stream(Role.values())
                                    .map(Role::word)
                                    .collect(Collectors.joining(", "))));
    if (!on.contains(role)) {
      throw LedgerFailure.refused(
          Status.Code.PERMISSION_DENIED,
          "ROLE_OFF",
          "this gateway has no role "
              + role.word()
              + ": start it with --"
              + role.word()
              + "-token-file, or with --migrator where no role has a token");
    }
    if (!tokens.isEmpty() && !proves(token, role)) {
      throw LedgerFailure.refused(
          Status.Code.UNAUTHENTICATED,
          "BAD_TOKEN",
          "cursorkeeper-token is missing or wrong for"
              + " the role "
              + role.word()
              + ": send the content of the file that --"
              + role.word()
              + "-token-file names");
    }
    if (role == Role.READER && CHANGES.contains(method)) {
      throw LedgerFailure.refused(
          Status.Code.PERMISSION_DENIED,
          "READERS_MAY_NOT",
          "a reader may not call " + method + "; writers send cursorkeeper-role: writer");
    }
    return role;
  }

  // Whoever may change ledgers may read: any token proves a reader. All are compared, in a time
  // that says nothing.
  private boolean proves(String token, Role role) {
    byte[] given = (token == null ? "" : token).getBytes(StandardCharsets.UTF_8);
    boolean proven = false;
    for (Map.Entry<Role, String> one : tokens.entrySet()) {
      boolean same = MessageDigest.isEqual(one.getValue().getBytes(StandardCharsets.UTF_8), given);
      proven |= same && (one.getKey() == role || role == Role.READER);
    }
    return proven;
  }
}
