"""`python -m bench.suite [--quick]`: what a reader of the README wants to know, in ten minutes, or
in two: results as flat JSON, and plots with the baselines drawn in.

Each case is measured beside its baselines, in one run on one stack: what a busy machine does to one
it does to the other. A case that does not fit into the time is left out, and that is said.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from pyroaring import BitMap

from bench import backlog, flush_bytes, many_cursors, receipt_latency, throughput
from bench.figures import (
    BACKLOGS,
    CURSORS,
    HEADLINE,
    PLOTS,
    RATIOS,
    SHARES,
    SIZES,
    Plot,
    Result,
    Value,
    point_name,
    ratios,
)
from bench.rows import quantile
from cursorkeeper.bookkeeper.client import GatewayClient
from cursorkeeper.bookkeeper.settings import GatewayClientSettings
from cursorkeeper.core.values import Delta
from cursorkeeper.demo.processes import DaemonProcess
from cursorkeeper.demo.stack import BOTH_COMPILERS, Standalone
from cursorkeeper.demo.workload import BadCase
from cursorkeeper.runtime.ledgers import APPLICATION, LedgerPolicy

WHAT = "What CursorKeeper costs beside its baselines: results as flat JSON, and plots."
RESULTS = Path(__file__).parent / "results"
ONCE_A_SECOND = ("--format", "pulsar")
"""A whole state at most once a second, as Pulsar is shipped."""
LATE_MAX_S = 30.0
"""So much later than its time the run cuts off what still goes on."""
HEAP_MIB = 1_536
STOP_MAX_S = 60.0
LABEL_WIDTH, CELL_WIDTH = 33, 9


class Machine:
    """The stack of a run, which is started for the first case that needs it, and what runs on
    it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = Standalone(folder / "stack", heap_mib=HEAP_MIB, java_options=BOTH_COMPILERS)
        self.daemons = 0

    def started(self) -> Standalone:
        """The stack, up."""
        if not self._stack.running:
            self._stack.start()
        return self._stack

    def stop(self) -> None:
        self._stack.stop()

    @asynccontextmanager
    async def daemon(self, extra: Sequence[str] = ()) -> AsyncIterator[DaemonProcess]:
        """A process of its own for each case."""
        self.daemons += 1
        folder, stack = self._folder / f"daemon-{self.daemons}", self.started()
        folder.mkdir()
        daemon = DaemonProcess(folder, stack.gateway, stack.zookeeper, extra)
        await daemon.start()
        try:
            yield daemon
        finally:
            await daemon.stop(STOP_MAX_S)


