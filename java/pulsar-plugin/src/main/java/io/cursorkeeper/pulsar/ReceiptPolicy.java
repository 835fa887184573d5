package io.cursorkeeper.pulsar;

import java.util.Set;
import org.apache.pulsar.broker.service.Consumer;
import org.apache.pulsar.common.api.proto.CommandAck;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the broker's operator: who makes a client's receipt of an ack wait until the ack is
 * durable. Pulsar 5.0 does it by itself; before, an interceptor does, which broker.conf has to
 * name, and which 5.0 cannot run.
 */
public final class ReceiptPolicy {

  private static final Logger LOG = LoggerFactory.getLogger(ReceiptPolicy.class);

  /** As {@code brokerInterceptors} names it. */
  public static final String INTERCEPTOR = "cursorkeeper-receipts";

  private static final String INTERCEPTORS = "brokerInterceptors";

  private ReceiptPolicy() {}

  private static boolean pulsarWaits() {
    try {
      Consumer.class.getMethod("messageAcked", CommandAck.class, boolean.class);
      return true;
    } catch (NoSuchMethodException e) {
      return false;
    }
  }

  /**
   * The interceptor is named, or runs: raises SettingsException if this Pulsar must not have it.
   */
  public static void checkInterceptor() {
    if (pulsarWaits()) {
      throw unfit(
          "this Pulsar makes receipts wait by itself, and answers web requests with errors under"
              + " this interceptor");
    }
  }

  /** What the operator gets to read when the interceptor does not fit. */
  public static SettingsException unfit(String wrong) {
    return new SettingsException(
        INTERCEPTORS, INTERCEPTOR, wrong, "leave " + INTERCEPTOR + " out of " + INTERCEPTORS);
  }

  /** Warns if receipts shall wait, and nobody makes them. */
  static void warnIfNobodyWaits(Settings settings, Set<String> interceptors) {
    if (nobodyWaits(settings, interceptors, pulsarWaits())) {
      LOG.warn(
          "{}=durable, but this Pulsar answers clients' acks before the daemon has them: acks with"
              + " a receipt may come back after a crash. What to do: put"
              + " cursorkeeper-pulsar-receipts.nar into a folder, and into broker.conf {}={} and"
              + " brokerInterceptorsDirectory=THE FOLDER; or set {}=memory",
          Settings.RECEIPTS,
          INTERCEPTORS,
          INTERCEPTOR,
          Settings.RECEIPTS);
    }
  }

  static boolean nobodyWaits(Settings settings, Set<String> interceptors, boolean pulsarWaits) {
    return settings.receipts() == Settings.Receipts.DURABLE
        && !pulsarWaits
        && !interceptors.contains(INTERCEPTOR);
  }
}
