package org.apache.bookkeeper.mledger.impl;

import io.cursorkeeper.client.KeeperLink;
import io.cursorkeeper.pulsar.Counters;
import io.cursorkeeper.pulsar.Settings;
import io.opentelemetry.api.OpenTelemetry;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.function.Supplier;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.mledger.ManagedLedgerConfig;
import org.apache.bookkeeper.mledger.ManagedLedgerException;
import org.apache.bookkeeper.mledger.ManagedLedgerFactoryConfig;
import org.apache.bookkeeper.stats.StatsLogger;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;

/** Serves the broker: makes managed ledgers whose cursors the keeper holds, for the topics that the settings name. Ends the link. */
public final class KeptLedgerFactory extends ManagedLedgerFactoryImpl {

    private final Settings settings;
    private final KeeperLink link;
    private final ExecutorService answers;
    private final Counters counters = new Counters();

    KeptLedgerFactory(
            MetadataStoreExtended metadataStore,
            BookkeeperFactoryForCustomEnsemblePlacementPolicy bookKeeper,
            ManagedLedgerFactoryConfig config,
            StatsLogger stats,
            OpenTelemetry openTelemetry,
            Settings settings,
            KeeperLink link,
            ExecutorService answers)
            throws Exception {
        super(metadataStore, bookKeeper, config, stats, openTelemetry);
        this.settings = settings;
        this.link = link;
        this.answers = answers;
    }

    Counters counters() {
        return counters;
    }

    /** A shadow topic has no durable cursors of its own: Pulsar's. */
    @Override
    protected ManagedLedgerImpl createManagedLedger(
            BookKeeper bookKeeper,
            MetaStore store,
            String name,
            ManagedLedgerConfig config,
            Supplier<CompletableFuture<Boolean>> ownership) {
        if (config.getShadowSource() != null || !settings.namespaces().contains(name)) {
            return super.createManagedLedger(bookKeeper, store, name, config, ownership);
        }
        return new KeptLedger(this, bookKeeper, store, config, name, ownership, settings, link);
    }

    @Override
    public CompletableFuture<Void> shutdownAsync() throws ManagedLedgerException {
        return super.shutdownAsync().whenComplete((nothing, failure) -> {
            link.close();
            answers.shutdown();
        });
    }
}
