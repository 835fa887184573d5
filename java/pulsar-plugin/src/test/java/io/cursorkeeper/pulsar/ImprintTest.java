package io.cursorkeeper.pulsar;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.cursorkeeper.pulsar.Imprint.Znode;
import java.util.Map;
import org.junit.jupiter.api.Test;

class ImprintTest {

    private static Imprint of(long version) {
        return new Imprint("nonce", false, new Znode(1_000, version));
    }

    @Test
    void isReadAsWritten() {
        Imprint whole = new Imprint("nonce", true, new Znode(1_700_000_000_000L, 12));
        assertEquals(whole, Imprint.of(whole.properties()));
        assertEquals(new Imprint("", false, null), Imprint.of(Map.of()));
        assertEquals(new Imprint("", false, null), Imprint.of(Map.of("pulsar.znode", "what@ever")));
        assertEquals(new Imprint("nonce", false, null), Imprint.of(new Imprint("nonce", false, null).properties()));
    }

    @Test
    void theVersionThatWasNotedOrTheOneBeforeItIsOurs() {
        assertTrue(of(5).belongsTo(new Znode(1_000, 5)));
        assertTrue(of(5).belongsTo(new Znode(1_000, 4)), "the write that was noted did not come");
        assertFalse(of(5).belongsTo(new Znode(1_000, 6)), "somebody else wrote");
        assertFalse(of(5).belongsTo(new Znode(1_000, 3)));
        assertFalse(of(5).belongsTo(new Znode(1_001, 5)), "deleted and made again");
    }

    @Test
    void ofANewCursorTheFirstVersionIsOurs() {
        Imprint fresh = new Imprint("nonce", false, null);
        assertTrue(fresh.belongsTo(new Znode(1_000, 0)));
        assertFalse(fresh.belongsTo(new Znode(1_000, 1)));
    }
}
