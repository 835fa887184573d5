/**
 * Serves the broker's operator: what of the plugin needs no inside of Pulsar. Its settings, which
 * topics are kept, what a keeper is told of a topic's data ledgers, and how a stale state is known.
 * {@code org.apache.bookkeeper.mledger.impl} holds the rest.
 */
package io.cursorkeeper.pulsar;
