package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * How callers prove who they are, and what is kept of what they did: for whoever runs a gateway.
 *
 * @param tokens of every role that this gateway has, or of none
 * @param roles that this gateway has
 * @param identities empty: nobody is told from another
 * @param auditLogFile empty: off; {@code -}: standard error
 * @param connectionAgeMaxSeconds 0: connections stay
 * @param refreshSeconds how often it is looked whether the identities file has changed
 */
public record AccessSettings(
    Map<Role, String> tokens,
    List<Role> roles,
    boolean callersWithoutDeployment,
    Optional<IdentitiesFile> identities,
    Optional<SignedTokens> signedTokens,
    String auditLogFile,
    boolean reflection,
    int connectionAgeMaxSeconds,
    int refreshSeconds) {

  private static final Logger LOG = LoggerFactory.getLogger(AccessSettings.class);
  static final String IDENTITIES_FILE = "identities-file";
  static final String AUDIT_LOG_FILE = "audit-log-file";
  public static final List<Flag> FLAGS = flags();

  private static List<Flag> flags() {
    List<Flag> flags =
        new ArrayList<>(
            List.of(
                Flag.text(
                    "writer-token-file", "", "writers must send its content as cursorkeeper-token"),
                Flag.text(
                    "reader-token-file",
                    "",
                    "readers must send its content, or a writer's or migrator's"),
                Flag.text(
                    "migrator-token-file",
                    "",
                    "switches the role migrator on, which must send its content"),
                Flag.yesNo(
                    "migrator",
                    "the role migrator, where no role has a token: it writes Pulsar's cursor"
                        + " ledgers"),
                Flag.yesNo(
                    "insecure", "listen on --host for everybody, in plain text or without tokens"),
                Flag.yesNo(
                    "callers-without-deployment",
                    "daemons of release 0.1 name none: for a rolling upgrade from it"),
                Flag.text(
                    IDENTITIES_FILE,
                    "",
                    "JSON: who is known, by which certificates and tokens, and may do what;"
                        + " instead of token files")));
    flags.addAll(SignedTokens.FLAGS);
    flags.addAll(
        List.of(
            Flag.text(AUDIT_LOG_FILE, "", "a line of JSON for each change and refusal; -: stderr"),
            Flag.yesNo("reflection", "tell everybody the contract, by gRPC reflection"),
            Flag.number(
                "connection-age-max-s",
                0,
                "connections end after so long, calls that run go on for 5 s; 0: never")));
    return List.copyOf(flags);
  }

  /** Throws IllegalArgumentException with a message for people. */
  public static AccessSettings of(Flags flags, int refreshSeconds) {
    String file = flags.text(IDENTITIES_FILE);
    Optional<SignedTokens> signed = SignedTokens.of(flags);
    boolean migrator = flags.yes("migrator");
    for (Role role : Role.values()) {
      require(
          file.isEmpty() || flags.text(Tokens.flag(role)).isEmpty(),
          "--"
              + IDENTITIES_FILE
              + " and --"
              + Tokens.flag(role)
              + ": with identities a token is of one of them; leave the token's file out, and add"
              + " the token's hash to \"token_hashes\" of an identity with the role "
              + role.word());
    }
    require(
        file.isEmpty() || !migrator,
        "--"
            + IDENTITIES_FILE
            + " and --migrator: leave --migrator out, and add \"migrator\" to the \"roles\" of who"
            + " is to have it");
    require(
        !file.isEmpty() || signed.isEmpty(),
        "a key for signed tokens without --"
            + IDENTITIES_FILE
            + ", which says what their subjects may do: name one");
    Map<Role, String> tokens = Tokens.of(flags);
    require(
        !migrator || tokens.isEmpty() || tokens.containsKey(Role.MIGRATOR),
        "--migrator without a token, while other roles have one: name its file,"
            + " --migrator-token-file");
    Optional<IdentitiesFile> identities =
        file.isEmpty() ? Optional.empty() : Optional.of(new IdentitiesFile(file));
    if (signed.isEmpty() && identities.map(one -> one.current().hasTokenSubjects()).orElse(false)) {
      LOG.warn(
          "--{} names token_subjects, which nobody can prove here: name --{} or --{}",
          IDENTITIES_FILE,
          SignedTokens.TOKEN_SECRET_KEY,
          SignedTokens.TOKEN_PUBLIC_KEY);
    }
    return new AccessSettings(
        tokens,
        Arrays.stream(Role.values())
            .filter(
                role ->
                    role != Role.MIGRATOR
                        || migrator
                        || !file.isEmpty()
                        || tokens.containsKey(role))
            .toList(),
        flags.yes("callers-without-deployment"),
        identities,
        signed,
        flags.text(AUDIT_LOG_FILE),
        flags.yes("reflection"),
        flags.integer("connection-age-max-s", 0, 1_000_000_000),
        refreshSeconds);
  }

  /** Whether callers are told from each other, by what each proves. */
  public boolean namesCallers() {
    return identities.isPresent();
  }

  /**
   * Throws unless callers prove who they are where nobody listens in, or only this machine's can
   * connect, or somebody took it upon himself.
   */
  public void requireSafe(
      String host, boolean isEncrypted, boolean callersShowCertificates, boolean insecure) {
    if (insecure || isLoopback(host)) {
      return;
    }
    require(
        !tokens.isEmpty() || identities.isPresent() || callersShowCertificates,
        "--host "
            + host
            + " lets everybody who reaches this machine fence and delete ledgers: name --"
            + IDENTITIES_FILE
            + ", or --writer-token-file and --reader-token-file, or"
            + " --tls-require-trusted-client-cert-on-connect, or say --insecure");
    require(
        isEncrypted,
        "--host "
            + host
            + " in plain text: whoever sees a token pass by has it; name"
            + " --tls-certificate-file-path and --tls-key-file-path, or say --insecure where the"
            + " network is trusted or a mesh encrypts it");
  }

  private static boolean isLoopback(String host) {
    try {
      return InetAddress.getByName(host).isLoopbackAddress();
    } catch (UnknownHostException unknown) {
      return false;
    }
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
