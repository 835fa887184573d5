"""Which cursors, in which task: every bucket once, loads about equal, selections as Pulsar's tools understand them."""

from __future__ import annotations

import random

from cursorkeeper.core.names import CursorName
from cursorkeeper.migration.cluster import Selection
from cursorkeeper_pipeline.source.fleet import chooses, cursor_key, spread

NAME = CursorName("persistent://t/ns/topic-partition-3", "sub")


def test_every_bucket_is_in_one_part_and_the_loads_are_even() -> None:
    rng = random.Random(1)
    counts = {f"{at:03x}": rng.randint(1, 40) for at in range(4096)}
    parts = spread(counts, 37)
    assert sorted(b for part in parts for b in part.buckets) == sorted(counts)
    loads = [sum(counts[b] for b in part.buckets) for part in parts]
    assert len(loads) == 37 and max(loads) <= 1.02 * sum(loads) / len(loads)
    assert spread({}, 5) == [] and len(spread({"000": 9}, 5)) == 1


def test_the_key_is_the_hash_that_records_carry() -> None:
    for at in range(100):
        name = CursorName(f"persistent://t/ns/{at}", "s")
        assert -(1 << 63) <= cursor_key(name) < 1 << 63
        assert cursor_key(name) % (1 << 64) == name.record_hash


def test_selections() -> None:
    odd = CursorName("not a topic of Pulsar", "sub")
    assert chooses(Selection.everything(), NAME) and chooses(Selection.everything(), odd)
    for chosen in (
        Selection.of_tenant("t"), Selection.of_namespace("t/ns"), Selection.of_topic("persistent://t/ns/topic"),
        Selection.of_topic(NAME.topic), Selection.of_topic(NAME.topic, "sub"),
    ):  # fmt: skip
        assert chooses(chosen, NAME) and not chooses(chosen, odd)
    for other in (
        Selection.of_tenant("tt"), Selection.of_namespace("t/n"), Selection.of_topic("persistent://t/ns/top"),
        Selection.of_topic(NAME.topic, "other"),
    ):  # fmt: skip
        assert not chooses(other, NAME)
