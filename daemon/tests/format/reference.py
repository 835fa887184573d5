"""The same bytes written a second time, slowly and in other words: what the fast code is compared
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


def leb(n: int) -> bytes:
    """Minimal unsigned LEB128."""
    out = []
    while True:
        out.append(n % 128 + (128 if n >= 128 else 0))
        n //= 128
        if not n:
            return bytes(out)


def runs_of(members: list[int]) -> list[tuple[int, int]]:
    """(first, last) of each run."""
    runs: list[tuple[int, int]] = []
    for member in members:
        if runs and runs[-1][1] == member - 1:
            runs[-1] = (runs[-1][0], member)
        else:
            runs.append((member, member))
    return runs


def gaps_body(members: list[int]) -> bytes:
    """Mode 0."""
    return b"".join(leb(b - a - 1) for a, b in pairwise(members))


def runs_body(members: list[int]) -> bytes:
    """Mode 1."""
    runs = runs_of(members)
    out = leb(runs[0][1] - runs[0][0])
    for (_, last), (first, end) in pairwise(runs):
        out += leb(first - last - 2) + leb(end - first)
    return out


def bits_body(members: list[int]) -> bytes:
    """Mode 2."""
    bits = sum(1 << (member - members[0]) for member in members)
    return bits.to_bytes((members[-1] - members[0]) // 8 + 1, "little")


def section(values: Iterable[int]) -> bytes:
    """The canonical section of a set."""
    members = sorted(values)
    bodies = [gaps_body(members), runs_body(members)]
    if members[-1] - members[0] < 10_000_000:
        bodies.append(bits_body(members))
    mode = min(range(len(bodies)), key=lambda m: (len(bodies[m]), m))
    return leb(len(bodies[mode]) << 2 | mode) + leb(members[0]) + bodies[mode]


def coded(columns: Sequence[Sequence[int]], orders: Sequence[int]) -> bytes:
    """The set of a slice whose gaps, and lengths of runs if it has two columns, are these."""
    high, low = "", ""
    for numbers, order in zip(columns, orders, strict=True):
        for number in numbers:
            digits = f"{number + (1 << order):b}"[1:]
            high += "0" * (len(digits) - order) + "1"
            low += digits[::-1]
    upper = _filled(high)
    return leb(len(upper) << 1 | len(columns) - 1) + bytes(orders) + upper + _filled(low)


def _filled(digits: str) -> bytes:
    """Binary digits in bytes, from the lowest bit of the first one on."""
    return int(digits[::-1] or "0", 2).to_bytes(-(-len(digits) // 8), "little")


def columns_of(members: list[int], first: int, has_runs: bool) -> list[list[int]]:
    """What `coded` has of a set in a slice that begins at `first`."""
    if not has_runs:
        return [[b - a - 1 for a, b in pairwise([first - 1, *members])]]
    runs = runs_of(members)
    befores = [first - 2, *(last for _, last in runs)]
    gaps = [start - before - 2 for before, (start, _) in zip(befores, runs, strict=False)]
    return [gaps, [last - start for start, last in runs]]
