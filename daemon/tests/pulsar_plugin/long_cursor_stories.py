"""The stories of `test_cursor_stories` on Pulsar 4.2, where the gate makes receipts wait; messages age by Pulsar's timer.
`make test-brokers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.test_cursor_stories import are_lived_through

pytestmark = pytest.mark.jvm


@pytest.mark.timeout(500)
async def test_what_moved_cursors_holds_when_a_broker_of_4_2_is_killed(tmp_path: Path) -> None:
    await are_lived_through(tmp_path, "4.2.4", ages_by_timer=True)
