"""A footer as people and programs read it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from cursorkeeper.bookkeeper.port import LedgerInfo
from cursorkeeper.core.footer import (
    FORMAT_NATIVE,
    Base,
    ChainLedger,
    EmptyBase,
    Footer,
    InlineBase,
    PulsarBase,
    SnapshotBase,
)
from cursorkeeper.format.footer import pulsar_state, snapshot_json

_KINDS = {EmptyBase: "empty", InlineBase: "inline", PulsarBase: "pulsar", SnapshotBase: "snapshot"}
_WORDS = {
    "empty": "empty, at {markDelete[0]}:{markDelete[1]}",
    "inline": "inline, {slices} slices, {partialBatches} partial batches (epoch {epoch})",
    "pulsar": "inline in Pulsar's form, {bytes:,} bytes: mark-delete "
    "{markDelete[0]}:{markDelete[1]}, {acks:,} acked, {partialBatches:,} partial batches "
    "(epoch {epoch})",
    "snapshot": "snapshot in ledger {ledger}, entries {firstEntry}..{lastEntry}, "
    "{numParts} segments, {length:,} bytes, crc32c {crc32c}",
}


def base_kind(base: Base) -> str:
    return _KINDS[type(base)]


def base_text(base: Base) -> str:
    return _WORDS[base_kind(base)].format(**base_json(base))


def base_json(base: Base) -> dict[str, Any]:
    """As in the footer; an inline state as counts."""
    told: dict[str, Any] = {"kind": base_kind(base)}
    match base:
        case EmptyBase():
            return told | {"markDelete": list(base.mark_delete)}
        case InlineBase():
            return told | {
                "epoch": base.epoch,
                "slices": len(base.state.slices),
                "partialBatches": len(base.state.partials),
            }
        case PulsarBase():
            state = pulsar_state(base)
            return told | {
                "epoch": base.epoch,
                "bytes": len(base.info),
                "markDelete": list(state.mark_delete),
                "acks": sum(map(len, state.acked.values())),
                "partialBatches": len(state.batches),
            }
        case SnapshotBase():
            return told | snapshot_json(base)


def _chain(chain: tuple[ChainLedger, ...]) -> list[dict[str, Any]]:
    return [
        {"ledger": c.ledger, "lastEntry": c.last_entry}
        | ({} if c.format == FORMAT_NATIVE else {"format": c.format})
        for c in chain
    ]


def footer_json(footer: Footer, version: int) -> dict[str, Any]:
    """Everything but the bitmaps of an inline state. `version` is the znode's."""
    return {
        "topic": footer.topic,
        "subscription": footer.subscription,
        "state": str(footer.state),
        "epoch": footer.epoch,
        "writer": footer.writer,
        "write": footer.write,
        "generation": footer.generation,
        "markDelete": list(footer.mark_delete),
        "base": base_json(footer.base),
        "chain": _chain(footer.chain),
        "previous": footer.previous
        and {"base": base_json(footer.previous.base), "chain": _chain(footer.previous.chain)},
        "stats": structs.asdict(footer.stats),
        "format": footer.format,
        "cursorProperties": None
        if footer.cursor_properties is None
        else dict(footer.cursor_properties.values),
        "truncated": None if footer.truncated is None else footer.truncated.as_fields(),
        "fencingToken": footer.fencing_token,
        "znodeVersion": version,
        "extra": dict(footer.extra),
    }


def footer_lines(footer: Footer, version: int) -> list[tuple[str, str]]:
    """(label, text) for people."""
    stats = footer.stats
    at_least = " (at least)" if footer.state == "open" else ""
    lines = [
        ("state", f"{footer.state}, znode version {version}"),
        ("owner", f"epoch {footer.epoch}, {footer.writer}, write {footer.write}"),
        *(
            [
                (
                    "token",
                    f"fencing token {footer.fencing_token}: who comes with a lower one is refused",
                )
            ]
            if footer.fencing_token
            else []
        ),
        ("generation", str(footer.generation)),
        ("mark-delete", f"{footer.mark_delete}{at_least}"),
        ("base", base_text(footer.base)),
        ("chain", _chain_text(footer.chain)),
    ]
    if footer.previous is not None:
        lines.append(
            (
                "previous",
                f"{base_text(footer.previous.base)}; chain {_chain_text(footer.previous.chain)}",
            )
        )
    lines.append(
        (
            "stats",
            f"{stats.ledgers:,} ledgers, span {stats.span:,}, {stats.holes:,} holes in "
            f"{stats.runs:,} runs, "
            f"{stats.partial_batches:,} partial batches, {stats.delta_bytes:,} bytes of deltas",
        )
    )
    if footer.format != FORMAT_NATIVE:
        lines.insert(lines.index(("generation", str(footer.generation))), ("format", footer.format))
    if footer.cursor_properties is not None:
        lines.append(
            (
                "properties",
                f"{len(footer.cursor_properties.values)} of the subscription, in the footer",
            )
        )
    if footer.truncated is not None:
        t = footer.truncated
        lines.append(
            (
                "TRUNCATED",
                f"the stored state leaves out {t.acks:,} acks, {t.batches:,} partial batches, "
                f"{t.properties:,} mark-delete properties (as of this footer): {t.limit}",
            )
        )
    if footer.extra:
        lines.append(("unknown keys", ", ".join(sorted(footer.extra))))
    return lines


def _chain_text(chain: tuple[ChainLedger, ...]) -> str:
    def one(c: ChainLedger) -> str:
        form = "" if c.format == FORMAT_NATIVE else f"{c.format}, "
        return f"{c.ledger} ({form}to {'open end' if c.last_entry is None else c.last_entry})"

    return ", ".join(map(one, chain)) or "none"


def roles(footer: Footer, ledger: int) -> list[str]:
    """What a ledger is to the footer."""
    found = []
    for named, said in ((footer, ""), (footer.previous, "previous ")):
        if named is None:
            continue
        if isinstance(named.base, SnapshotBase) and named.base.ledger == ledger:
            found.append(f"{said}base")
        if any(c.ledger == ledger for c in named.chain):
            found.append(f"{said}chain")
    return found


def ledger_json(info: LedgerInfo | None, last_entry: int, *, is_final: bool) -> dict[str, Any]:
    if info is None:
        return {"state": "MISSING", "ok": False}
    return {
        "lastEntry": last_entry,
        "atLeast": not is_final,
        "state": info.state.name,
        "length": info.length,
        "ensemble": info.ensemble,
        "writeQuorum": info.write_quorum,
        "ackQuorum": info.ack_quorum,
        "digest": info.digest.name,
        "customMetadata": {k: v.decode(errors="replace") for k, v in info.custom_metadata.items()},
    }
