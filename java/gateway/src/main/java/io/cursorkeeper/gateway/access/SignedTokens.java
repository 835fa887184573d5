package io.cursorkeeper.gateway.access;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.cursorkeeper.gateway.process.Flag;
import io.cursorkeeper.gateway.process.Flags;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/**
 * Tokens that Pulsar's key has signed (JWT in its compact form), under Pulsar's names: whoever has
 * a token for Pulsar's brokers proves with it who it is. The time at which a token is looked at is
 * given; what was verified once is remembered, because a signature costs much and a caller sends
 * the same with each call.
 */
public final class SignedTokens {
  private static final JsonMapper JSON =
      JsonMapper.builder()
          .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
          .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
          .build();
  static final String TOKEN_SECRET_KEY = "token-secret-key";
  static final String TOKEN_PUBLIC_KEY = "token-public-key";
  static final String TOKEN_PUBLIC_ALG = "token-public-alg";
  private static final String TOKEN_AUTH_CLAIM = "token-auth-claim";
  private static final String TOKEN_AUDIENCE_CLAIM = "token-audience-claim";
  private static final String TOKEN_AUDIENCE = "token-audience";
  private static final int REMEMBERED_MAX = 1_024;

  static final List<Flag> FLAGS =
      List.of(
          Flag.text(
              TOKEN_SECRET_KEY, "", "as Pulsar's tokenSecretKey: tokens signed with it count"),
          Flag.text(TOKEN_PUBLIC_KEY, "", "as Pulsar's tokenPublicKey, instead"),
          Flag.text(TOKEN_PUBLIC_ALG, "", "its tokenPublicAlg; empty: as the key is"),
          Flag.text(TOKEN_AUTH_CLAIM, "sub", "its tokenAuthClaim: which says who has the token"),
          Flag.text(TOKEN_AUDIENCE_CLAIM, "", "its tokenAudienceClaim"),
          Flag.text(TOKEN_AUDIENCE, "", "its tokenAudience: only tokens for it count"));

  /**
   * What a token says that is signed.
   *
   * @param beforeSeconds of the epoch: good until then; {@link Double#POSITIVE_INFINITY}: for good
   * @param fromSeconds of the epoch: good from then on
   */
  record Claims(String subject, double fromSeconds, double beforeSeconds) {}

  /** A token that proves nothing; the message is for people, and holds nothing of the token. */
  static final class WrongTokenException extends Exception {
    private static final long serialVersionUID = 1;

    private final boolean expired;

    WrongTokenException(boolean expired, String why) {
      super(why, null, false, false);
      this.expired = expired;
    }

    boolean isExpired() {
      return expired;
    }
  }

