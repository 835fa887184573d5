package io.cursorkeeper.gateway.access;

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
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import javax.security.auth.x500.X500Principal;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Who calls, and whether that one may make the call at all; {@link Access} then asks whose ledger
 * it is. With an identities file a caller is whoever its token, or else its certificate, says; with
 * tokens of roles the role must be proven, by its own token or by that of a role that may do more.
 * Health is open, and reflection where it is switched on; what has no row in {@link Rpc} is
 * nobody's.
 *
 * <p>A call that is open ends when its caller is known no longer, at the next look.
 */
public final class Callers implements ServerInterceptor {
  static final Metadata.Key<String> ROLE =
      Metadata.Key.of("cursorkeeper-role", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<String> TOKEN =
      Metadata.Key.of("cursorkeeper-token", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<String> DEPLOYMENT =
      Metadata.Key.of("cursorkeeper-deployment", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Logger LOG = LoggerFactory.getLogger(Callers.class);
  private static final String BEARER = "bearer ";
  private static final Set<String> OPEN_SERVICES =
      Set.of(
          "grpc.health.v1.Health",
          "grpc.reflection.v1.ServerReflection",
          "grpc.reflection.v1alpha.ServerReflection");

  /**
   * Somebody who is let in: by which content of the file (null: by none), and until when it counts
   * without being asked again.
   */
  private record Let(Identity identity, Identities by, double beforeSeconds) {}

  /** One call that was let in with an identity of the file. */
  private static final class Open {
    private final OpenCall<?, ?> call;
    private final Caller caller;
    private final String method;
    private final String token;
    private final X500Principal subject;
    private volatile Let let;
    private boolean isRefused;

    Open(
        OpenCall<?, ?> call,
        Caller caller,
        String method,
        String token,
        X500Principal subject,
        Let let) {
      this.call = call;
      this.caller = caller;
      this.method = method;
      this.token = token;
      this.subject = subject;
      this.let = let;
    }
  }

  private final AccessSettings settings;

  /** Null: there is none. */
  private final IdentitiesFile identities;

  private final Quotas quotas = new Quotas();
  private final Set<Open> open = ConcurrentHashMap.newKeySet();
  private final AuditLog audit;
  private final Consumer<LedgerFailure> failures;
  private final Consumer<SocketAddress> known;
  private final String ownToken = HexFormat.of().formatHex(randomBytes());

  /** {@code known} hears of the peer of each call that is let in, on the call's thread. */
  public Callers(
      AccessSettings settings,
      AuditLog audit,
      Consumer<LedgerFailure> failures,
      Consumer<SocketAddress> known) {
    this.settings = settings;
    this.audit = audit;
    this.failures = failures;
    this.known = known;
    identities = settings.identities().orElse(null);
  }

  /** What the gateway's own calls to itself carry. */
  public Metadata own() {
    Metadata headers = new Metadata();
    headers.put(ROLE, Role.WRITER.word());
    headers.put(TOKEN, ownToken);
    return headers;
  }

  /** Calls of identities of the file that are open. */
  public int open() {
    return open.size();
  }

  /** Reads the identities file again if it has changed; the timer that renews certificates. */
  public void reread() {
    if (identities != null && identities.look()) {
      look();
    }
  }

  /** Ends calls whose callers may no longer make them; called every second or so. */
  public synchronized void look() {
    if (identities == null) {
      return;
    }
    Identities current = identities.current();
    double now = nowSeconds();
    for (Open one : open) {
      Let let = one.let;
      if (let.by != current || now >= let.beforeSeconds) {
        lookAgain(one, now);
      }
    }
  }

  private void lookAgain(Open one, double now) {
    try {
      one.let = identified(one.token, one.subject, now);
      one.caller.isNow(one.let.identity);
      if (!one.method.equals(Rpc.DESCRIBE.word())) {
        one.caller.requireRole();
      }
    } catch (LedgerFailure refused) {
      // Told once, though a call may take a while to end.
      if (!one.isRefused) {
        one.isRefused = true;
        failures.accept(refused);
        if (refused.status().getCode() == Status.Code.UNAUTHENTICATED) {
          audit.unauthenticated(one.method, one.caller.from(), one.caller.name(), refused);
        } else {
          audit.refused(new Audited(one.caller, one.method, -1), refused);
        }
      }
      try {
        one.call.revoke(refused);
      } catch (IllegalStateException ending) {
        LOG.debug("a call that is revoked had ended", ending);
      }
    }
  }

  @Override
  public <Q, A> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
    String service = String.valueOf(call.getMethodDescriptor().getServiceName());
    if (OPEN_SERVICES.contains(service)) {
      return next.startCall(call, headers);
    }
    String method = String.valueOf(call.getMethodDescriptor().getBareMethodName());
    SocketAddress peer = call.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR);
    String from = address(peer);
    String token = token(headers);
    X500Principal subject = subject(call.getAttributes().get(Grpc.TRANSPORT_ATTR_SSL_SESSION));
    Caller caller = null;
    Let let;
    Runnable leave;
    try {
      Role role = role(headers.get(ROLE));
      let = let(role, token, subject);
      String deployment = headers.get(DEPLOYMENT);
      caller = new Caller(let.identity, role, deployment == null ? "" : deployment, from);
      leave = quotas.enter(caller.identity(), allowed(service, method, caller));
    } catch (LedgerFailure refused) {
      failures.accept(refused);
      if (caller == null) {
        audit.unauthenticated(method, from, Identity.ANYBODY.name(), refused);
      } else {
        audit.refused(new Audited(caller, method, -1), refused);
      }
      call.close(refused.status(), refused.trailers());
      return new ServerCall.Listener<>() {};
    }
    known.accept(peer);
    if (!caller.identity().isOfAFile()) {
      return Contexts.interceptCall(caller.in(Context.current()), call, headers, next);
    }
    Open[] self = new Open[1];
    Runnable leaves =
        () -> {
          open.remove(self[0]);
          leave.run();
        };
    OpenCall<Q, A> letIn = new OpenCall<>(call, leaves);
    self[0] = new Open(letIn, caller, method, token, subject, let);
    open.add(self[0]);
    try {
      return letIn.heardBy(
          Contexts.interceptCall(caller.in(Context.current()), letIn, headers, next));
    } catch (RuntimeException unexpected) {
      leaves.run();
      throw unexpected;
    }
  }

  /** The role that a caller names; who names none is a reader. */
  static Role role(String word) {
    return word == null
        ? Role.READER
        : Role.named(word)
            .orElseThrow(
                () ->
                    LedgerFailure.refused(
                        Status.Code.INVALID_ARGUMENT,
                        "BAD_ROLE",
                        "cursorkeeper-role is " + Role.words()));
  }

  private Let let(Role role, String token, X500Principal subject) {
    if (token != null && MessageDigest.isEqual(utf8(token), utf8(ownToken))) {
      return new Let(Identity.ITSELF, null, Double.POSITIVE_INFINITY);
    }
    if (identities != null) {
      return identified(token, subject, nowSeconds());
    }
    checkToken(role, token);
    return new Let(Identity.ANYBODY, null, Double.POSITIVE_INFINITY);
  }

  // The token, if one is sent; else the certificate; else nobody.
  private Let identified(String token, X500Principal subject, double nowSeconds) {
    Identities all = identities.current();
    if (token != null && settings.signedTokens().isPresent() && SignedTokens.isSigned(token)) {
      SignedTokens.Claims claims;
      try {
        claims = settings.signedTokens().get().verified(token, nowSeconds);
      } catch (SignedTokens.WrongTokenException wrong) {
        throw unauthenticated(
            wrong.isExpired() ? "TOKEN_EXPIRED" : "BAD_TOKEN", wrong.getMessage());
      }
      return all.byTokenSubject(claims.subject())
          .map(identity -> new Let(identity, all, claims.beforeSeconds()))
          .orElseThrow(
              () ->
                  unauthenticated(
                      "BAD_TOKEN",
                      "no identity has the token's subject "
                          + shown(claims.subject())
                          + ": add it to \"token_subjects\" of one in the file that --"
                          + AccessSettings.IDENTITIES_FILE
                          + " names"));
    }
    if (token != null) {
      return all.byTokenHash(sha256(token))
          .map(identity -> new Let(identity, all, Double.POSITIVE_INFINITY))
          .orElseThrow(
              () ->
                  unauthenticated(
                      "BAD_TOKEN",
                      "no identity has the token that was sent: send another, or add its hash to"
                          + " \"token_hashes\" of one in the file that --"
                          + AccessSettings.IDENTITIES_FILE
                          + " names"));
    }
    if (subject != null) {
      return all.byCertificate(subject)
          .map(identity -> new Let(identity, all, Double.POSITIVE_INFINITY))
          .orElseThrow(
              () ->
                  unauthenticated(
                      "UNKNOWN_CERTIFICATE",
                      "no identity has the certificate's subject "
                          + shown(subject.getName())
                          + ": add it to \"certificates\" of one in the file that --"
                          + AccessSettings.IDENTITIES_FILE
                          + " names"));
    }
    throw unauthenticated(
        "NO_CREDENTIALS",
        "this gateway asks who calls: send a token (cursorkeeper-token, or authorization: Bearer),"
            + " or show a certificate");
  }

  /** Throws unless the role is on and the token proves it, where roles have tokens. */
  void checkToken(Role role, String token) {
    if (!settings.roles().contains(role)) {
      throw LedgerFailure.refused(
          Status.Code.PERMISSION_DENIED,
          "ROLE_OFF",
          "this gateway has no role "
              + role.word()
              + ": start it with --"
              + Tokens.flag(role)
              + ", or with --migrator where no role has a token");
    }
    if (!settings.tokens().isEmpty() && !proves(token, role)) {
      throw unauthenticated(
          "BAD_TOKEN",
          "cursorkeeper-token is missing or wrong for"
              + " the role "
              + role.word()
              + ": send the content of the file that --"
              + Tokens.flag(role)
              + " names");
    }
  }

  /** The row of the call; throws unless the caller may make it for one ledger or another. */
  static Rpc allowed(String service, String method, Caller caller) {
    Rpc rpc =
        (LedgersGrpc.SERVICE_NAME.equals(service) ? Rpc.named(method) : Optional.<Rpc>empty())
            .orElseThrow(
                () ->
                    LedgerFailure.refused(
                        Status.Code.PERMISSION_DENIED,
                        "UNKNOWN_CALL",
                        service + "/" + method + " is nobody's: no rule says who may make it"));
    if (rpc != Rpc.DESCRIBE) {
      caller.requireRole();
    }
    if (!rpc.isFor(caller.role())) {
      throw LedgerFailure.refused(
          Status.Code.PERMISSION_DENIED,
          "READERS_MAY_NOT",
          "a reader may not call " + method + "; writers send cursorkeeper-role: writer");
    }
    return rpc;
  }

  // Whoever may change ledgers may read: any token proves a reader. All are compared, in a time
  // that says nothing.
  private boolean proves(String token, Role role) {
    byte[] given = utf8(token == null ? "" : token);
    boolean proven = false;
    for (Map.Entry<Role, String> one : settings.tokens().entrySet()) {
      boolean same = MessageDigest.isEqual(utf8(one.getValue()), given);
      proven |= same && (one.getKey() == role || role == Role.READER);
    }
    return proven;
  }

  // Null: none is sent. An authorization of another kind is a token that nobody has.
  private static String token(Metadata headers) {
    String token = headers.get(TOKEN);
    if (token != null && !token.isEmpty()) {
      return token;
    }
    String authorization = headers.get(AUTHORIZATION);
    if (authorization == null || authorization.isEmpty()) {
      return null;
    }
    return authorization.regionMatches(true, 0, BEARER, 0, BEARER.length())
        ? authorization.substring(BEARER.length()).trim()
        : authorization;
  }

  // Null: no certificate that is believed was shown.
  private static X500Principal subject(SSLSession session) {
    if (session == null) {
      return null;
    }
    try {
      Certificate[] chain = session.getPeerCertificates();
      return chain.length > 0 && chain[0] instanceof X509Certificate shown
          ? shown.getSubjectX500Principal()
          : null;
    } catch (SSLPeerUnverifiedException none) {
      return null;
    }
  }

  private static String address(SocketAddress peer) {
    return peer instanceof InetSocketAddress known && known.getAddress() != null
        ? known.getAddress().getHostAddress() + ":" + known.getPort()
        : String.valueOf(peer);
  }

  static String sha256(String token) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(utf8(token)));
    } catch (GeneralSecurityException everyJdkHasIt) {
      throw new IllegalStateException(everyJdkHasIt);
    }
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String shown(String text) {
    return text.length() <= 200 ? text : text.substring(0, 200);
  }

  private static byte[] randomBytes() {
    byte[] bytes = new byte[32];
    new SecureRandom().nextBytes(bytes);
    return bytes;
  }

  private static double nowSeconds() {
    return System.currentTimeMillis() / 1_000.0;
  }

  private static LedgerFailure unauthenticated(String reason, String message) {
    return LedgerFailure.refused(Status.Code.UNAUTHENTICATED, reason, message);
  }
}
