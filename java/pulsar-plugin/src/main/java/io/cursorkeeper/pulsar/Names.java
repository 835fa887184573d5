package io.cursorkeeper.pulsar;

import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.common.util.Codec;

/**
 * Serves operators: at the keeper a cursor has the names that people and the other tools use, not
 * those of Pulsar's storage.
 */
public final class Names {

  private static final String DOMAIN = "/persistent/";
  private static final String PENDING_ACKS = "__transaction_pending_ack";

  private Names() {}

  /**
   * {@code persistent://tenant/namespace/topic} of {@code tenant/namespace/persistent/topic}, and
   * so with a cluster behind the tenant. Any other ledger keeps its name.
   */
  public static String topic(String managedLedger) {
    int at = managedLedger.indexOf(DOMAIN);
    String local = at < 0 ? "" : managedLedger.substring(at + DOMAIN.length());
    if (local.isEmpty()
        || local.indexOf('/') >= 0
        || !managedLedger.substring(0, at).matches("[^/]+/[^/]+(/[^/]+)?")) {
      return managedLedger;
    }
    return "persistent://" + managedLedger.substring(0, at + 1) + Codec.decode(local);
  }

  /** A subscription of a topic. */
  public record Owner(String topic, String subscription) {}

  /**
   * Who may have this ledger as its log of acks within transactions, by the name that {@link
   * #topic} gives it: it has those of topic and subscription, joined by a hyphen, and each of the
   * two may have hyphens, too. Empty for any other ledger.
   */
  public static List<Owner> ownersOfPendingAcks(String name) {
    List<Owner> owners = new ArrayList<>();
    if (name.endsWith(PENDING_ACKS)) {
      String both = name.substring(0, name.length() - PENDING_ACKS.length());
      for (int at = both.indexOf('-', both.lastIndexOf('/') + 2);
          at > 0 && at < both.length() - 1;
          at = both.indexOf('-', at + 1)) {
        owners.add(new Owner(both.substring(0, at), both.substring(at + 1)));
      }
    }
    return owners;
  }

  /** As the subscription was named by its user. */
  public static String subscription(String cursor) {
    return Codec.decode(cursor);
  }
}