Measure = Callable[[Machine], Awaitable[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Case:
    """`seconds`: what it takes on two quiet cores, about."""

    name: str
    seconds: float
    measure: Measure


# ---- the cases


def bytes_of(point: str) -> Measure:
    async def measure(machine: Machine) -> dict[str, float]:
        return flush_bytes.figures(point, BACKLOGS[point])

    return measure


def backlog_of(point: str, flushes: int, whole_flushes: int, recoveries: int = 3) -> Measure:
    """Flushes and recovery; `whole_flushes` 0: without the other format."""

    async def measure(machine: Machine) -> dict[str, float]:
        entries, stack = BACKLOGS[point], machine.started()
        ours = await backlog.measure(stack, entries, flushes, recoveries=recoveries)
        found = {
            f"stack_bytes_per_flush_{point}": ours.flush_bytes,
            f"recovery_ms_{point}": ours.recovery_ms,
            f"raw_read_ms_{point}": ours.raw_read_ms,
        }
        whole = None
        if whole_flushes:
            whole = await backlog.measure(
                stack, entries, whole_flushes, is_whole=True, recoveries=recoveries
            )
            found[f"stack_pulsar_bytes_per_flush_{point}"] = whole.flush_bytes
            found[f"pulsar_recovery_ms_{point}"] = whole.recovery_ms
        if point == "10M" and whole is not None:
            found |= spread("flush_1000_ms", ours.waits_ms)
            found |= spread("pulsar_flush_1000_ms", whole.waits_ms)
        return found

    return measure


def latency(turns: int) -> Measure:
    """One ack at a time, and a raw add at a time, in turns of fifty."""

    async def measure(machine: Machine) -> dict[str, float]:
        async with machine.daemon() as daemon:
            receipts, raws = await receipt_latency.in_turns(daemon, machine.started(), turns)
        skip = min(receipt_latency.WARM_UP, len(receipts) // 4)
        return spread("ack_ms", [s * 1e3 for s in receipts[skip:]]) | spread(
            "raw_add_ms", [s * 1e3 for s in raws[skip:]]
        )

    return measure


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """The quantiles of a distribution's plot."""
    return {f"{name}_{point}": quantile(list(values), share) for point, share in SHARES.items()}


def acks_per_second(point: str, seconds: float, *, is_whole_too: bool) -> Measure:
    async def measure(machine: Machine) -> dict[str, float]:
        size = SIZES[point]
        found = {f"acks_per_s_{point}": await _rate(machine, (), size, seconds)}
        if is_whole_too:
            rate = await _rate(machine, backlog.WHOLE, size, seconds)
            found[f"pulsar_acks_per_s_{point}"] = rate
        adds = await _raw_adds_per_s(machine.started(), _record_bytes(size), seconds / 2)
        return found | {f"raw_acks_per_s_{point}": adds * size}

    return measure


ENTRIES_MAX = 200_000_000
"""More than any source acks in the time of a case."""


async def _rate(machine: Machine, extra: Sequence[str], size: int, seconds: float) -> float:
    async with machine.daemon(extra) as daemon:
        kind = "random"
        found = await throughput.measure(
            daemon, kind, ENTRIES_MAX, size, seconds, str(machine.daemons)
        )
        return found["acks"] / found["seconds"]


def _record_bytes(size: int) -> int:
    """Of a message of so many acks, as `throughput` sends them."""
    columns = next(
        BadCase(entries=ENTRIES_MAX, ledgers=ENTRIES_MAX // 50_000, batch_acks=size).batches()
    )
    return flush_bytes.delta_bytes(
        Delta(acks={ledger: BitMap(entries) for ledger, entries in sorted(columns.items())})
    )


async def _raw_adds_per_s(stack: Standalone, record_bytes: int, seconds: float) -> float:
    """As many in flight as `throughput` has messages."""
    gateway = GatewayClient(GatewayClientSettings(stack.gateway))
    await gateway.start()
    try:
        ledger = await gateway.create(LedgerPolicy().full, {"application": APPLICATION})
        sent, pending, began = 0, deque[asyncio.Future[None]](), time.perf_counter()
        while time.perf_counter() - began < seconds:
            while len(pending) < throughput.IN_FLIGHT:
                pending.append(gateway.append(ledger, sent, bytes(record_bytes)))
                sent += 1
            await pending.popleft()
        await asyncio.gather(*pending)
        took_s = time.perf_counter() - began
        await gateway.delete(ledger)
        return sent / took_s
    finally:
        await gateway.close()


def cursors(point: str, load_s: float, *, is_whole: bool = False) -> Measure:
    """Uniform over a million entries. Raises RuntimeError if a cursor did not open."""

    async def measure(machine: Machine) -> dict[str, float]:
        count = CURSORS[point]
        async with (
            machine.daemon(ONCE_A_SECOND if is_whole else ()) as daemon,
            many_cursors.source(
                daemon, "uniform", count, machine.daemons, load_s, load_s / 4
            ) as process,
        ):
            found = await many_cursors.said(process, load_s)
        if found["first_s"] >= many_cursors.OPEN_MAX_S:
            raise RuntimeError(f"not all of {count:,} cursors were opened and durable in time")
        if is_whole:
            return {f"pulsar_cursors_p99_ms_{point}": found["p99_ms"]}
        return {f"cursors_{name}_{point}": found[name] for name in ("p50_ms", "p99_ms")}

    return measure


QUICK = (
    Case("bytes of a flush, 1 M", 1, bytes_of("1M")),
    Case("bytes of a flush, 10 M", 1, bytes_of("10M")),
    Case("bytes of a flush, 100 M", 4, bytes_of("100M")),
    Case("1,000 acks a message", 18, acks_per_second("1000", 2.5, is_whole_too=True)),
    Case("16,000 acks a message", 8, acks_per_second("16000", 2.5, is_whole_too=False)),
    Case("latency", 10, latency(10)),
    Case("backlog of 1 M", 12, backlog_of("1M", 20, 20)),
    Case("100 cursors", 8, cursors("100", 4)),
    Case("1,000 cursors", 16, cursors("1000", 4)),
    Case("backlog of 10 M", 22, backlog_of("10M", 20, 20)),
)
FULL = (
    *(
        Case(f"bytes of a flush, {p}", s, bytes_of(p))
        for p, s in zip(BACKLOGS, (1, 1, 4, 30), strict=True)
    ),
    *(
        Case(f"{point_name(p)} acks a message", 26, acks_per_second(p, 5, is_whole_too=True))
        for p in SIZES
    ),
    Case("latency", 30, latency(40)),
    Case("backlog of 1 M", 15, backlog_of("1M", 50, 50)),
    Case("backlog of 10 M", 40, backlog_of("10M", 100, 60)),
    *(
        Case(f"{point_name(p)} cursors", s, cursors(p, 10))
        for p, s in zip(list(CURSORS)[:4], (16, 16, 25, 40), strict=True)
    ),
    Case("100 cursors, whole state", 20, cursors("100", 10, is_whole=True)),
    Case("1,000 cursors, whole state", 40, cursors("1000", 10, is_whole=True)),
    Case("backlog of 100 M", 80, backlog_of("100M", 20, 5)),
    Case("backlog of 1 B", 90, backlog_of("1B", 5, 0, recoveries=1)),
    Case("10,000 cursors", 120, cursors("10000", 10)),
)
"""The longest ones come last: they are what a slow machine leaves out."""


# ---- the run


@dataclass
class Run:
    """One run of cases, until its time is over."""

    name: str
    cases: Sequence[Case]
    budget_s: float
    figures: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    async def play(self, machine: Machine) -> None:
        began = time.monotonic()
        for case in self.cases:
            self.seconds = time.monotonic() - began
            left_s = self.budget_s - self.seconds
            if case.seconds > left_s:
                self._without(case, f"needs {case.seconds:.0f} s of {max(0.0, left_s):.0f} s left")
                continue
            print(f"{self.seconds:5.0f} s  {case.name}", file=sys.stderr, flush=True)
            limit = asyncio.timeout(left_s + LATE_MAX_S)
            try:
                async with limit:
                    self.figures |= await case.measure(machine)
            except Exception as error:
                if limit.expired():
                    self._without(case, "cut off at the end of the time")
                    continue
                traceback.print_exception(error)
                self._without(case, f"failed: {error}")
                self.failed.append(case.name)
        self.seconds = time.monotonic() - began

    def _without(self, case: Case, why: str) -> None:
        print(f"{self.seconds:5.0f} s  {case.name}: left out, {why}", file=sys.stderr, flush=True)
        self.left_out.append(f"{case.name}: {why}")

    def result(self, about: Result) -> dict[str, Value]:
        """Flat, the headline first, figures rounded to what can be read from them."""
        figures = {HEADLINE: self.figures[HEADLINE]} if HEADLINE in self.figures else {}
        figures |= self.figures
        figures |= ratios(figures)
        said: dict[str, Value] = {
            "run": self.name,
            **about,
            "seconds": round(self.seconds),
            "left_out": "; ".join(self.left_out),
        }
        return {key: rounded(value) for key, value in figures.items()} | said


def rounded(value: float) -> float | int:
    """To four digits; whole where it has as many."""
    if not value:
        return 0
    digits = 3 - math.floor(math.log10(abs(value)))
    return round(value) if digits <= 0 else round(value, digits)


def about() -> dict[str, Value]:
    """The software and the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "version": version("cursorkeeper"),
        "platform": f"{platform.platform()}, {memory:.0f} GiB, Python {platform.python_version()}",
        "cores": os.cpu_count() or 0,
        "load_before": round(os.getloadavg()[0], 1),
    }


# ---- the table


def table(result: Result) -> str:
    """For a terminal of 80 columns: a part for each plot, a line for each of its lines."""
    out = []
    for plot in PLOTS:
        lines = [(line, line.of(result)) for line in plot.lines]
        points = [p for p in _points(plot) if any(p in values for _, values in lines)]
        if not points:
            continue
        out += [
            "",
            f"{plot.title} [{plot.unit}]",
            _columns(plot.y if plot.is_distribution else plot.x, list(map(point_name, points))),
        ]
        out += [
            _columns(line.label, [readable(values[p]) if p in values else "-" for p in points])
            for line, values in lines
            if values
        ]
    found = {name: result[name] for name in RATIOS if name in result}
    if found:
        out += ["", "of two figures of this run"]
        out += [f"{name:<50}{readable(float(value)):>10}" for name, value in found.items()]
    return "\n".join(out)


def _points(plot: Plot) -> list[str]:
    points = list(plot.lines[0].points)
    return ["p50", "p90", "p99"] if plot.is_distribution else points


def _columns(label: str, cells: Sequence[str]) -> str:
    return f"{label:<{LABEL_WIDTH}.{LABEL_WIDTH}}" + "".join(
        f"{cell:>{CELL_WIDTH}}" for cell in cells
    )


def readable(value: float) -> str:
    """Three digits, with k, M, G for thousands."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            scaled = value / (1e3 if letter == " k" else size)
            return f"{scaled:.3g}{letter}" if scaled < 1000 else f"{scaled:.0f}{letter}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> int:
    """0: all well, what did not fit into the time is said; 1: a benchmark failed."""
    parser = argparse.ArgumentParser(prog="bench.suite", description=WHAT)
    parser.add_argument("--quick", action="store_true", help="two minutes instead of ten")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results and plots")
    given = parser.parse_args()
    run = Run("quick", QUICK, 120.0) if given.quick else Run("full", FULL, 600.0)
    facts = about()
    print(f"{facts['platform']}, {facts['cores']} cores, load {facts['load_before']}")
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        try:
            asyncio.run(run.play(machine))
        finally:
            machine.stop()
    result = run.result(facts)
    given.out.mkdir(parents=True, exist_ok=True)
    file = given.out / f"{run.name}.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    from bench import plots  # matplotlib takes a second and a hundred megabytes

    drawn = plots.draw(result, given.out / run.name)
    print(table(result))
    print()
    for why in run.left_out:
        print(f"left out: {why}")
    print(f"{HEADLINE}: {result.get(HEADLINE, 'not measured')}")
    print(f"results: {_shown(file)}")
    print(f"plots:   {_shown(given.out / run.name)}/ ({len(drawn)} SVG)")
    print(f"{run.seconds:.0f} s of {run.budget_s:.0f} s")
    if run.failed:
        print(f"FAILED: {', '.join(run.failed)}")
    return 1 if run.failed else 0


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


if __name__ == "__main__":
    sys.exit(main())
