package org.apache.bookkeeper.mledger.impl;

import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.Executor;

/** What differs between lines of Pulsar, here for 4.2 and later. */
final class Line {

    private Line() {}

    /** Entries of a topic's data ledgers by id; 0: it is written now. */
    static NavigableMap<Long, Long> entries(ManagedLedgerImpl ledger) {
        NavigableMap<Long, Long> entries = new TreeMap<>();
        ledger.ledgers.forEach((id, info) -> entries.put(id, info.hasEntries() ? info.getEntries() : 0L));
        return entries;
    }

    static Executor executor(ManagedLedgerImpl ledger) {
        return ledger.getExecutor();
    }
}
