"""What tasks write: migrations from and to Pulsar, a cursor at a time. Knows no Spark, so that
tests need none.

Why a cursor is migrated exactly once, whatever dies, is retried, or runs twice. Four things, each
weaker without the next:

1. `claims`: a task holds a cursor's claim, an ephemeral znode, while it works on it. So no two
   attempts work on a cursor at once, as long
   as sessions say the truth about who lives. A claim is a courtesy, nothing depends on it but time
   and money.
2. The footer decides. An attempt reads it, asks the record of its run whether there is anything
   left to do, reads Pulsar's state, decides,
   and then claims *that footer and no other* (`core.events.Open.only`: compare-and-set of
   ZooKeeper's version, under the mark that was
   read). In this order: who has moved the footer since may have read a newer state, and the run may
   have ended since. Whoever stood still
   meanwhile (a zombie of a dead driver, a paused host, an attempt whose session has expired so that
   another has its claim) finds another
   footer and does nothing: neither to a cursor that another attempt has made, nor to one that a
   daemon has opened since, open or closed
   again, or deleted.
3. An attempt that holds the claim and finds an open footer of an import redoes it: whoever made it
   is dead, or has lost its claim. If it
   lives, the takeover is the daemon's own: epoch + 1, every ledger fenced, tombstone, a new cursor.
   The old attempt's next append is
   fenced and its next compare-and-set fails: it can add nothing to the new cursor and finish
   nothing of the old one. It then looks again,
   as everybody who lost, and finds the cursor "already there". No acks are lost: both read them
   from the same source, and nobody else can
   have acked in a footer that only imports have held.
4. A closed footer is whole: it is committed when every ack is durable, then read back and compared
   before the cursor counts. So there is
   never a half cursor that looks whole. What attempts leave are ledgers of an epoch below the
   footer's: garbage, by the daemon's own rule.

The claim's holder is asked for by the id of its process only on the same host; elsewhere its
ZooKeeper session decides. Both may be wrong about the living (another pid namespace, a session that
expired); then 2 and 3 hold. A process that never dies and never moves keeps its
claim: the others give that cursor up after `claim_wait_s` and say who has it.

The run's `record` (OPEN, then DONE or ABORTED, by compare-and-set) makes runs repeatable: one that
is DONE costs nothing, one that was cut off is continued by comparing, and one that is ABORTED
begins no cursor any more, whoever tries. A closed footer names the run that made it: where it can
be read and differs from Pulsar's, Pulsar has moved on, and for this run the cursor is done. Not if
the run itself found it wrong when it read it back: that is kept below the record.

An export has the same claim and the same record. There the cursor's own znode in Pulsar's store
decides, by its version.
"""
