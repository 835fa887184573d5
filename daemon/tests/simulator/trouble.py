"""What breaks during a run: machines, processes, connections, stored bytes. Each kind is a
function; the plan weighs them.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from cursorkeeper.core.footer import Footer, SnapshotBase
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.values import SnapshotEnd
from cursorkeeper.format import record
from daemon.tests.fakes.bookkeeper.fake import Damage

if TYPE_CHECKING:
    from daemon.tests.simulator.simulator import Node, Simulation

KINDS: dict[str, float] = {
    "crash": 3,
    "new_node": 3,
    "gateway_restart": 1,
    "gateway_away": 1,
    "stream_breaks": 1,
    "bookies_away": 1,
    "acks_stall": 1,
    "fence": 2,
    "zk_disconnect": 2,
    "zk_expire": 1,
    "zk_lag": 2,
    "zk_down": 0.5,
    "zk_stall": 2,
    "zk_old_leader": 2,
    "spurious_watches": 1,
    "collect": 2,
    "damage": 2,
    "delete_unopened": 0.3,
}


async def make(sim: Simulation, rng: random.Random) -> None:
    """Until the run's time is over."""
    end = sim.plan.duration_s
    kinds, weights = zip(*sim.plan.troubles.items(), strict=True)
    while True:
        pause = rng.expovariate(1 / sim.plan.trouble_s)
        if sim.loop.time() + pause >= end:
            break
        await asyncio.sleep(pause)
        kind = rng.choices(kinds, weights)[0]
        sim.stats[f"trouble {kind}"] += 1
        sim.check.log(f"trouble {kind}")
        globals()[f"_{kind}"](sim, rng)
    await asyncio.sleep(max(0.0, end - sim.loop.time()))


def end(sim: Simulation) -> None:
    """Nothing breaks any more, and what was broken is back."""
    store, server = sim.bookkeeper, sim.server
    # the operator raised the limit
    sim.writer.settings = replace(sim.writer.settings, ranges_max=None)
    store.faults.clear()
    store.faults.delay_max_s = 0.001
    store.bookies_up = store.bookies
    store.stall_acks(False)
    for node in sim.nodes:
        if not node.gateway.process.up:
            node.gateway.inner.come_up()
    if not server.up:
        server.start()
    faults = server.faults
    faults.clear()
    faults.stale_reads, faults.watch_drop_probability, faults.latency_s = False, 0.0, (0.0, 0.001)
    for node in sim.nodes:
        node.session.catch_up()


def _pick(sim: Simulation, rng: random.Random) -> Node | None:
    return sim.some_node(rng)


def _crash(sim: Simulation, rng: random.Random) -> None:
    node = _pick(sim, rng)
    if node is not None:
        sim.loop.after_turns(rng.randint(1, 60), lambda: None if sim.over else sim.crash(node, rng))
        if rng.random() < 0.7:
            _new_node(sim, rng)


def _new_node(sim: Simulation, rng: random.Random) -> None:
    if len(sim.nodes) < 3:
        task = sim.loop.create_task(sim.start_node())
        task.add_done_callback(lambda t: t.cancelled() or t.exception())


