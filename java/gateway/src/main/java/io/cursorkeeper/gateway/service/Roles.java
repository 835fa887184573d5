package io.cursorkeeper.gateway.service;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import io.cursorkeeper.ledgers.v1.LedgersGrpc;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Who may call what. The role comes from the request's metadata; a reader may not change anything, above all not
 * fence, which deposes a live writer. With token files the role must also be proven. Health and reflection are open.
 */
final class Roles implements ServerInterceptor {
  static final Metadata.Key<String> ROLE = Metadata.Key.of("cursorkeeper-role", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<String> TOKEN = Metadata.Key.of("cursorkeeper-token", Metadata.ASCII_STRING_MARSHALLER);
  private static final Set<String> WRITERS_ONLY = Set.of("Create", "Append", "Fence", "Close", "Delete");

  private final String writerToken;
  private final String readerToken;
  private final Consumer<LedgerFailure> failures;

  Roles(GatewaySettings settings, Consumer<LedgerFailure> failures) {
    this.writerToken = settings.writerToken();
    this.readerToken = settings.readerToken();
    this.failures = failures;
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    if (LedgersGrpc.SERVICE_NAME.equals(call.getMethodDescriptor().getServiceName())) {
      try {
        check(call.getMethodDescriptor().getBareMethodName(), headers.get(ROLE), headers.get(TOKEN));
      } catch (LedgerFailure refused) {
        failures.accept(refused);
        call.close(refused.status(), refused.trailers());
        return new ServerCall.Listener<>() {};
      }
    }
    return next.startCall(call, headers);
  }

  void check(String method, String role, String token) {
    boolean writer = "writer".equals(role);
    if (!writer && role != null && !role.equals("reader")) {
      throw LedgerFailure.refused(Status.Code.INVALID_ARGUMENT, "BAD_ROLE", "cursorkeeper-role is writer or reader");
    }
    String wanted = writer ? writerToken : readerToken;
    if (wanted != null && (token == null || !same(wanted, token))) {
      throw LedgerFailure.refused(Status.Code.UNAUTHENTICATED, "BAD_TOKEN",
          "cursorkeeper-token is missing or wrong for the role " + (writer ? "writer" : "reader"));
    }
    if (!writer && WRITERS_ONLY.contains(method)) {
      throw LedgerFailure.refused(Status.Code.PERMISSION_DENIED, "READERS_MAY_NOT",
          "a reader may not call " + method + "; writers send cursorkeeper-role: writer");
    }
  }

  // Takes the same time wherever they differ.
  private static boolean same(String wanted, String given) {
    return MessageDigest.isEqual(
        wanted.getBytes(StandardCharsets.US_ASCII), given.getBytes(StandardCharsets.US_ASCII));
  }
}
