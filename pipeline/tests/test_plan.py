"""Packing: everything once, nothing empty, even loads also where sizes are not, and quick for a
large fleet.
"""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cursorkeeper_pipeline.by_size import passes
from cursorkeeper_pipeline.source.options import Options
from cursorkeeper_pipeline.source.plan import BUCKETS, bin_pack, spread, tasks_for
from cursorkeeper_pipeline.source.units import dealt
from pipeline.tests.fleet_maker import cut_costs, pareto_fleet, skew

COSTS = st.lists(st.integers(0, 1 << 40), max_size=200)


@given(COSTS, st.integers(1, 50))
def test_everything_is_in_one_bin_and_no_bin_is_empty(costs: list[int], bins: int) -> None:
    packed = bin_pack(costs, bins)
    assert sorted(place for places in packed for place in places) == list(range(len(costs)))
    assert (
        len(packed) == min(bins, len(costs))
        and all(packed)
        and all(places == sorted(places) for places in packed)
    )


@given(COSTS.filter(len), st.integers(1, 50))
def test_no_bin_is_above_the_mean_by_more_than_one_thing(costs: list[int], bins: int) -> None:
    packed = bin_pack(costs, bins)
    assert max(sum(costs[place] for place in places) for places in packed) <= sum(costs) / len(
        packed
    ) + max(costs)


def test_one_dear_thing_leaves_the_cheap_ones_to_the_other_bin() -> None:
    assert bin_pack([1] * 5 + [10] + [1] * 5, 2) == [[5], [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]]
    assert bin_pack([7, 9, 6, 8, 5, 5], 3) == [[1, 5], [3, 4], [0, 2]], "the dearest first"
    assert [len(places) for places in bin_pack([0] * 9, 3)] == [3, 3, 3], (
        "what costs nothing is spread too"
    )


@given(COSTS, st.integers(1, 50))
def test_equal_input_gives_an_equal_plan(costs: list[int], bins: int) -> None:
    assert bin_pack(costs, bins) == bin_pack(list(costs), bins)


def test_a_hundred_thousand_are_planned_in_a_moment() -> None:
    costs = np.random.default_rng(2).integers(1, 1 << 30, 100_000).tolist()
    began = time.process_time()
    bin_pack(costs, 1_000)
    assert time.process_time() - began < 5.0


def test_a_pareto_fleet_that_is_cut_and_dealt_is_even() -> None:
    """Its largest cursor alone is four times what a task has on average."""
    options = Options.parse({"table": "hole_stats", "zookeeper": "z:1", "gateway": "g:1"})
    costs = cut_costs(pareto_fleet(20_000), options)
    places = dealt(costs, 79)
    loads = [sum(costs[place] for place, task in places if task == at) for at in range(79)]
    assert sorted(place for place, _ in places) == list(range(len(costs)))
    assert skew(loads) < 1.05 and loads == sorted(loads, reverse=True), "the dearest begin first"


def test_groups_hold_every_bucket_and_are_even() -> None:
    sizes = {bucket: at % 5 for at, bucket in enumerate(BUCKETS)}
    groups = [part.buckets for part in spread(sizes, 6)]
    assert sorted(name for group in groups for name in group) == sorted(sizes), (
        "empty ones too: a cursor may come"
    )
    assert len({sum(sizes[name] for name in group) for group in groups}) <= 2
    empty = [sum(not sizes[name] for name in group) for group in groups]
    assert max(empty) - min(empty) <= 2
    assert [len(part.buckets) for part in spread({}, 4)] == [1024] * 4


def test_numbers_of_tasks() -> None:
    def options(**given: str) -> Options:
        return Options.parse({"zookeeper": "z:1", **given})

    assert [tasks_for(n, 256, options()) for n in (0, 1, 5, 100, 4_000, 1_000_000, 10_000_000)] == [
        1,
        1,
        5,
        8,
        16,
        3907,
        4096,
    ]
    assert [tasks_for(n, 25_000, options(), is_deep=False) for n in (0, 100, 100_000)] == [1, 1, 4]
    assert (
        tasks_for(1_000, 256, options(slots="32")) == 128
        and tasks_for(9, 256, options(tasks="7")) == 7
    )
    assert tasks_for(1_000_000, 256, options(readRateMibS="10")) == 8, (
        "without slots so few that the budget can be divided"
    )
    assert tasks_for(1_000_000, 256, options(readRateMibS="10", slots="32")) == 3907


def test_a_budget_is_of_the_whole_job() -> None:
    options = Options.parse(
        {"zookeeper": "z:1", "readRateMibS": "12", "footerRateS": "600", "slots": "6"}
    )
    assert [(o.read_rate_mib_s, o.footer_rate_s) for o in map(options.of_tasks, (1, 3, 600))] == [
        (12, 600),
        (4, 200),
        (2, 100),
    ]
    unknown = Options.parse({"zookeeper": "z:1", "readRateMibS": "12"})
    assert unknown.of_tasks(8).read_rate_mib_s == 1.5


def test_tasks_of_both_passes_share_the_budgets_of_the_job() -> None:
    """Also those that look where large cursors may be cut: they read BookKeeper, many at once."""
    budget = {
        "table": "holes",
        "zookeeper": "z:1",
        "gateway": "g:1",
        "readRateMibS": "8",
        "footerRateS": "80",
    }
    for slots, tasks, at_once in (("4", 16, 4), ("4", 2, 2), ("0", 16, 16)):
        weigh, read = passes(Options.parse({**budget, "slots": slots}), tasks)
        for each in (weigh.args[0], read.args[0]):
            assert (each.read_rate_mib_s * at_once, each.footer_rate_s * at_once) == (8, 80), (
                slots,
                tasks,
            )
