package io.cursorkeeper.gateway.access;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.util.Collection;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.security.auth.x500.X500Principal;

/**
 * Everybody who is known, by what each proves itself with: the content of one identities file, read
 * as a whole or not at all. Pure.
 *
 * <p>Daemons read the same file. What it says of them is checked here for its form, and is of no
 * effect.
 */
final class Identities {
  private static final JsonMapper JSON =
      JsonMapper.builder()
          .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
          .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
          .build();
  private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._@-]{1,128}");
  private static final Pattern HASH = Pattern.compile("sha256:([0-9a-f]{64})");
  private static final Pattern TOPIC =
      Pattern.compile("[a-z-]+://([^/*]+/){0,2}|[a-z-]+://[^/*]+/[^/*]+/[^*]+", Pattern.DOTALL);

  /** Hashes of what examples have in the place of a token. */
  private static final Set<String> KNOWN_TO_ALL =
      Stream.of("", "test", "TOKEN", "token", "secret", "password", "change-me")
          .map(Callers::sha256)
          .collect(Collectors.toUnmodifiableSet());

  private static final Set<String> ROLES =
      Set.of("source", "reader", "writer", "migrator", "operator");
  private static final Set<String> MEMBERS =
      Set.of(
          "name",
          "roles",
          "certificates",
          "token_hashes",
          "token_subjects",
          "topics",
          "deployments",
          "quotas");
  private static final Set<String> QUOTAS =
      Set.of("streams", "cursors", "bytes_in_flight", "reads", "read_bytes", "lists");

  private final Map<String, Identity> byName = new HashMap<>();
  private final Map<X500Principal, Identity> byCertificate = new HashMap<>();
  private final Map<String, Identity> byHash = new HashMap<>();
  private final Map<String, Identity> bySubject = new HashMap<>();

  private Identities() {}

  /** Throws IllegalArgumentException with a message for people, without the name of the file. */
  static Identities of(byte[] file) {
    JsonNode whole;
    try {
      whole = JSON.readTree(file);
    } catch (JsonProcessingException wrong) {
      throw new IllegalArgumentException(
          "it is not JSON, or names a member twice: " + wrong.getOriginalMessage(), wrong);
    } catch (IOException wrong) {
      throw new IllegalArgumentException("it is not JSON: " + wrong.getMessage(), wrong);
    }
    members("the file", whole, Set.of("identities"));
    JsonNode list = whole.get("identities");
    require(list != null && list.isArray(), "\"identities\" must be a list");
    Identities all = new Identities();
    int at = 0;
    for (JsonNode one : list) {
      all.add("identities[" + at++ + "]", one);
    }
    return all;
  }

  Optional<Identity> byCertificate(X500Principal subject) {
    return Optional.ofNullable(byCertificate.get(subject));
  }

  /** {@code hash}: 64 lower-case hex digits. */
  Optional<Identity> byTokenHash(String hash) {
    return Optional.ofNullable(byHash.get(hash));
  }

  Optional<Identity> byTokenSubject(String subject) {
    return Optional.ofNullable(bySubject.get(subject));
  }

  Collection<Identity> all() {
    return byName.values();
  }

  boolean hasTokenSubjects() {
    return !bySubject.isEmpty();
  }

  private void add(String where, JsonNode one) {
    members(where, one, MEMBERS);
    JsonNode given = one.get("name");
    require(
        given != null && given.isTextual() && NAME.matcher(given.textValue()).matches(),
        where + ": \"name\" must be 1 to 128 of A-Z a-z 0-9 . _ @ -");
    String name = given.textValue();
    Set<Role> roles = EnumSet.noneOf(Role.class);
    Set<String> words = texts(where, one, "roles");
    require(!words.isEmpty(), where + " (" + name + ") has no role: name one in \"roles\"");
    for (String word : words) {
      require(
          ROLES.contains(word),
          where + ": the role \"" + word + "\" is none of " + new TreeSet<>(ROLES));
      Role.named(word).ifPresent(roles::add);
    }
    Set<String> topics = texts(where, one, "topics");
    for (String topic : topics) {
      require(
          topic.equals(Identity.ALL) || TOPIC.matcher(topic).matches(),
          where
              + ": \"topics\" holds \""
              + topic
              + "\", which is no topic: write *, a prefix that ends in /, or a whole topic, as in"
              + " persistent://tenant/namespace/topic");
    }
    Identity identity =
        new Identity(
            name,
            roles,
            topics,
            texts(where, one, "deployments"),
            quotas(where, one.get("quotas")));
    require(
        byName.put(name, identity) == null,
        where + ": the name \"" + name + "\" is another identity's; give each its own");
    Set<String> certificates = texts(where, one, "certificates");
    for (String certificate : certificates) {
      claim(byCertificate, subject(where, certificate), identity, "certificate", certificate);
    }
    Set<String> hashes = texts(where, one, "token_hashes");
    for (String hash : hashes) {
      var digits = HASH.matcher(hash);
      require(
          digits.matches(),
          where
              + ": \"token_hashes\" holds \""
              + hash
              + "\": write sha256: and the 64 lower-case hex digits that `sha256sum` says of the"
              + " token without its newline");
      require(
          !KNOWN_TO_ALL.contains(digits.group(1)),
          where
              + ": \"token_hashes\" holds the hash of an example's token, which everybody knows:"
              + " make one, for example with `openssl rand -hex 32`, and write its hash");
      claim(byHash, digits.group(1), identity, "token hash", hash);
    }
    Set<String> subjects = texts(where, one, "token_subjects");
    for (String subject : subjects) {
      claim(bySubject, subject, identity, "token subject", subject);
    }
    require(
        !(certificates.isEmpty() && hashes.isEmpty() && subjects.isEmpty()),
        where
            + " ("
            + name
            + ") has nothing to prove itself with: name \"certificates\", \"token_hashes\" or"
            + " \"token_subjects\"");
  }

  private static <K> void claim(
      Map<K, Identity> of, K key, Identity identity, String what, String text) {
    Identity other = of.put(key, identity);
    require(
        other == null,
        "the "
            + what
            + " "
            + text
            + " is of "
            + (other == null ? "" : other.name())
            + " and of "
            + identity.name()
            + "; leave it with one");
  }

  private static X500Principal subject(String where, String certificate) {
    try {
      return new X500Principal(certificate);
    } catch (IllegalArgumentException wrong) {
      throw new IllegalArgumentException(
          where
              + ": \"certificates\" holds \""
              + certificate
              + "\", which is no subject: write it as `openssl x509 -noout -subject -nameopt"
              + " RFC2253` says it",
          wrong);
    }
  }

  private static Map<Quota, Long> quotas(String where, JsonNode given) {
    Map<Quota, Long> quotas = new EnumMap<>(Quota.class);
    if (given == null) {
      return quotas;
    }
    members(where + ".quotas", given, QUOTAS);
    Iterator<Map.Entry<String, JsonNode>> fields = given.fields();
    while (fields.hasNext()) {
      Map.Entry<String, JsonNode> field = fields.next();
      JsonNode value = field.getValue();
      require(
          value.isIntegralNumber() && value.canConvertToLong() && value.longValue() >= 1,
          where + ".quotas." + field.getKey() + " is " + value + ": write a whole number above 0");
      for (Quota quota : Quota.values()) {
        if (quota.word().equals(field.getKey())) {
          quotas.put(quota, value.longValue());
        }
      }
    }
    return quotas;
  }

  private static Set<String> texts(String where, JsonNode of, String member) {
    Set<String> texts = new LinkedHashSet<>();
    JsonNode list = of.get(member);
    if (list == null) {
      return texts;
    }
    require(list.isArray(), where + ": \"" + member + "\" must be a list of strings");
    for (JsonNode one : list) {
      require(
          one.isTextual() && !one.textValue().isEmpty(),
          where + ": \"" + member + "\" must be a list of strings that are not empty");
      require(
          texts.add(one.textValue()),
          where + ": \"" + member + "\" names \"" + one.textValue() + "\" twice");
    }
    return texts;
  }

  private static void members(String where, JsonNode of, Set<String> known) {
    require(of != null && of.isObject(), where + " must be an object");
    of.fieldNames()
        .forEachRemaining(
            name ->
                require(
                    known.contains(name),
                    where
                        + " has the member \""
                        + name
                        + "\", which is none of "
                        + new TreeSet<>(known)));
  }

  private static void require(boolean holds, String otherwise) {
    if (!holds) {
      throw new IllegalArgumentException(otherwise);
    }
  }
}
