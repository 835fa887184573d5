"""`python -m tools.record_release --out DIR`: plays every story on the real stack and writes what
the release stored.

The release that is recorded is the one that is installed for this interpreter; the gateway is the
jar of its repository, or the one in CURSORKEEPER_GATEWAY_JAR. Invariant: nothing is written of a
cursor that the release itself, as the next owner, does not read back as its source knew it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pyroaring import BitMap

from cursorkeeper.core.names import ROOT
from tools.record_release import native_stories, pulsar_stories
from tools.record_release.stage import Json, Stage, stage
from tools.record_release.stories import Ended, Story
from tools.record_release.truth import State, set_of
from tools.record_release.written import Folder, dump, state_json

DISTRIBUTION = "cursorkeeper"
STORIES = (*native_stories.STORIES, *pulsar_stories.STORIES)


class NotAsTheSourceKnew(Exception):
    """The release reads something else than what was confirmed: nothing to record, a defect to look
    at.
    """


async def record(on: Stage, story: Story, folder: Folder) -> None:
    """One story, from the beginning to its files."""
    name = story.__name__.replace("_", "-")
    ended = await story(on)
    stored, body = await dump(on, ended.cursor, settled=ended.settled)
    manifest = {
        "story": (story.__doc__ or "").strip(),
        **stored,
        "flags": list(ended.cursor.flags),
        **told(ended),
    }
    await check(on, ended, manifest)
    folder.put(name, manifest, body)
    print(f"{name}: {len(stored['ledgers'])} ledgers, {len(body)} bytes", file=sys.stderr)


def told(ended: Ended) -> Json:
    """What the source knows at the end: `expected` was confirmed; `sent` too may be there, where it
    is more.
    """
    truth, handle = ended.cursor.truth, ended.cursor.handle
    found: Json = {"end": ended.how, "epoch": handle.epoch}
    if ended.how == "deleted":
        return {**found, "expected": {"generation": handle.generation + 1}}
    confirmed = truth.upto(handle.durable_seq)
    if ended.truncated_acks:
        _leave_out(confirmed, ended.truncated_acks)
    found["expected"] = truth.described(confirmed)
    sent = truth.described(truth.upto(None))
    if sent != found["expected"] and not ended.truncated_acks:
        found["sent"] = sent
    return found


def _leave_out(state: State, acks: int) -> None:
    """The newest ones, by position."""
    positions = [(ledger, entry) for ledger, entries in state.acked.items() for entry in entries]
    kept = sorted(positions)[: len(positions) - acks]
    state.acked = {
        ledger: BitMap([entry for at, entry in kept if at == ledger])
        for ledger in sorted({at for at, _ in kept})
    }


async def check(on: Stage, ended: Ended, manifest: Json) -> None:
    """The release as the next owner. Raises NotAsTheSourceKnew."""
    async with on.daemon("--snapshot-interval-min-s", "100000") as daemon:
        if ended.how == "deleted":
            again = await daemon.create_again(ended.cursor)
            found: Json = {"generation": again.generation}
            epochs = again.epoch, manifest["epoch"] + 1
        else:
            found = state_json(await daemon.take_over(ended.cursor))
            epochs = ended.cursor.handle.epoch, manifest["epoch"] + 1
        await daemon.kill()
    if epochs[0] != epochs[1]:
        raise NotAsTheSourceKnew(f"{ended.cursor.name}: epoch {epochs[0]}, {epochs[1]} is next")
    if "sent" in manifest:
        _check_between(found, manifest)
        return
    for key, value in manifest["expected"].items():
        if found[key] != value:
            raise NotAsTheSourceKnew(
                f"{ended.cursor.name}: {key} is {str(found[key])[:500]}, confirmed was "
                f"{str(value)[:500]}"
            )


def _check_between(found: Json, manifest: Json) -> None:
    """What was not confirmed may be there or not."""
    confirmed, state, sent = (
        _positions(part) for part in (manifest["expected"], found, manifest["sent"])
    )
    if not confirmed <= state <= sent:
        raise NotAsTheSourceKnew(
            f"lost {sorted(confirmed - state)[:5]}, never sent {sorted(state - sent)[:5]}"
        )


def _positions(part: Json) -> set[tuple[int, int]]:
    return {
        (int(ledger), entry) for ledger, told in part["acked"].items() for entry in set_of(told)
    }


async def play(stories: Sequence[Story], out: Path) -> None:
    """All of them on one stack. Ends the process if the folder, the distribution and the gateway
    are not of one release.
    """
    release = version(DISTRIBUTION)
    if out.name != release:
        raise SystemExit(
            f"{out}: the release that is installed here is {release}; give a folder of that "
            f"name, or install the other one"
        )
    folder = Folder(out)
    with tempfile.TemporaryDirectory() as work:
        async with stage(Path(work)) as on:
            gateway = await on.gateway.describe()
            if gateway.version != release:
                remedy = "build it (`make jar`), or name another one in CURSORKEEPER_GATEWAY_JAR"
                raise SystemExit(
                    f"the gateway's jar is of {gateway.version}, not of {release}: {remedy}"
                )
            for story in stories:
                await record(on, story, folder)
            deployment = (await on.zookeeper.get(ROOT)).data.decode()
            folder.finish(
                {
                    "release": release,
                    "bookkeeper": gateway.bookkeeper_version,
                    "root": ROOT,
                    "deployment": deployment,
                }
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.record_release", description="Record what this release writes."
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="an empty folder, testdata/releases/VERSION"
    )
    parser.add_argument("--only", nargs="*", help="stories, by name; all without it")
    arguments = parser.parse_args()
    known = {story.__name__.replace("_", "-"): story for story in STORIES}
    if unknown := set(arguments.only or ()) - set(known):
        parser.error(f"no story {sorted(unknown)[0]!r}; there are {', '.join(known)}")
    asyncio.run(play([known[name] for name in arguments.only or known], arguments.out))


if __name__ == "__main__":
    main()
