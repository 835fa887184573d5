"""The archive's folder: `TABLE/day=YYYY-MM-DD/tenant=.../*.parquet`, in which a day is replaced as
a whole.

Spark's own dynamic overwrite replaces partition by partition and leaves a tenant that is gone. Here
a day is written beside, below `_staging` (which readers of Parquet folders do not see), then a file
READY decides, then folders are renamed. Invariants: before READY is there the day is as it was, all
tables of it; afterwards it is the new one as soon as the renames were done, by this process or by
the next one (`recover`), which does the same and may do it twice; nothing else is touched. For the
moment between two renames of a day that is replaced, it is not there. One archiving process at a
time.

A reading of one tenant takes that tenant's place and no other's: what the day has of the others is
copied into the stage before READY is there, so that what is published is a whole day all the same.
A reading that found no cursor takes the place of none.

Renaming folders must be possible: local and mounted file systems, and HDFS. An object store cannot.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from cursorkeeper_pipeline.failures import OptionError

STAGING, READY = "_staging", "READY"
RENAMING = ("local", "hdfs", "viewfs")
_STAGE = re.compile(r"(\d{4}-\d\d-\d\d)-[0-9a-f]{32}")


class DayFolder:
    """See the module. `tables`: the first says whether there is anything. `say` is told each change
    of a folder, after it.
    """

    def __init__(
        self, folder: str, tables: Sequence[str], *, say: Callable[[str], None] = lambda _what: None
    ) -> None:
        self._tables, self._say = tuple(tables), say
        self.base = folder.rstrip("/") if "://" in folder else str(Path(folder).resolve())
        self._root: str
        try:
            self._fs, self._root = (
                fs.FileSystem.from_uri(self.base)
                if "://" in folder
                else (fs.LocalFileSystem(), self.base)
            )
        except (OSError, ValueError, pa.ArrowException) as error:
            raise OptionError(
                f"out = {folder}: {error}", "name a folder that this machine can write to"
            ) from None
        if self._fs.type_name not in RENAMING:
            raise OptionError(
                f"out = {folder}: a day is replaced by renaming folders, which "
                f"{self._fs.type_name} cannot",
                "archive to a mounted file system or HDFS, and copy finished days from there",
            )

    def table(self, name: str) -> str:
        """Where a table's days are, for Spark."""
        return f"{self.base}/{name}"

    def stage(self, day: datetime.date) -> str:
        """A new place for a day's tables, for Spark: `STAGE/TABLE`."""
        return f"{self.base}/{STAGING}/{day.isoformat()}-{uuid.uuid4().hex}"

    def publish(self, stage: str, tenant: str = "") -> None:
        """All tables of the stage take the place of what the day has; with `tenant`, of what it has
        of that tenant, which is all that was read. Raises OptionError where the day has cursors
        that would be gone and the stage has none.
        """
        place = f"{self._root}/{STAGING}/{stage.rpartition('/')[2]}"
        missing = [table for table in self._tables if not self._exists(f"{place}/{table}")]
        if missing:
            raise ValueError(f"{stage}: {', '.join(missing)} were not written")
        self._refuse_nothing(place, tenant)
        if tenant:
            self._carry_over(place, tenant)
        with self._fs.open_output_stream(f"{place}/_{READY}") as file:
            file.write(b"")
        self._move(f"{place}/_{READY}", f"{place}/{READY}")
        self._roll_forward(place)

    def recover(self) -> list[str]:
        """Ends what a process that died had begun: published where READY is there, else removed.
        The days that were published.
        """
        ended = []
        for place in self._children(f"{self._root}/{STAGING}"):
            found = _STAGE.fullmatch(place.rpartition("/")[2])
            if found is None:
                continue  # not ours
            if self._exists(f"{place}/{READY}"):
                self._roll_forward(place)
                ended.append(found[1])
            else:
                self._remove(place)
        return ended

    def _refuse_nothing(self, place: str, tenant: str) -> None:
        """A root that is not the one meant is more likely than a fleet that is gone."""
        head = self._tables[0]
        had, found = (
            [t for t, _ in self._tenants(at) if tenant in ("", t)]
            for at in (self._day(place, head), f"{place}/{head}")
        )
        if not had or found:
            return
        self._remove(place)
        whose = f" of tenant {tenant}" if tenant else ""
        raise OptionError(
            f"out = {self.base}: no cursor{whose} was read, and "
            f"{self._day(place, head).rpartition('/')[2]} has some, which would be gone; "
            "it stays as it is",
            "check --root and the chroot of --zookeeper. If there is really none any more, "
            + ("archive without --tenant" if tenant else "remove the day's folders first"),
        )

    def _carry_over(self, place: str, tenant: str) -> None:
        for table in self._tables:
            for other, folder in self._tenants(self._day(place, table)):
                if other != tenant:
                    kept = f"{place}/{table}/{folder.rpartition('/')[2]}"
                    self._fs.create_dir(kept, recursive=True)
                    fs.copy_files(
                        folder, kept, source_filesystem=self._fs, destination_filesystem=self._fs
                    )
                    self._say(f"copied to {kept}")

    def _tenants(self, table: str) -> list[tuple[str, str]]:
        """(tenant, its folder) of one day's table. Spark writes what is special in a name as %XX,
        and no folder without rows.
        """
        named = (
            (path.rpartition("/")[2].partition("tenant="), path) for path in self._children(table)
        )
        return [(unquote(name), path) for (before, key, name), path in named if key and not before]

    def _day(self, place: str, table: str) -> str:
        """Where a table of the stage belongs."""
        found = _STAGE.fullmatch(place.rpartition("/")[2])
        assert found is not None
        return f"{self._root}/{table}/day={found[1]}"

    def _roll_forward(self, place: str) -> None:
        for table in self._tables:
            new, day = f"{place}/{table}", self._day(place, table)
            if not self._exists(new):
                continue  # it is in its place already
            if self._exists(day):
                self._move(day, f"{place}/_old-{table}")
            self._fs.create_dir(f"{self._root}/{table}", recursive=True)
            self._move(new, day)
        self._remove(place)

    def _move(self, old: str, new: str) -> None:
        self._fs.move(old, new)
        self._say(f"moved to {new}")

    def _remove(self, place: str) -> None:
        """Nothing in it is needed any more, so it does not matter what of it is left when this is
        cut off.
        """
        self._fs.delete_dir(place)
        self._say(f"removed {place}")

    def _exists(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def _children(self, path: str) -> list[str]:
        return sorted(
            info.path
            for info in self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))
        )
