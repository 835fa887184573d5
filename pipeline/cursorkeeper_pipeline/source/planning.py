"""How much work goes into how many tasks: numbers in, numbers out. Pure.

Invariants: everything is in exactly one bin and no bin is empty; the fullest bin holds at most the
mean and one more thing, so that with things of at most a fifth of a bin no task is more than 1.2
times the mean; equal input gives an equal plan. Cost: one sort and one heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


def bin_pack(costs: Sequence[int], bins: int) -> list[list[int]]:
    """The places of `costs` (not negative) in at most `bins` bins of about equal sums: the dearest
    first, each to the bin that has least.

    Bins hold their places in order.
    """
    packed: list[list[int]] = [[] for _ in range(min(bins, len(costs)))]
    # cost, then number: what costs nothing is spread too
    loads = [(0, 0, at) for at in range(len(packed))]
    for place in sorted(range(len(costs)), key=lambda p: (-costs[p], p)):
        cost, number, at = loads[0]
        packed[at].append(place)
        heapq.heapreplace(loads, (cost + costs[place], number + 1, at))
    for places in packed:
        places.sort()
    return packed


def grouped(sizes: Mapping[str, int], tasks: int) -> list[tuple[str, ...]]:
    """Buckets in at most `tasks` groups of about equal size, in the order of their names. Empty
    ones are spread evenly over them.
    """
    names = sorted(sizes)
    # what is empty now weighs something, and all of them together less than one cursor
    return [
        tuple(names[place] for place in group)
        for group in bin_pack([1 + len(names) * sizes[name] for name in names], tasks)
    ]
