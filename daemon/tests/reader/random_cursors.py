"""Random cursors as they might be stored, from a seed: records of any content in any order,
snapshots, earlier generations and owners, whole states in Pulsar's form, and damage anywhere. The
bytes are made by the daemon's own encoders.

Small numbers, so that records meet; some huge ones, so that limits are met. What no writer would
make (two lengths of a closed ledger, two maps of one stamp, overlapping slices) is made as well:
the page says what it means.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyroaring import BitMap

from cursorkeeper.core.checksums import combined
from cursorkeeper.core.footer import (
    FORMAT_PULSAR,
    Base,
    ChainLedger,
    EmptyBase,
    EntryAddress,
    Footer,
    FooterState,
    InlineBase,
    Previous,
    PulsarBase,
    SnapshotBase,
    Written,
)
from cursorkeeper.core.names import CursorName
from cursorkeeper.core.positions import ENTRY_ID_MAX, LEDGER_ID_MAX, Position
from cursorkeeper.core.state import AckState
from cursorkeeper.core.values import (
    CursorProperties,
    Delta,
    LayoutItem,
    LayoutState,
    MarkDeleteProperties,
    OpenRecord,
    Partial,
    PartialKey,
    Record,
    RecordBody,
    Segment,
    Slice,
    SnapshotEnd,
    Stamp,
)
from cursorkeeper.core.whole_form import Taken
from cursorkeeper.format import footer as footer_bytes
from cursorkeeper.format import record
from cursorkeeper.format.codec import Codec
from cursorkeeper.format.pulsar.values import Compression, Form
from cursorkeeper.format.whole_state import PulsarStateWriter, WholeStateSettings
from daemon.tests.reader.cases import Case, Stored

FIRST_LEDGER = 100


class Maker:
    """Makes one cursor."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.name = CursorName(
            f"persistent://t/ns/{self.rng.choice(['topic', 'Größe %', 'a|b 日本', '~x_y.z'])}",
            f"sub {seed}",
        )
        self.epoch, self.generation = self.rng.randint(1, 4), self.rng.randint(1, 3)
        self.topic = self.rng.choice([(0, 1, 2, 3), (7, 8, 20), (5,), (3, 1 << 40, LEDGER_ID_MAX)])
        self.dense = self.rng.random() < 0.6
        """Most entries get acked, so that mark-delete moves by itself."""
        self.settings = record.EncodeSettings(
            codec=self.rng.choice(list(Codec)),
            record_version=self.rng.choice([record.VERSION, record.SEGMENT_VERSION]),
        )
        self.ledgers: dict[int, Stored] = {}
        self.sequence = 0
        self.write = self.rng.randint(1, 5)

    def happens(self, chance: float) -> bool:
        return self.rng.random() < chance

    # ---- values

    def position(self) -> Position:
        return Position(
            self.rng.choice(self.topic), self.rng.choice([-1, 0, 1, 2, 3, self.rng.randint(0, 12)])
        )

    def entries(self) -> BitMap:
        rng, out = self.rng, BitMap()
        if self.happens(0.03):
            return BitMap([rng.choice([65_535, 65_536, 70_000, 1 << 20])])
        if self.happens(0.01):
            return BitMap([ENTRY_ID_MAX - rng.randint(0, 1)])
        if self.happens(0.05):
            return BitMap(
                n
                for n in range(rng.randint(0, 50), 9_000)
                if rng.random() < rng.choice([0.01, 0.5, 0.99])
            ) | BitMap([9])
        for _ in range(rng.randint(1, 4)):
            first = rng.randint(0, 8)
            out.add_range(first, first + rng.choice([1, 1, 2, 6] if self.dense else [1, 1, 1, 2]))
        return out

    def stamp(self) -> Stamp:
        return Stamp(self.rng.randint(1, self.epoch), self.rng.randint(0, 2))

    def numbers(self) -> MarkDeleteProperties:
        values = {
            self.rng.choice(["a", "é", "\uffff", "😀"]): self.rng.choice(
                [0, 1, -1, (1 << 63) - 1, -(1 << 63)]
            )
            for _ in range(self.rng.randint(0, 2))
        }
        return MarkDeleteProperties(self.stamp(), values)

    def texts(self) -> CursorProperties:
        values = {
            self.rng.choice(["a", "b", "\uffff", "😀"]): self.rng.choice(["", "x", "\uffff", "😀"])
            for _ in range(self.rng.randint(0, 2))
        }
        return CursorProperties(self.stamp(), values)

    def layout(self) -> tuple[LayoutItem, ...]:
        chosen = sorted(x for x in self.topic if self.happens(0.8))
        states = [
            self.rng.choice(
                [LayoutState.OPEN, LayoutState.CLOSED, LayoutState.CLOSED, LayoutState.TRIMMED]
            )
            for _ in chosen
        ]
        lengths = [self.rng.choice([0, 1, 6, 9, 9, 9, self.rng.randint(0, 12)]) for _ in chosen]
        return tuple(
            LayoutItem(x, s, n if s is LayoutState.CLOSED else 0)
            for x, s, n in zip(chosen, states, lengths, strict=True)
        )

    def partials(self) -> dict[PartialKey, Partial]:
        found = {}
        for _ in range(self.rng.randint(0, 3)):
            missing = BitMap(self.rng.sample(range(6), self.rng.randint(1, 3)))
            size = self.rng.choice([0, 0, missing.max() + 1, 6, 50])
            found[PartialKey(self.rng.choice(self.topic), self.rng.randint(0, 12))] = Partial(
                size, missing
            )
        return found

    def head(
        self,
    ) -> tuple[
        Position | None,
        MarkDeleteProperties | None,
        CursorProperties | None,
        tuple[LayoutItem, ...],
    ]:
        return (
            self.position() if self.happens(0.3) else None,
            self.numbers() if self.happens(0.2) else None,
            self.texts() if self.happens(0.2) else None,
            self.layout() if self.happens(0.25) else (),
        )

    def delta(self) -> Delta:
        acks = {ledger: self.entries() for ledger in self.topic if self.happens(0.6)}
        return Delta(*self.head(), acks, self.partials() if self.happens(0.5) else {})

    def slice(self) -> Slice:
        first = self.rng.choice([0, 0, self.rng.randint(0, 9), 65_536])
        last = first + self.rng.choice([0, 5, 12, 65_535])
        inside = BitMap(first + entry for entry in self.entries() if first + entry <= last)
        return Slice(self.rng.choice(self.topic), first, last, self.happens(0.5), inside)

    def segment(self) -> Segment:
        slices = tuple(self.slice() for _ in range(self.rng.randint(0, 3)))
        return Segment(*self.head(), self.partials() if self.happens(0.4) else {}, slices)

    # ---- records

    def encoded(
        self, body: RecordBody, generation: int | None = None, epoch: int | None = None
    ) -> bytes:
        self.sequence += 1
        owner = epoch if epoch is not None else self.rng.randint(1, self.epoch)
        made = Record(
            self.name.record_hash,
            owner,
            self.generation if generation is None else generation,
            self.sequence,
            body,
        )
        return record.encode(made, self.settings)

    def opened(self) -> bytes:
        return self.encoded(OpenRecord(self.name.canonical, self.epoch, self.generation, "writer"))

    def noise(self) -> bytes:
        """A record that does not count, or a delta that does."""
        if self.happens(0.08):
            return self.encoded(self.segment())
        if self.happens(0.05):
            return self.encoded(SnapshotEnd(1, 1, 1, (0,), self.position(), None, None))
        if self.happens(0.1):
            return self.encoded(self.delta(), generation=self.generation - 1)
        return self.encoded(self.delta())

    def store(self, entries: Sequence[bytes | None], metadata: dict[str, str] | None = None) -> int:
        ledger = FIRST_LEDGER + len(self.ledgers)
        self.ledgers[ledger] = Stored(tuple(entries), metadata or {})
        return ledger

    def records(self) -> ChainLedger:
        entries = [
            self.opened() if self.happens(0.9) else self.noise(),
            *(self.noise() for _ in range(self.rng.randint(0, 7))),
        ]
        return self.chained(self.store(entries if self.happens(0.95) else []))

    def chained(self, ledger: int, form: str = "native") -> ChainLedger:
        last = len(self.ledgers[ledger].entries) - 1
        return ChainLedger(ledger, last if self.happens(0.8) else None, form)

    def snapshot(self) -> tuple[SnapshotBase, ChainLedger]:
        """A ledger of deltas, segments and their end record in any mixture."""
        entries = [self.opened(), *(self.noise() for _ in range(self.rng.randint(0, 3)))]
        at: list[int] = []
        for _ in range(self.rng.randint(1, 4)):
            at.append(len(entries))
            entries.append(self.encoded(self.segment()))
            entries += [self.noise() for _ in range(self.rng.choice([0, 0, 1, 2]))]
        segments = [entries[x] for x in at]
        checksum, length = (
            combined([record.peek(x).crc32c for x in segments]),
            sum(map(len, segments)),
        )
        end = SnapshotEnd(
            1,
            self.epoch,
            self.generation,
            tuple(at),
            self.position(),
            self.head()[1],
            self.head()[2],
            length,
            checksum,
        )
        last = len(entries)
        entries.append(self.encoded(end))
        base = SnapshotBase(0, at[0], last, len(at), length, record.peek(entries[last]).crc32c)
        entries += [self.noise() for _ in range(self.rng.randint(0, 4))]
        ledger = self.store(entries)
        return replace(base, ledger=ledger), self.chained(ledger)

    # ---- Pulsar's form

    def state(self) -> AckState:
        state = AckState(self.position())
        for _ in range(self.rng.randint(0, 3)):
            state.join_delta(replace(self.delta(), layout=()))
        state.settle()
        return state

    def writer(self) -> PulsarStateWriter:
        multiple = self.happens(0.6)
        return PulsarStateWriter(
            WholeStateSettings(
                form=self.rng.choice(list(Form)),
                multiple=multiple,
                max_entry_bytes=self.rng.choice([64, 70, 100, 300]) if multiple else 1 << 20,
                compression=self.rng.choice(list(Compression)),
                inline_compression=self.rng.choice(list(Compression)),
                inline_threshold_bytes=10,
            )
        )

    def whole_states(self) -> ChainLedger:
        writer, entries = self.writer(), list[bytes]()
        for _ in range(self.rng.randint(1, 3)):
            taken = writer.take(self.state())
            if not isinstance(taken, Taken):
                return self.records()
            entries += taken.entries
        if self.happens(0.3) and len(taken.entries) > 1:
            # a flush that was cut off
            entries += taken.entries[: self.rng.randint(1, len(taken.entries) - 1)]
        told = {
            "cursor": self.name.canonical,
            "format": FORMAT_PULSAR,
            "epoch": str(self.rng.randint(1, self.epoch)),
        }
        told |= {
            "generation": str(self.generation),
            **{key: value.decode() for key, value in writer.ledger_metadata.items()},
        }
        return self.chained(self.store(entries, told), FORMAT_PULSAR)

    # ---- the footer

    def base(self) -> tuple[Base, tuple[ChainLedger, ...]]:
        """A base, and the ledger of its own that it needs in the chain."""
        kind = self.rng.choice(["empty", "inline", "snapshot", "snapshot", "snapshot", "pulsar"])
        if kind == "empty":
            return EmptyBase(self.position()), ()
        if kind == "inline":
            return InlineBase(
                self.segment(), self.rng.randint(1, self.epoch), self.generation, 7
            ), ()
        if kind == "pulsar":
            info = self.writer().inline(self.state(), 1 << 20)
            return (
                PulsarBase(info, self.rng.randint(1, self.epoch))
                if info
                else EmptyBase(self.position())
            ), ()
        base, own = self.snapshot()
        return base, (own,)

    def chain(self) -> tuple[ChainLedger, ...]:
        return tuple(
            self.whole_states() if self.happens(0.1) else self.records()
            for _ in range(self.rng.choice([0, 1, 1, 2]))
        )

    def footer(self) -> Footer:
        previous = None
        if self.happens(0.8):
            base, own = self.base()
            previous = Previous(base, own + self.chain())
        base, own = self.base()
        chain = own + self.chain()
        if previous is not None and self.happens(0.3):  # a ledger that both name
            chain = chain + previous.chain[-1:]
        damaged = (
            [
                EntryAddress(self.rng.choice(list(self.ledgers)), self.rng.randint(0, 6))
                for _ in range(self.rng.randint(0, 2))
            ]
            if self.ledgers
            else []
        )
        return Footer(
            self.name.topic,
            self.name.subscription,
            self.rng.choice(
                [
                    FooterState.OPEN,
                    FooterState.CLOSED,
                    FooterState.OPEN,
                    FooterState.CLOSED,
                    FooterState.DELETED,
                ]
            )
            if self.happens(0.2)
            else FooterState.OPEN,
            self.epoch,
            "writer/1/ab",
            self.write,
            self.generation,
            self.position() if self.happens(0.5) else Position(0, -1),
            base,
            chain,
            previous,
            damaged=tuple(damaged) if self.happens(0.2) else (),
            cursor_properties=self.texts() if self.happens(0.15) else None,
            written=Written(6, self.rng.choice([self.epoch, 1]), self.rng.choice([self.write, 1]))
            if self.happens(0.7)
            else None,
            extra={"later": [1.5, None]} if self.happens(0.1) else {},
            fencing_token=self.rng.choice([1, 812, (1 << 63) - 1]) if self.happens(0.3) else 0,
        )

    def made(self) -> Case:
        footer = self.footer()
        found_as = self.rng.choice([None, 6, 6, 6, 6, 6, 7])
        faults = () if found_as != 7 else ("another version of the znode",)
        case = Case(
            self.name,
            footer_bytes.encode(footer, self.settings),
            dict(self.ledgers),
            faults,
            found_as,
        )
        for _ in range(self.rng.choice([0, 0, 1, 1, 1, 2])):
            case = self.damaged(case, footer)
        return case

    # ---- damage

    def damaged(self, case: Case, footer: Footer) -> Case:
        """One fault more, mostly where it matters."""
        if self.happens(0.12) or not case.ledgers:
            return self.damaged_footer(case)
        if self.happens(0.05):
            gone = self.rng.choice(list(case.ledgers))
            left = {ledger: own for ledger, own in case.ledgers.items() if ledger != gone}
            return replace(case, ledgers=left, faults=(*case.faults, f"no ledger {gone}"))
        ledger, at = self.place(case, footer)
        own = case.ledgers.get(ledger)
        if own is None or not 0 <= at < len(own.entries):
            return case
        how, changed = self.spoilt(own.entries[at])
        entries = (
            own.entries[:at]
            if how == "cut"
            else (*own.entries[:at], changed, *own.entries[at + 1 :])
        )
        said = f"{how} {ledger}:{at}"
        return replace(
            case,
            ledgers={**case.ledgers, ledger: replace(own, entries=entries)},
            faults=(*case.faults, said),
        )

    def place(self, case: Case, footer: Footer) -> tuple[int, int]:
        ledger = self.rng.choice(list(case.ledgers))
        if isinstance(footer.base, SnapshotBase) and self.happens(0.6):
            base = footer.base
            places = [base.first_entry, base.last_entry]
            return base.ledger, self.rng.choice(
                [0, base.first_entry - 1, *places, *places, *places, base.last_entry + 1]
            )
        return ledger, self.rng.randrange(max(1, len(case.ledgers[ledger].entries)))

    def spoilt(self, entry: bytes | None) -> tuple[str, bytes | None]:
        if not entry:
            return "distrusted", None
        kinds: list[tuple[str, Callable[[bytes], bytes | None]]] = [
            ("distrusted", lambda _: None),
            ("flipped", self.flipped),
            ("short", lambda e: e[: self.rng.randrange(len(e))]),
            ("cut", lambda e: e),
            ("newer", lambda e: e[:2] + b"\x03" + e[3:] if e[:2] == b"CK" else e),
            ("other cursor", lambda e: self.again(e, cursor_hash=1)),
            ("later owner", lambda e: self.again(e, epoch=self.epoch + 1)),
            ("other generation", lambda e: self.again(e, generation=self.generation + 1)),
            ("another delta", lambda e: self.again(e, body=self.delta())),
            ("another segment", lambda e: self.again(e, body=self.segment())),
        ]
        how, change = self.rng.choice(kinds)
        return how, change(entry)

    def flipped(self, entry: bytes) -> bytes:
        at = self.rng.randrange(len(entry))
        return entry[:at] + bytes([entry[at] ^ 1 << self.rng.randrange(8)]) + entry[at + 1 :]

    def again(self, entry: bytes, **changes: object) -> bytes:
        """The record with something else in it, and a right checksum."""
        try:
            return record.encode(replace(record.decode(entry, None), **changes), self.settings)  # type: ignore[arg-type]
        except ValueError:
            return entry
        except Exception:
            return entry + b"\0"

    def damaged_footer(self, case: Case) -> Case:
        data = case.footer
        how = self.rng.choice(["flipped", "short", "version", "format", "other cursor"])
        if how == "flipped":
            data = self.flipped(data)
        elif how == "short":
            data = data[: self.rng.randrange(len(data))]
        elif how == "version":
            data = re.sub(rb'^{"version":[12]', b'{"version":3', data)
        elif how == "format":
            data = data.replace(b'"format":"native"', b'"format":"newest"', 1)
        else:
            return replace(
                case, name=replace(case.name, subscription="other"), faults=(*case.faults, how)
            )
        return replace(case, footer=data, faults=(*case.faults, f"footer {how}"))


def random_case(seed: int) -> Case:
    """The same for the same seed."""
    return Maker(seed).made()
