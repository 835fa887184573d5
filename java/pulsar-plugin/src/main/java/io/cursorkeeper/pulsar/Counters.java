package io.cursorkeeper.pulsar;

import java.util.concurrent.atomic.LongAdder;

/** Serves the broker's operator: what the plugin counts, of all cursors of a broker since its start. For any number of threads. */
public final class Counters {

    /** Cursors whose copy at the keeper follows Pulsar's now. */
    public final LongAdder shadowsFollowing = new LongAdder();

    public final LongAdder shadowComparisons = new LongAdder();

    /** Comparisons that found that the copy is not what Pulsar holds. */
    public final LongAdder shadowDifferences = new LongAdder();

    /** Comparisons that could not be made: no answer, or a copy that is too far behind. */
    public final LongAdder shadowsUnanswered = new LongAdder();

    /** Copies that were given up because too much waited for the keeper. */
    public final LongAdder shadowsGivenUp = new LongAdder();

    /** Acked entries that Pulsar alone would deliver again after a crash, as of every cursor's newest comparison. */
    public final LongAdder shadowEntriesAtRisk = new LongAdder();
}
