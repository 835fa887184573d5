"""What a ledger of whole states must say of itself before an entry of it is believed."""

from __future__ import annotations

import pytest

from cursorkeeper.core.errors import DamageError
from cursorkeeper.core.footer import Footer
from cursorkeeper.core.positions import Position
from cursorkeeper.format.pulsar import position_info
from cursorkeeper.format.pulsar.values import CrossingRange, Form, PositionInfo
from cursorkeeper.runtime.pulsar_ledger import Written, check_owner, read_newest
from daemon.tests.runtime.virtual import virtual
from daemon.tests.support.world import Source, World


async def claimed() -> Footer:
    made = Source(await World().keeper())
    await made.open()
    footer = made.machine.ownership.commit.committed
    assert footer is not None
    return footer


@virtual
async def test_a_ledger_is_of_the_footers_epoch_or_earlier_and_of_its_generation() -> None:
    """Who reads and does not own finds ledgers of the very owner that wrote the footer."""
    footer = await claimed()
    check_owner(Written(footer.epoch, footer.generation, 1_000, None), footer)
    check_owner(Written(footer.epoch - 1, footer.generation, 1_000, None), footer)
    with pytest.raises(DamageError, match="is of epoch"):
        check_owner(Written(footer.epoch + 1, footer.generation, 1_000, None), footer)
    with pytest.raises(DamageError, match="is of generation"):
        check_owner(Written(footer.epoch, footer.generation + 1, 1_000, None), footer)


@virtual
async def test_a_range_across_data_ledgers_is_damage() -> None:
    """How much of the first one it covers, only the topic's layout could say: what is acked must
    not be guessed.
    """
    info = PositionInfo(
        Position(3, 4), crossing=(CrossingRange(Position(3, 9), Position(4, 2)),), form=Form.RANGES
    )
    raw = position_info.encode(info, Form.RANGES)

    async def entries(first: int, last: int) -> list[bytes]:
        return [raw][first : last + 1]

    with pytest.raises(DamageError, match="across data ledgers"):
        await read_newest(0, Written(1, 1, 1_000, None), entries)
