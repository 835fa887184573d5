package org.apache.bookkeeper.mledger.impl;

import org.apache.bookkeeper.mledger.AsyncCallbacks.ReadEntriesCallback;
import org.apache.pulsar.broker.service.Dispatcher;
import org.apache.pulsar.broker.service.Topic;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Finds the topic of a reader of entries, and unloads it: clients look it up again. Storage knows no topics, but its readers do. */
final class Topics {

    private static final Logger LOG = LoggerFactory.getLogger(Topics.class);

    private Topics() {}

    /** Does nothing if the reader is of no topic. */
    static void unload(ReadEntriesCallback reader) {
        Topic topic = reader instanceof Dispatcher ? Members.topicOf(reader) : null;
        if (topic == null) {
            return;
        }
        topic.close(true).whenComplete((nothing, failure) -> {
            if (failure != null) {
                LOG.warn("[{}] The fenced topic did not unload: {}", topic.getName(), failure.toString());
            }
        });
    }
}
