"""Packing: everything once, nothing empty, even loads also where sizes are not, and quick for a large fleet."""

from __future__ import annotations

import time

import numpy as np
from cursorkeeper_pipeline.source.options import TASKS_MAX
from cursorkeeper_pipeline.source.planning import bin_pack, grouped, task_count
from hypothesis import given
from hypothesis import strategies as st

COSTS = st.lists(st.integers(0, 1 << 40), max_size=200)


@given(COSTS, st.integers(1, 50))
def test_everything_is_in_one_bin_and_no_bin_is_empty(costs: list[int], bins: int) -> None:
    packed = bin_pack(costs, bins)
    assert sorted(place for places in packed for place in places) == list(range(len(costs)))
    assert len(packed) == min(bins, len(costs)) and all(packed) and all(places == sorted(places) for places in packed)


@given(COSTS.filter(len), st.integers(1, 50))
def test_no_bin_is_above_the_mean_by_more_than_one_thing(costs: list[int], bins: int) -> None:
    packed = bin_pack(costs, bins)
    assert max(sum(costs[place] for place in places) for places in packed) <= sum(costs) / len(packed) + max(costs)


def test_one_dear_thing_leaves_the_cheap_ones_to_the_other_bin() -> None:
    assert bin_pack([1] * 5 + [10] + [1] * 5, 2) == [[5], [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]]
    assert bin_pack([7, 9, 6, 8, 5, 5], 3) == [[1, 5], [3, 4], [0, 2]], "the dearest first"
    assert [len(places) for places in bin_pack([0] * 9, 3)] == [3, 3, 3], "what costs nothing is spread too"


@given(COSTS, st.integers(1, 50))
def test_equal_input_gives_an_equal_plan(costs: list[int], bins: int) -> None:
    assert bin_pack(costs, bins) == bin_pack(list(costs), bins)


def test_a_pareto_fleet_is_even_where_equal_numbers_are_not() -> None:
    rng = np.random.default_rng(1)
    atom, target = 8 << 20, 64 << 20
    stored = np.minimum(rng.pareto(1.1, 100_000) * 20_000, 40 << 30).astype(np.int64)
    costs = [atom] * int((stored // atom).sum()) + (stored % atom + 4096).tolist()  # what is larger than an atom is read in pieces
    bins = task_count(0, sum(costs), target)
    loads = [sum(costs[place] for place in places) for places in bin_pack(costs, bins)]
    assert bins > 50 and max(loads) <= 1.2 * sum(loads) / bins
    naive = [int(part.sum()) for part in np.array_split(stored, bins)]
    assert max(naive) > 1.2 * sum(naive) / bins, "this fleet does not need packing"


def test_a_hundred_thousand_are_planned_in_a_moment() -> None:
    costs = np.random.default_rng(2).integers(1, 1 << 30, 100_000).tolist()
    began = time.process_time()
    bin_pack(costs, 1_000)
    assert time.process_time() - began < 5.0


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 30))
def test_numbers_of_tasks(work: int, per_task: int) -> None:
    tasks = task_count(0, work, per_task)
    assert 1 <= tasks <= TASKS_MAX and (tasks - 1) * per_task <= work and (tasks == TASKS_MAX or tasks * per_task >= work)
    assert task_count(7, work, per_task) == 7


def test_groups_of_buckets() -> None:
    sizes = {f"{at:03x}": at % 5 for at in range(4096)}
    groups = grouped(sizes, 6)
    assert sorted(name for group in groups for name in group) == sorted(name for name, size in sizes.items() if size)
    assert len({sum(sizes[name] for name in group) for group in groups}) <= 2
    assert grouped({}, 3) == [] == grouped({"000": 0}, 3) and grouped({"000": 5}, 3) == [("000",)]
