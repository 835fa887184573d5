"""A recorded cursor in the fakes: ledgers under their own ids, its znode, and the deployment id of
the root.
"""

from __future__ import annotations

from cursorkeeper.core.footer import Footer
from cursorkeeper.core.whole_form import StateWriter
from cursorkeeper.format import footer as footer_bytes
from daemon.tests.releases.recorded import Recorded
from daemon.tests.support.world import Source, World


async def restored(recorded: Recorded, state_writer: StateWriter | None = None) -> World:
    """A world in which the recorded release has just ended."""
    world = World(state_writer=state_writer)
    for own in recorded.ledgers:
        world.bookkeeper.restore(
            own.ledger, own.spec, own.custom_metadata, own.entries, closed=own.closed
        )
    session = world.zookeeper.session()
    await session.start()
    await session.ensure_path(recorded.root)
    await session.set(recorded.root, recorded.deployment.encode(), 0)
    await session.ensure_path(recorded.path.rpartition("/")[0])
    await session.create(recorded.path, recorded.footer)
    await session.close()
    return world


def footer_of(world: World, recorded: Recorded) -> Footer:
    """As it is committed now."""
    return footer_bytes.decode(world.zookeeper.tree.get(recorded.path).data, recorded.name)


async def next_owner(world: World, recorded: Recorded, **request: bool) -> Source:
    """A keeper of today asks for the cursor; whether it got it is for the test to see."""
    source = Source(await world.keeper("today"), recorded.name)
    await source.open(**{"create": False, **request})
    return source