def _gateway_restart(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.gateway.inner.restart()


def _gateway_away(sim: Simulation, rng: random.Random) -> None:
    if (node := _pick(sim, rng)) and node.gateway.process.up:
        gateway = node.gateway.inner
        gateway.kill()
        sim.loop.call_later(
            rng.choice((0.05, 0.5, 2.5)), lambda: gateway.process.up or gateway.come_up()
        )


def _stream_breaks(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.gateway.inner.break_stream()


def _bookies_away(sim: Simulation, rng: random.Random) -> None:
    store = sim.bookkeeper
    store.bookies_up = rng.randint(0, store.bookies - 1)

    def back() -> None:
        store.bookies_up = store.bookies

    sim.loop.call_later(rng.choice((0.05, 0.5, 2.5)), back)


def _acks_stall(sim: Simulation, rng: random.Random) -> None:
    sim.bookkeeper.stall_acks(True)
    sim.loop.call_later(rng.choice((0.05, 0.5, 3.0)), sim.bookkeeper.stall_acks, False)


def _fence(sim: Simulation, rng: random.Random) -> None:
    """Auto-recovery takes it for dead."""
    ids = sorted(sim.ledgers)
    if ids:
        sim.bookkeeper.fence_behind(rng.choice(ids[-4:]))


def _zk_disconnect(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.session.disconnect(rng.choice((0.01, 0.2, 1.5, 4.0)))


def _zk_expire(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.session.expire(rng.choice((0.01, 0.5)))


def _zk_lag(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.session.lag()
        sim.loop.call_later(rng.choice((0.1, 1.0)), lambda: node.alive and node.session.catch_up())


def _zk_stall(sim: Simulation, rng: random.Random) -> None:
    """The daemon's link to ZooKeeper carries nothing for a while, and is not lost."""
    if node := _pick(sim, rng):
        node.session.stall(rng.choice((0.1, 0.5, 1.5)), answers_only=rng.random() < 0.5)


def _zk_old_leader(sim: Simulation, rng: random.Random) -> None:
    """Its server is a leader that was deposed and does not know it."""
    if node := _pick(sim, rng):
        node.session.follow_old_leader(rng.choice((0.2, 1.0, 3.0)))


def _zk_down(sim: Simulation, rng: random.Random) -> None:
    if sim.server.up:
        sim.server.stop()
        sim.loop.call_later(
            rng.choice((0.1, 1.0, 3.0)), lambda: sim.server.up or sim.server.start()
        )


def _slow_recoveries(sim: Simulation, rng: random.Random) -> None:
    """Ledgers that its gateway recovers take their time."""
    if node := _pick(sim, rng):
        node.gateway.recovers_at_s = sim.loop.time() + rng.choice((0.1, 0.3, 1.0))


def _spurious_watches(sim: Simulation, rng: random.Random) -> None:
    if node := _pick(sim, rng):
        node.session.fire_watches_spuriously()


def _collect(sim: Simulation, rng: random.Random) -> None:
    sim.loop.create_task(sim.collect(lag=rng.random() < 0.5)).add_done_callback(
        lambda t: t.cancelled() or t.exception()
    )


def _delete_unopened(sim: Simulation, rng: random.Random) -> None:
    node = _pick(sim, rng)
    if node is None or not sim.plan.actions["delete"]:
        return
    source = rng.choice([*sim.sources, *sim.replaced])
    source.delete_unopened(node)


def _damage(sim: Simulation, rng: random.Random) -> None:
    for source in rng.sample(sim.sources, len(sim.sources)):
        if _damage_one(sim, rng, source.model.name):
            return


def _damage_one(sim: Simulation, rng: random.Random, name: CursorName) -> bool:
    """Spoils one entry that a fall-back must survive: a segment, an end record, a delta in front of
    the snapshot. One at a time per cursor: what was damaged before must have left its footer.
    """
    if name not in sim.check.monitor.current:
        return False
    footer = sim.check.monitor.current[name][1]
    base = footer.base
    if (
        not isinstance(base, SnapshotBase)
        or footer.previous is None
        or sim.damaged & footer.named_ledgers()
    ):
        return False
    end_record = record.decode(
        sim.ledgers[base.ledger].entries[base.last_entry], name.record_hash
    ).body
    assert isinstance(end_record, SnapshotEnd)
    what = rng.choices(("segment", "end", "before"), (5, 3, 2))[0]
    if what == "before":
        entry = rng.randrange(base.first_entry)
    else:
        entry = base.last_entry if what == "end" else rng.choice(end_record.segment_entries)
    how = rng.choice((Damage.FLIP, Damage.TRUNCATE, Damage.DIGEST))
    sim.damaged.add(base.ledger)
    sim.bookkeeper.damage(base.ledger, entry, how)
    sim.stats[f"damage {what}"] += 1
    sim.check.log(f"damage {how} {what}: ledger {base.ledger} entry {entry}")
    return True


def after_switch(sim: Simulation, name: CursorName, footer: Footer) -> None:
    """Perhaps the owner dies with its next deltas unsent; its successor reads the snapshot, which
    is damaged then.
    """
    rng = sim.rng
    if sim.over or rng.random() >= sim.plan.switch_chance:
        return
    _crash_owner(sim, footer.writer, rng.randint(1, 6))

    def then() -> None:
        if not sim.over and _damage_one(sim, rng, name):
            _crash_owner(sim, sim.check.monitor.current[name][1].writer, 1)

    sim.loop.call_later(rng.choice((0.2, 0.5)), then)


def _crash_owner(sim: Simulation, writer: str, turns: int) -> None:
    node = next((n for n in sim.nodes if writer.startswith(f"{n.title}/")), None)
    if node is not None:
        sim.stats["trouble crash at a switch"] += 1
        sim.loop.after_turns(turns, lambda: None if sim.over else sim.crash(node, sim.rng))
        _new_node(sim, sim.rng)
