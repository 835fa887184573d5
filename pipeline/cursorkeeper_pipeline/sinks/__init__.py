"""What tasks write: migrations from and to Pulsar, a cursor at a time. Knows no Spark, so that
tests need none.

Why a cursor is migrated exactly once, whatever dies, is retried, runs twice or comes late. Nothing
is locked: an attempt may act only on what it has seen, and what decides is one compare-and-set.

Of an import our footer decides. An attempt reads it, asks the record of its run whether there is
anything left to do, reads Pulsar's state, decides, and then claims *that footer and no other*
(`core.events.Open.only`: compare-and-set of ZooKeeper's version, under the mark that was read). In
this order: who has moved the footer since may have read a newer state, and the run may have ended
since. Whoever stood still meanwhile (a zombie of a dead driver, a paused host, a speculative copy)
finds another footer and does nothing: neither to a cursor that another attempt has made, nor to one
that a daemon has opened since, open or closed again, or deleted.

An open footer of an import is somebody's work, or what a dead attempt has left. It is waited for,
so that two attempts do not do the same twice; once it stays as it is for `wait_s`, or its process
was one of this host and is gone, it is redone. Nothing but time and money depends on who is taken
for dead. If its maker lives, the takeover is the daemon's own: epoch + 1, every ledger fenced,
tombstone, a new cursor. The old attempt's next append is fenced and its next compare-and-set fails:
it can add nothing to the new cursor and finish nothing of the old one. It then looks again, as
everybody who lost, and finds the cursor "already there". No acks are lost: both read them from the
same source, and nobody else can have acked in a footer that only imports have held.

A closed footer is whole: it is committed when every ack is durable, then read back and compared
before the cursor counts. So there is never a half cursor that looks whole. What attempts leave are
ledgers of an epoch below the footer's: garbage, by the daemon's own rule.

The run's `record` (OPEN, then DONE or ABORTED, by compare-and-set) makes runs repeatable: one that
is DONE costs nothing, one that was cut off is continued by comparing, and one that is ABORTED
begins no cursor any more, whoever tries. A closed footer names the run that made it: where it can
be read and differs from Pulsar's, Pulsar has moved on, and for this run the cursor is done. Not if
the run itself found it wrong when it read it back: that is noted below the record.

Of an export the cursor's own znode in Pulsar's store decides, by its version and the topic's
(`migration.pulsar_writer`). The same record is asked; a run that replaces also notes there what it
may replace (`cursor_export`), and its new ledgers say whose they are (`migration.leftovers`). Two
attempts at once both make a ledger; one of them swaps the znode, and the other deletes its own.
"""
