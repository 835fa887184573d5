"""Stories that `make test` plays on Pulsar 5.0, on the lines before it, where the gate makes
receipts wait. `make test-brokers`.

Messages age by Pulsar's timer here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.jar import LINES
from daemon.tests.pulsar_plugin.test_cursor_stories import are_lived_through
from daemon.tests.pulsar_plugin.test_faults import are_killed
from daemon.tests.pulsar_plugin.test_outage import goes_on_while_its_daemon_is_away
from daemon.tests.pulsar_plugin.test_roll_out import goes_to_kept_cursors_and_back
from daemon.tests.pulsar_plugin.test_two_brokers import goes_from_broker_to_broker
from daemon.tests.pulsar_plugin.test_way_back import goes_on_after_a_crash

pytestmark = [pytest.mark.jvm, pytest.mark.parametrize("version", [LINES["4.0"], LINES["4.2"]])]


async def test_what_moved_cursors_holds_when_the_broker_is_killed(
    tmp_path: Path, version: str
) -> None:
    await are_lived_through(tmp_path, version, ages_by_timer=True)


async def test_parts_are_killed_while_acks_flow_and_nothing_confirmed_comes_again(
    tmp_path: Path, version: str
) -> None:
    await are_killed(tmp_path, version)


async def test_a_topic_goes_from_broker_to_broker_and_nothing_confirmed_is_lost(
    tmp_path: Path, version: str
) -> None:
    await goes_from_broker_to_broker(tmp_path, version)


async def test_a_broker_goes_on_while_its_daemon_is_away(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await goes_on_while_its_daemon_is_away(tmp_path, version, monkeypatch)


async def test_a_cluster_goes_to_kept_cursors_and_back_and_nothing_confirmed_is_lost(
    tmp_path: Path, version: str
) -> None:
    await goes_to_kept_cursors_and_back(tmp_path, LINES["4.0"], version)


async def test_after_a_crash_pulsar_goes_on_with_what_the_daemon_had(
    tmp_path: Path, version: str
) -> None:
    await goes_on_after_a_crash(tmp_path, version)
