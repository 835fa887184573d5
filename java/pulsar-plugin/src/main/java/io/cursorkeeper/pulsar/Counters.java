package io.cursorkeeper.pulsar;

import java.util.concurrent.atomic.LongAdder;

/**
 * Serves the broker's operator: what the plugin counts, of all cursors of a broker since its start.
 * For any number of threads.
 */
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

  /**
   * Loads of cursors of which the keeper has more than Pulsar: they are left as they are, and not
   * copied.
   */
  public final LongAdder shadowsRefused = new LongAdder();

  /**
   * Acked entries that Pulsar alone would deliver again after a crash, as of every cursor's newest
   * comparison.
   */
  public final LongAdder shadowEntriesAtRisk = new LongAdder();

  /** Cursors that were opened at the keeper, for a load or a new subscription. */
  public final LongAdder opens = new LongAdder();

  /** Cursors that could not be loaded from the keeper. */
  public final LongAdder failedLoads = new LongAdder();

  /** Loads of topics that went on with Pulsar's own cursors, because the keeper did not answer. */
  public final LongAdder stockLoads = new LongAdder();

  /** Pulsar's own state taken over to the keeper. */
  public final LongAdder imports = new LongAdder();

  /** Loads that found that Pulsar itself had changed the cursor since the keeper held it. */
  public final LongAdder stale = new LongAdder();

  /** Cursors whose topic a newer load has. */
  public final LongAdder fenced = new LongAdder();

  /** Cursors that somebody else opened or set back. */
  public final LongAdder deposed = new LongAdder();

  /**
   * Acks that were answered by a failure because too much waited; those of them that were taken
   * become durable all the same.
   */
  public final LongAdder acksWithoutRoom = new LongAdder();

  /** Changes that the keeper refused for what they say: answered by a failure, and not kept. */
  public final LongAdder changesRefused = new LongAdder();

  /** Unloads that did not wait for the keeper's word any longer. */
  public final LongAdder closesWithoutWord = new LongAdder();

  /** From the first ack of a group to the keeper's answer. */
  public final Latencies receipts = new Latencies();
}
