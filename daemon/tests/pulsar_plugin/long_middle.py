"""What `make test` plays on the oldest and on the newest line of Pulsar, on the one between them.
`make test-brokers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import Standalone
from daemon.tests.pulsar_plugin import test_model, test_outage
from daemon.tests.pulsar_plugin.jar import ENDS, LINES
from daemon.tests.pulsar_plugin.mains import RUN_MAX_S

Story = Callable[[Standalone, DaemonProcess, str, Path], Awaitable[None]]
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.parametrize("line", sorted(set(LINES) - set(ENDS))),
    pytest.mark.parametrize(
        "story",
        [
            test_model.test_a_copy_of_what_pulsar_keeps_is_equal_after_anything,
            test_model.test_stories_of_cursors_that_pulsar_keeps_and_the_keeper_copies,
            test_model.test_stories_of_a_topic_between_pulsars_own_cursors_the_keeper_and_two_brokers,
            test_model.test_kept_cursors_behave_as_pulsars_own_tests_of_cursors_say,
            test_outage.test_stories_of_a_topic_whose_keeper_is_away,
        ],
    ),
]


@pytest.mark.timeout(RUN_MAX_S + 60)
async def test_the_same(
    stack: Standalone, daemon: DaemonProcess, line: str, story: Story, tmp_path: Path
) -> None:
    await story(stack, daemon, line, tmp_path)
