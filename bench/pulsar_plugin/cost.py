"""Messages a second and CPU of a broker with the plugin over those of a broker as Pulsar ships it,
in short rounds by turns.

A round is one broker's: the other one has nothing to do. Two rounds, one of each broker, are a
pair, and the next pair has the other order. Every figure is a ratio within a pair; of the pairs the
median counts, and the smallest and largest are told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from math import nan
from statistics import median
from time import monotonic

from bench.pulsar_plugin.field import Field, compiler_seconds, cpu_seconds, field
from bench.rows import Row
from tools.brokers.cluster import DEFAULT_VERSION, PulsarBroker

BACKLOG = 120_000
FLOW_LEAD_S, FLOW_S = 0.7, 5.0
WARM_UP_MESSAGES, WARM_UP_MAX_S = 400_000, 90.0
COMPILING_MAX = 0.03
"""Of a broker's CPU: with less, it is warm."""
PAIRS = 5
_PARTS = ("broker", "daemon", "gateway", "stack")


@dataclass(frozen=True, slots=True)
class Case:
    """`verb`: of Load.java. Without receipts acks are grouped as the client does by default, with
    receipts as the demo's does.
    """

    name: str
    verb: str
    cumulative: bool
    receipts: bool

    def words(self) -> dict[str, object]:
        words: dict[str, object] = {"ack": "cumulative" if self.cumulative else "individual"}
        if self.receipts:
            words |= {"receipts": 1, "group_ms": 1}
        return words


CASES = (
    Case("individual", "flow", cumulative=False, receipts=False),
    Case("individual, receipts", "flow", cumulative=False, receipts=True),
    Case("cumulative", "flow", cumulative=True, receipts=False),
    Case("cumulative, receipts", "flow", cumulative=True, receipts=True),
    Case("backlog, individual", "drain", cumulative=False, receipts=False),
    Case("backlog, individual, receipts", "drain", cumulative=False, receipts=True),
)
OFTEN = CASES[1]


@dataclass(frozen=True, slots=True)
class Round:
    """`cpu_us`: of a message, by part. `stored_bytes`: that the daemon wrote to bookies, of a
    message.
    """

    messages: int
    per_second: float
    cpu_us: dict[str, float]
    receipt_ms: tuple[float, float]
    stored_bytes: float


async def run(
    version: str = DEFAULT_VERSION, cases: tuple[Case, ...] = CASES, pairs: int = PAIRS
) -> AsyncIterator[list[Row]]:
    """The rows of each case, as soon as they are there."""
    async with field(version) as at:
        bench = _Bench(at)
        await bench.warm_up(cases)
        for case in cases:
            yield _rows(case, [await bench.pair(case, number) for number in range(pairs)])


