package io.cursorkeeper.gateway.access;

import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * One who is known to the gateway, as its identities file says: the roles that it may name, and
 * whose ledgers it may have to do with.
 *
 * @param roles those of them that a gateway knows
 * @param topics names, prefixes that end in a slash, or {@link #ALL}
 * @param deployments ids, or {@link #ALL}
 */
record Identity(
    String name,
    Set<Role> roles,
    Set<String> topics,
    Set<String> deployments,
    Map<Quota, Long> quotas) {

  static final String ALL = "*";
  private static final Pattern PARTITION = Pattern.compile("(.+)-partition-\\d+");

  /**
   * Whoever may connect, where there is no identities file: a token of a role, a certificate, or
   * this machine was proof enough, and nobody is told from another.
   */
  static final Identity ANYBODY =
      new Identity(
          "anybody", Set.of(Role.values()), Set.of(ALL), Set.of(ALL), Map.<Quota, Long>of());

  /** The gateway's own calls to itself. No name of a file has a space in it. */
  static final Identity ITSELF =
      new Identity(
          "the gateway itself", Set.of(Role.WRITER), Set.of(), Set.of(ALL), Map.<Quota, Long>of());

  Identity {
    roles = Set.copyOf(roles);
    topics = Set.copyOf(topics);
    deployments = Set.copyOf(deployments);
    quotas = Map.copyOf(quotas);
  }

  /** Whether a file names it, so that its rights are its own. */
  boolean isOfAFile() {
    return this != ANYBODY && this != ITSELF;
  }

  boolean hasDeployment(String deployment) {
    return deployments.contains(ALL) || (!deployment.isEmpty() && deployments.contains(deployment));
  }

  /** Whether the topic, or the partitioned topic that it is a partition of, is its own. */
  boolean hasTopic(String topic) {
    if (topics.contains(ALL)) {
      return true;
    }
    var partition = PARTITION.matcher(topic);
    return !topic.isEmpty()
        && (topics.contains(topic)
            || (partition.matches() && topics.contains(partition.group(1)))
            || topics.stream().anyMatch(one -> one.endsWith("/") && topic.startsWith(one)));
  }

  OptionalLong limit(Quota quota) {
    return Optional.ofNullable(quotas.get(quota))
        .map(OptionalLong::of)
        .orElse(OptionalLong.empty());
  }
}
