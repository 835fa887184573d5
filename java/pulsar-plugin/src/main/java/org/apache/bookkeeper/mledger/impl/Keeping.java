package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.client.LinkSettings;
import io.cursorkeeper.pulsar.Settings;
import io.cursorkeeper.pulsar.UnsupportedPulsarException;
import io.opentelemetry.api.OpenTelemetry;
import io.prometheus.client.CollectorRegistry;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.mledger.impl.ManagedLedgerFactoryImpl.BookkeeperFactoryForCustomEnsemblePlacementPolicy;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves the storage class: the way to the classes of this package. They are loaded only after
 * {@link #check} found all they need.
 */
public final class Keeping {

  private static final Logger LOG = LoggerFactory.getLogger(Keeping.class);

  /**
   * Of unconfirmed acks, joined. Beyond it dispatch pauses; acks that come all the same are taken.
   */
  static final long MEMORY_BYTES_MAX = 64L << 20;

  /** Beyond it they are not taken. */
  static final long MEMORY_BYTES_REFUSED = 2 * MEMORY_BYTES_MAX;

  private Keeping() {}

  /** Raises UnsupportedPulsarException if this Pulsar lacks a member that the plugin works with. */
  public static void check() {
    List<String> missing = Members.missing(Keeping.class.getClassLoader());
    if (!missing.isEmpty()) {
      throw new UnsupportedPulsarException(version(), missing);
    }
  }

  /**
   * Of a package in which nothing of ours lies: a package has the version of the jar that is asked
   * first.
   */
  static String version() {
    String version = ManagedLedgerFactoryConfig.class.getPackage().getImplementationVersion();
    return version == null ? "of this broker" : version;
  }

  /** Read at every connection, so that a new one counts without a restart. */
  private static byte[] token(Path file) {
    try {
      return Files.readString(file).strip().getBytes(StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * One link for the broker. Its answers come on a thread of their own, which hands them to the
   * topics' executors.
   */
  public static ManagedLedgerFactoryImpl factory(
      MetadataStoreExtended metadataStore,
      BookkeeperFactoryForCustomEnsemblePlacementPolicy bookKeeper,
      ManagedLedgerFactoryConfig config,
      StatsLogger stats,
      OpenTelemetry openTelemetry,
      Settings settings)
      throws Exception {
    ExecutorService answers =
        Executors.newSingleThreadExecutor(
            work -> {
              Thread thread = new Thread(work, "cursorkeeper-answers");
              thread.setDaemon(true);
              return thread;
            });
    KeeperLink link =
        KeeperLink.connect(
            LinkSettings.of(settings.address(), answers)
                .withName("pulsar-broker")
                .withMemoryBytesMax(MEMORY_BYTES_MAX)
                .withCredentials(() -> settings.tokenFile().map(Keeping::token).orElse(new byte[0]))
                .withTls(settings.tls())
                .withTimeouts(settings.openTimeout(), settings.closeTimeout()),
            problem -> say(settings.address(), problem));
    try {
      return new KeptLedgerFactory(
          metadataStore, bookKeeper, config, stats, openTelemetry, settings, link, answers);
    } catch (Exception | Error e) {
      link.close();
      answers.shutdown();
      throw e;
    }
  }

  private static void say(String address, String problem) {
    if (problem.isEmpty()) {
      LOG.info("Linked with the CursorKeeper daemon at {}", address);
    } else {
      LOG.warn(
          "No link with the CursorKeeper daemon at {}, which is tried again: {}", address, problem);
    }
  }

  /** Shows the figures of a factory of ours on the broker's metrics page, until its end. */
  public static void show(ManagedLedgerFactoryImpl factory, CollectorRegistry registry) {
    ((KeptLedgerFactory) factory).show(registry);
  }
}