class _Bench:
    def __init__(self, at: Field) -> None:
        self._at, self._rounds = at, 0

    async def warm_up(self, cases: tuple[Case, ...]) -> None:
        """Both brokers, and what they work with, run until their compilers have nothing more to do,
        about: acks with receipts make the plugin, daemon and gateway run most often.
        """
        brokers = (self._at.stock, self._at.plugin)
        if any(case.verb == "drain" for case in cases):
            for broker in brokers:
                words = {
                    "url": broker.service_url,
                    "topic": "persistent://public/default/backlog",
                    "messages": BACKLOG,
                }
                self._at.load.tell("fill", words)
                await self._at.load.line()
        for broker in brokers:
            done, compiling, began = 0, 1.0, monotonic()
            while done < WARM_UP_MESSAGES or (
                compiling > COMPILING_MAX and monotonic() - began < WARM_UP_MAX_S
            ):
                before = cpu_seconds(broker.pid), compiler_seconds(broker.pid)
                for case in dict.fromkeys((*cases, OFTEN)):
                    done += (await self._round(broker, case)).messages
                compiling = (compiler_seconds(broker.pid) - before[1]) / (
                    cpu_seconds(broker.pid) - before[0]
                )

    async def pair(self, case: Case, number: int) -> tuple[Round, Round]:
        """Of the broker as it is, and of the one with the plugin."""
        brokers = [self._at.stock, self._at.plugin]
        order = brokers if number % 2 == 0 else brokers[::-1]
        rounds = {broker.name: await self._round(broker, case) for broker in order}
        return rounds["stock"], rounds["plugin"]

    async def _round(self, broker: PulsarBroker, case: Case, seconds: float = FLOW_S) -> Round:
        self._rounds += 1
        load = self._at.load
        name = "backlog" if case.verb == "drain" else f"flow-{self._rounds}"
        topic = f"persistent://public/default/{name}"
        words = {
            "url": broker.service_url,
            "topic": topic,
            "sub": f"sub-{self._rounds}",
            **case.words(),
        }
        words |= (
            {"messages": BACKLOG}
            if case.verb == "drain"
            else {"lead_s": FLOW_LEAD_S, "seconds": seconds}
        )
        stored = await self._stored_bytes()
        load.tell(case.verb, words)
        await load.line()
        before = self._at.cpu(broker)
        said = await load.line()
        if case.verb == "drain":
            await load.line()  # the last acks are sent
        after = self._at.cpu(broker)
        if case.verb == "flow":
            await load.line()
        stored = await self._stored_bytes() - stored
        messages = int(said["messages"])
        return Round(
            messages=messages,
            per_second=messages / said["seconds"],
            cpu_us={part: 1e6 * (after[part] - before[part]) / messages for part in _PARTS},
            receipt_ms=(said["receipt_ms_p50"], said["receipt_ms_p99"]),
            stored_bytes=stored / messages,
        )

    async def _stored_bytes(self) -> float:
        return sum(
            value
            for name, value in (await self._at.daemon.scrape()).items()
            if name.startswith("cursorkeeper_append_bytes_sum")
        )


def _rows(case: Case, pairs: list[tuple[Round, Round]]) -> list[Row]:
    def row(
        figure: str,
        value: float,
        unit: str,
        ratio: float | None = None,
        against: str = "",
        aim: str = "",
    ) -> Row:
        return Row("pulsar_plugin", case.name, figure, value, unit, ratio, against, aim)

    def paired(figure: str, unit: str, of: list[tuple[float, float]], aim: str = "") -> Row:
        ratios = [ours / stock if stock else nan for stock, ours in of]
        against = f"stock's (pairs {min(ratios):.2f} to {max(ratios):.2f})"
        return row(figure, median(ours for _, ours in of), unit, median(ratios), against, aim)

    rows = []
    for number, (stock, ours) in enumerate(pairs, 1):
        rows.append(
            row(
                f"pair {number}, messages",
                ours.per_second,
                "/s",
                ours.per_second / stock.per_second,
                "stock's",
            )
        )
        rows.append(
            row(
                f"pair {number}, broker's CPU",
                ours.cpu_us["broker"],
                "us/message",
                ours.cpu_us["broker"] / stock.cpu_us["broker"],
                "stock's",
            )
        )
    rows.append(
        paired(
            "messages",
            "/s",
            [(s.per_second, o.per_second) for s, o in pairs],
            "0.85" if case.receipts else "0.9",
        )
    )
    per_cpu = [(1e6 / s.cpu_us["broker"], 1e6 / o.cpu_us["broker"]) for s, o in pairs]
    rows.append(
        paired(
            "messages of a CPU second of the broker", "", per_cpu, "" if case.receipts else "0.95"
        )
    )
    rows.append(
        paired(
            "broker's CPU",
            "us/message",
            [(s.cpu_us["broker"], o.cpu_us["broker"]) for s, o in pairs],
            "1.08",
        )
    )
    rows.append(
        paired(
            "ZooKeeper's and bookies' CPU",
            "us/message",
            [(s.cpu_us["stack"], o.cpu_us["stack"]) for s, o in pairs],
        )
    )
    rows.extend(
        row(f"{part}'s CPU", median(o.cpu_us[part] for _, o in pairs), "us/message")
        for part in ("daemon", "gateway")
    )
    rows.append(row("daemon to bookies", median(o.stored_bytes for _, o in pairs), "B/message"))
    if case.receipts and pairs[0][0].receipt_ms[0]:  # the client answers cumulative acks at once
        for at, name in enumerate(("p50", "p99")):
            rows.append(
                paired(
                    f"ack to receipt {name}",
                    "ms",
                    [(s.receipt_ms[at], o.receipt_ms[at]) for s, o in pairs],
                )
            )
    return rows