  private final TokenKey key;
  private final String claim;
  private final String audienceClaim;
  private final String audience;
  private final Map<String, Claims> remembered =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Claims> eldest) {
          return size() > REMEMBERED_MAX;
        }
      };

  SignedTokens(TokenKey key, String claim, String audienceClaim, String audience) {
    this.key = key;
    this.claim = claim;
    this.audienceClaim = audienceClaim;
    this.audience = audience;
  }

  /** Empty: no key is named. Throws IllegalArgumentException with a message for people. */
  static Optional<SignedTokens> of(Flags flags) {
    String secret = flags.text(TOKEN_SECRET_KEY);
    String published = flags.text(TOKEN_PUBLIC_KEY);
    String audienceClaim = flags.text(TOKEN_AUDIENCE_CLAIM);
    String audience = flags.text(TOKEN_AUDIENCE);
    require(
        audienceClaim.isEmpty() == audience.isEmpty(),
        flags.said(TOKEN_AUDIENCE_CLAIM)
            + " and "
            + flags.said(TOKEN_AUDIENCE)
            + " go together: the one says where a token names whom it is for, the other who that"
            + " must be");
    require(
        !flags.text(TOKEN_AUTH_CLAIM).isEmpty(),
        flags.said(TOKEN_AUTH_CLAIM) + " is empty: sub is the usual one");
    if (secret.isEmpty() && published.isEmpty()) {
      require(
          audience.isEmpty() && flags.text(TOKEN_PUBLIC_ALG).isEmpty(),
          "settings of signed tokens without a key: name "
              + flags.said(TOKEN_SECRET_KEY)
              + " or "
              + flags.said(TOKEN_PUBLIC_KEY));
      return Optional.empty();
    }
    require(
        secret.isEmpty() || published.isEmpty(),
        flags.said(TOKEN_SECRET_KEY)
            + " and "
            + flags.said(TOKEN_PUBLIC_KEY)
            + ": name one of them");
    return Optional.of(
        new SignedTokens(
            secret.isEmpty() ? published(flags) : secret(flags),
            flags.text(TOKEN_AUTH_CLAIM),
            audienceClaim,
            audience));
  }

  private static TokenKey secret(Flags flags) {
    String said = flags.said(TOKEN_SECRET_KEY);
    String secret = flags.text(TOKEN_SECRET_KEY);
    if (!TokenKey.isFile(secret)) {
      flags
          .file(TOKEN_SECRET_KEY)
          .ifPresent(file -> Secrets.warnIfOthersRead(said + " is the key itself, and", file));
    }
    return orWayOut(flags, TOKEN_SECRET_KEY, () -> TokenKey.secret(said, secret));
  }

  private static TokenKey published(Flags flags) {
    return orWayOut(
        flags,
        TOKEN_PUBLIC_KEY,
        () ->
            TokenKey.published(
                flags.said(TOKEN_PUBLIC_KEY),
                flags.text(TOKEN_PUBLIC_KEY),
                flags.said(TOKEN_PUBLIC_ALG),
                flags.text(TOKEN_PUBLIC_ALG)));
  }

  // A key that nobody named here is perhaps of no use here, and its file on brokers' hosts only.
  private static TokenKey orWayOut(Flags flags, String name, Supplier<TokenKey> reading) {
    try {
      return reading.get();
    } catch (IllegalArgumentException wrong) {
      throw flags.isGiven(name)
          ? wrong
          : new IllegalArgumentException(
              wrong.getMessage()
                  + "; where callers of this gateway have certificates or tokens of its own, give"
                  + " --"
                  + TOKEN_PUBLIC_KEY
                  + "= (empty): then no key of signed tokens is taken from "
                  + flags.file(name).map(Path::toString).orElse("elsewhere"));
    }
  }

  /** Whether it looks like one that is signed: three parts, by dots. */
  static boolean isSigned(String token) {
    int first = token.indexOf('.');
    int second = token.indexOf('.', first + 1);
    return first >= 0 && second >= 0 && token.indexOf('.', second + 1) < 0;
  }

  /** Who has the token, at this time. */
  Claims verified(String token, double nowSeconds) throws WrongTokenException {
    Claims claims;
    synchronized (remembered) {
      claims = remembered.get(token);
    }
    if (claims == null) {
      claims = read(token);
      synchronized (remembered) {
        remembered.put(token, claims);
      }
    }
    if (nowSeconds >= claims.beforeSeconds()) {
      throw new WrongTokenException(true, "the token has expired: have a new one made");
    }
    if (nowSeconds < claims.fromSeconds()) {
      throw new WrongTokenException(
          false, "the token is for later (nbf): wait, or set this machine's clock");
    }
    return claims;
  }

  private Claims read(String token) throws WrongTokenException {
    int first = token.indexOf('.');
    int second = token.lastIndexOf('.');
    JsonNode header = json(token.substring(0, first));
    JsonNode algorithm = header.get("alg");
    byte[] signature = decoded(token.substring(second + 1));
    if (algorithm == null
        || !algorithm.isTextual()
        // Words that a reader must understand, and this one does not.
        || header.has("crit")
        || signature.length == 0
        || !key.signed(
            algorithm.textValue(),
            token.substring(0, second).getBytes(StandardCharsets.US_ASCII),
            signature)) {
      throw wrong("the token is not signed with this gateway's key, or by an algorithm of its own");
    }
    JsonNode body = json(token.substring(first + 1, second));
    requireAudience(body);
    return new Claims(
        subject(body.get(claim)),
        seconds(body, "nbf", Double.NEGATIVE_INFINITY),
        seconds(body, "exp", Double.POSITIVE_INFINITY));
  }

  // As Pulsar: a string, or the first of a list of strings.
  private String subject(JsonNode given) throws WrongTokenException {
    JsonNode subject = given != null && given.isArray() ? given.get(0) : given;
    if (subject == null || !subject.isTextual() || subject.textValue().isEmpty()) {
      throw wrong("the token does not say whose it is: it has no claim " + claim);
    }
    return subject.textValue();
  }

  private void requireAudience(JsonNode body) throws WrongTokenException {
    if (audience.isEmpty()) {
      return;
    }
    JsonNode given = body.get(audienceClaim);
    boolean isFor = given != null && given.isTextual() && given.textValue().equals(audience);
    if (given != null && given.isArray()) {
      for (JsonNode one : given) {
        isFor |= one.isTextual() && one.textValue().equals(audience);
      }
    }
    if (!isFor) {
      throw wrong("the token is not for " + audience + " (claim " + audienceClaim + ")");
    }
  }

  private static double seconds(JsonNode body, String claim, double absent)
      throws WrongTokenException {
    JsonNode given = body.get(claim);
    if (given == null) {
      return absent;
    }
    if (!given.isNumber() || !Double.isFinite(given.doubleValue())) {
      throw wrong("the token's claim " + claim + " is no number of seconds");
    }
    return given.doubleValue();
  }

  private static JsonNode json(String part) throws WrongTokenException {
    try {
      JsonNode read = JSON.readTree(decoded(part));
      if (read != null && read.isObject()) {
        return read;
      }
    } catch (IOException notJson) {
      // Told below.
    }
    throw wrong("the token has three parts and is no JWT");
  }

  private static byte[] decoded(String part) throws WrongTokenException {
    try {
      return Base64.getUrlDecoder().decode(part);
    } catch (IllegalArgumentException notBase64) {
      throw wrong("the token has three parts and is no JWT");
    }
  }

  private static WrongTokenException wrong(String why) {
    return new WrongTokenException(false, why);
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
