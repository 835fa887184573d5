package io.cursorkeeper.gateway.access;

import io.cursorkeeper.gateway.failure.LedgerFailure;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/** How many calls of a kind each identity has open, so that none takes what is everybody's. */
final class Quotas {
  private record Key(String name, Quota quota) {}

  private final Map<Key, Integer> open = new ConcurrentHashMap<>();

  /**
   * Counts a call in; what is returned counts it out, once. Throws a refusal that names identity,
   * quota and limit.
   */
  Runnable enter(Identity identity, Rpc rpc) {
    Quota quota =
        switch (rpc) {
          case APPEND -> Quota.STREAMS;
          case READ -> Quota.READS;
          case LIST -> Quota.LISTS;
          default -> null;
        };
    if (quota == null || !identity.isOfAFile()) {
      return () -> {};
    }
    OptionalLong limit = identity.limit(quota);
    Key key = new Key(identity.name(), quota);
    int now = open.merge(key, 1, Integer::sum);
    AtomicBoolean hasLeft = new AtomicBoolean();
    Runnable leave =
        () -> {
          if (!hasLeft.getAndSet(true)) {
            open.computeIfPresent(key, (same, number) -> number == 1 ? null : number - 1);
          }
        };
    if (limit.isPresent() && now > limit.getAsLong()) {
      leave.run();
      throw over(identity, quota);
    }
    return leave;
  }

  static LedgerFailure over(Identity identity, Quota quota) {
    return LedgerFailure.later(
        "QUOTA",
        identity.name()
            + " has all that its quota "
            + quota.word()
            + " allows, "
            + identity.limit(quota).orElse(0)
            + " "
            + quota.about()
            + ": wait until some end, or raise it in the file that --"
            + AccessSettings.IDENTITIES_FILE
            + " names");
  }

  /** Of all identities. */
  int open() {
    return open.values().stream().mapToInt(Integer::intValue).sum();
  }
}
