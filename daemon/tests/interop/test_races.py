"""A race in Pulsar's own classes is told from a refusal by its type, and costs a topic and no test.
Needs no Pulsar.
"""

from __future__ import annotations

from typing import cast

import pytest

from daemon.tests.interop.harness import PulsarError, PulsarHarness, TornMessage, error_of
from daemon.tests.interop.test_pulsar_to_ours import TORN_MAX, played_on_a_topic
from daemon.tests.interop.topic import Topic

REFUSED = {
    "kind": "IllegalStateException",
    "error": "Some required fields are missing",
    "torn": False,
}


class Racing:
    """Stands for the process: its first calls fail so often, and are torn or refused."""

    def __init__(self, times: int, *, torn: bool) -> None:
        self.left, self.torn, self.topics = times, torn, 0

    def open_ledger(self, _ledger: str, **_config: object) -> None:
        if self.left:
            self.left -= 1
            raise error_of("open_ledger", REFUSED | {"torn": self.torn})

    def topic(self, *_sizes: int) -> Topic:
        self.topics += 1
        return Topic(
            cast(PulsarHarness, self), f"persistent://interop/ns/topic-{self.topics}", ((1, 5),)
        )


def test_a_race_costs_a_topic() -> None:
    racing = Racing(2, torn=True)
    topic, cursors = played_on_a_topic(racing.topic, 1, 0)
    assert racing.topics == 3 and topic.name.endswith("topic-3") and cursors == []


@pytest.mark.parametrize(
    ("torn", "error", "topics"), [(True, TornMessage, TORN_MAX), (False, PulsarError, 1)]
)
def test_a_refusal_is_no_race_and_a_race_does_not_last(
    torn: bool, error: type[PulsarError], topics: int
) -> None:
    racing = Racing(100, torn=torn)
    with pytest.raises(error) as raised:
        played_on_a_topic(racing.topic, 1, 0)
    assert racing.topics == topics and type(raised.value) is error
