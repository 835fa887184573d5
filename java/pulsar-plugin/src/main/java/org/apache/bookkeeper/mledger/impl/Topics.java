package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.pulsar.Names;
import java.lang.reflect.Field;
import java.util.Optional;
import org.apache.bookkeeper.mledger.AsyncCallbacks.OpenLedgerCallback;
import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.pulsar.broker.service.Dispatcher;
import org.apache.pulsar.broker.service.Topic;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Finds the topic of a reader of entries, and unloads it: clients look it up again. Storage knows
 * no topics, but its readers do.
 */
final class Topics {

  private static final Logger LOG = LoggerFactory.getLogger(Topics.class);

  private Topics() {}

  /**
   * The broker by which a topic's ledger is asked for; null: it is not asked for by one. Pulsar
   * keeps it in the callback's class only. Neither it nor its topics are named here as classes:
   * they cannot be loaded without all that a broker has.
   */
  static Object brokerOf(OpenLedgerCallback callback) {
    for (Field each : callback.getClass().getDeclaredFields()) {
      if (each.getType().getName().equals("org.apache.pulsar.broker.service.BrokerService")) {
        try {
          each.setAccessible(true);
          return each.get(callback);
        } catch (ReflectiveOperationException | RuntimeException e) {
          LOG.warn(
              "The broker is not found, so a fenced topic is unloaded at its next read: {}",
              e.toString());
        }
      }
    }
    return null;
  }

  /** Lets a dispatcher pause or go on, as it does after acks: Pulsar asks the cursor only then. */
  static void lookAgain(ReadEntriesCallback reader) {
    if (reader instanceof Dispatcher dispatcher) {
      dispatcher.afterAckMessages(null, null);
    }
  }

  /**
   * Of a cursor that cannot keep what is acked next: whether its dispatch pauses for that, by the
   * topic's policy.
   */
  static boolean pauses(ReadEntriesCallback reader) {
    return reader instanceof Dispatcher dispatcher && !dispatcher.checkAndResumeIfPaused();
  }

  /** Does nothing if the reader is of no topic. */
  static void unload(ReadEntriesCallback reader) {
    Topic topic = reader instanceof Dispatcher ? Members.topicOf(reader) : null;
    if (topic != null) {
      close(topic);
    }
  }

  /**
   * Unloads the topic of this ledger, or whose log of pending acks it is. False if the broker does
   * not have it, or not yet.
   */
  static boolean unload(Object broker, KeptLedger of) {
    String name = Names.topic(of.getName());
    try {
      Object topic = loaded(broker, name);
      if (topic != null && topic.getClass().getMethod("getManagedLedger").invoke(topic) == of) {
        close((Topic) topic);
        return true;
      }
      boolean isFound = false;
      for (Names.Owner each : Names.ownersOfPendingAcks(name)) {
        if (loaded(broker, each.topic()) instanceof Topic owner
            && owner.getSubscription(each.subscription()) != null) {
          LOG.warn(
              "[{}] It is the log of pending acks of {}, which is unloaded", of.getName(), each);
          close(owner);
          isFound = true;
        }
      }
      return isFound;
    } catch (ReflectiveOperationException e) {
      LOG.warn(
          "[{}] The fenced topic is unloaded at its next read, because the broker cannot be asked"
              + " for it: {}",
          of.getName(),
          e.toString());
      return true;
    }
  }

  /** Null: the broker does not have it. */
  private static Object loaded(Object broker, String topic) throws ReflectiveOperationException {
    return ((Optional<?>)
            broker.getClass().getMethod("getTopicReference", String.class).invoke(broker, topic))
        .orElse(null);
  }

  private static void close(Topic topic) {
    topic
        .close(true)
        .whenComplete(
            (nothing, failure) -> {
              if (failure != null) {
                LOG.warn(
                    "[{}] The fenced topic did not unload: {}",
                    topic.getName(),
                    failure.toString());
              }
            });
  }
}
