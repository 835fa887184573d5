"""Topics that a load manager moves by itself, with acks under way. `make test-brokers`: it looks
once a minute.

Each is judged by the ledger of what was confirmed: 0 confirmed delivered again, 0 un-acked missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.tests.pulsar_plugin.field import field, start, topics_of, until
from daemon.tests.pulsar_plugin.two_brokers import (
    WHOLE,
    flows,
    flows_on,
    is_at,
    judged,
    made,
    settles,
    topic,
    unload,
)

pytestmark = pytest.mark.jvm
NAMES = tuple(f"shed-{number}" for number in range(4))
SHED_MAX_S = 240
BALANCE = "org.apache.pulsar.broker.loadbalance"
SHEDDING = {
    "loadBalancerEnabled": "true",
    # by messages: the CPU of both brokers is the same
    "loadBalancerLoadSheddingStrategy": f"{BALANCE}.impl.UniformLoadShedder",
    "loadBalancerSheddingIntervalMinutes": "1",
    "loadBalancerSheddingGracePeriodMinutes": "0",
    "loadBalancerReportUpdateMinIntervalMillis": "1000",
    "loadBalancerReportUpdateThresholdPercentage": "1",
    "loadBalancerMsgRateDifferenceShedderThreshold": "10",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "maxUnloadPercentage": "0.6",
    "minUnloadMessage": "1",
    "statsUpdateInitialDelayInSecs": "1",
    "statsUpdateFrequencyInSecs": "2",
}
EXTENSIBLE = {
    "loadBalancerEnabled": "true",
    "loadManagerClassName": f"{BALANCE}.extensions.ExtensibleLoadManagerImpl",
    "loadBalancerLoadSheddingStrategy": f"{BALANCE}.extensions.scheduler.TransferShedder",
    "loadBalancerMultiPhaseBundleUnload": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
}
ROUNDS = 3


async def test_a_load_manager_sheds_bundles_and_nothing_confirmed_is_lost(tmp_path: Path) -> None:
    async with field(tmp_path, "5.0.0-M1") as at:
        first, second = at.broker("first", conf=SHEDDING), at.broker("second", conf=SHEDDING)
        await start(first)
        await made(first, *NAMES)
        for name in NAMES:
            await flows(at, name, first)
        await flows_on(at, *NAMES)
        await start(second)
        await until(
            "the load manager moves a topic",
            lambda: any(topic(name) in topics_of(second) for name in NAMES),
            SHED_MAX_S,
        )
        await flows_on(at, *NAMES, more=200)
        assert "Unloading bundle from source broker" in first.log.read_text(errors="replace")
        print("moved:", [name for name in NAMES if topic(name) in topics_of(second)])
        await settles(at, *NAMES)
        await judged(at, second, *NAMES)


@pytest.mark.parametrize("version", ["4.2.4", "5.0.0-M1"])
async def test_a_topic_is_handed_over_in_two_phases_and_nothing_confirmed_is_lost(
    tmp_path: Path, version: str
) -> None:
    """The extensible load manager: the broker that gives a topic away closes it first, and its
    clients only when the other one has it.
    """
    async with field(tmp_path, version) as at:
        first, second = at.broker("first", conf=EXTENSIBLE), at.broker("second", conf=EXTENSIBLE)
        await start(first)
        await start(second)
        await made(first, "handed")
        await flows(at, "handed", first, second)
        for to in (first, second) * ROUNDS:
            await flows_on(at, "handed")
            if topic("handed") not in topics_of(to):
                await unload(first, "handed", WHOLE, to)
            await flows_on(at, "handed")
            await is_at(to, "handed")
        await settles(at, "handed")
        await judged(at, second, "handed")
