package io.cursorkeeper.pulsar;

import org.apache.pulsar.common.util.Codec;

/** Serves operators: at the keeper a cursor has the names that people and the other tools use, not those of Pulsar's storage. */
public final class Names {

    private static final String DOMAIN = "/persistent/";

    private Names() {}

    /**
     * {@code persistent://tenant/namespace/topic} of {@code tenant/namespace/persistent/topic}, and so with a cluster behind the tenant. Any
     * other ledger keeps its name.
     */
    public static String topic(String managedLedger) {
        int at = managedLedger.indexOf(DOMAIN);
        String local = at < 0 ? "" : managedLedger.substring(at + DOMAIN.length());
        if (local.isEmpty() || local.indexOf('/') >= 0 || !managedLedger.substring(0, at).matches("[^/]+/[^/]+(/[^/]+)?")) {
            return managedLedger;
        }
        return "persistent://" + managedLedger.substring(0, at + 1) + Codec.decode(local);
    }

    /** As the subscription was named by its user. */
    public static String subscription(String cursor) {
        return Codec.decode(cursor);
    }
}
