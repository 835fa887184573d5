package io.cursorkeeper.pulsar;

import java.util.Map;
import java.util.TreeMap;

/**
 * What the plugin writes into a kept cursor's own properties, at the keeper: whose opening made it, whether Pulsar's state was taken over
 * wholly, and which version of Pulsar's znode the keeper's state belongs to. Pulsar's own string properties stay in the znode.
 *
 * <p>Before the plugin lets Pulsar write the znode it imprints the version that the write will make. So at a load the znode has that
 * version, or the one before it if the write did not come; any other was written while the keeper did not hold the cursor.
 *
 * @param created the nonce of the opening that made the cursor
 * @param importing whether Pulsar's state is the truth: it may be here in part only, or as a copy
 * @param znode that the state belongs to; null: not known
 */
public record Imprint(String created, boolean importing, Znode znode) {

    /** A version of the cursor's znode. One that was deleted and made again has another time of creation. */
    public record Znode(long createdAtMs, long version) {

        static Znode parse(String text) {
            int at = text.indexOf('@');
            try {
                return new Znode(Long.parseLong(text.substring(at + 1)), Long.parseLong(text.substring(0, at)));
            } catch (NumberFormatException | IndexOutOfBoundsException e) {
                return null;
            }
        }

        /** As the next write makes it. */
        public Znode next() {
            return new Znode(createdAtMs, version + 1);
        }

        @Override
        public String toString() {
            return version + "@" + createdAtMs;
        }
    }

    static final String CREATED = "pulsar.created";
    static final String IMPORTING = "pulsar.importing";
    static final String COPY = "shadow";
    static final String ZNODE = "pulsar.znode";

    public static Imprint of(Map<String, String> properties) {
        String znode = properties.get(ZNODE);
        return new Imprint(properties.getOrDefault(CREATED, ""), properties.containsKey(IMPORTING), znode == null ? null : Znode.parse(znode));
    }

    /** Of a copy that follows Pulsar's cursor: Pulsar's state is the truth, and is taken over whenever the keeper shall hold the cursor. */
    public static Map<String, String> ofCopy(String created) {
        return Map.of(CREATED, created, IMPORTING, COPY);
    }

    public Map<String, String> properties() {
        Map<String, String> properties = new TreeMap<>();
        properties.put(CREATED, created);
        if (importing) {
            properties.put(IMPORTING, "true");
        }
        if (znode != null) {
            properties.put(ZNODE, znode.toString());
        }
        return properties;
    }

    /** Whether the state is of this znode as it is now. Of a cursor that was just made the znode is in its first version. */
    public boolean belongsTo(Znode now) {
        return znode == null ? now.version() == 0 : znode.equals(now) || znode.equals(now.next());
    }

    public Imprint with(Znode of) {
        return new Imprint(created, false, of);
    }

    public Imprint whileImporting() {
        return new Imprint(created, true, znode);
    }
}
