"""The archive's folder without Spark: a day is replaced as a whole, whatever step the process dies
at.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from cursorkeeper_pipeline.failures import OptionError
from cursorkeeper_pipeline.jobs.day_folder import DayFolder

DAY, BEFORE = datetime.date(2026, 11, 21), datetime.date(2026, 11, 20)
TABLES = ("cursors", "segments", "hole_stats")


class Died(BaseException):
    """As a process that is killed."""


def staged(
    folder: DayFolder, content: str, day: datetime.date = DAY, tables: tuple[str, ...] = TABLES
) -> str:
    """As Spark writes it; the tenants say which content it is."""
    stage = folder.stage(day)
    for table in tables:
        file = Path(stage) / table / f"tenant={content}" / "part-0.parquet"
        file.parent.mkdir(parents=True)
        file.write_text(f"{table} {content}")
    return stage


def contents(base: Path, day: datetime.date = DAY) -> list[str]:
    """Of each table, the tenants of the day."""
    return [
        ",".join(sorted(p.name for p in (base / table / f"day={day}").glob("*")))
        for table in TABLES
    ]


def only(content: str) -> list[str]:
    return [f"tenant={content}"] * len(TABLES)


def test_a_day_is_published_and_replaced(tmp_path: Path) -> None:
    folder = DayFolder(str(tmp_path), TABLES)
    folder.publish(staged(folder, "other", BEFORE))
    folder.publish(staged(folder, "one"))
    assert contents(tmp_path) == only("one")
    folder.publish(staged(folder, "two"))
    assert contents(tmp_path) == only("two") and contents(tmp_path, BEFORE) == only("other")
    assert not list((tmp_path / "_staging").iterdir())


def test_what_was_not_written_to_its_end_is_not_published(tmp_path: Path) -> None:
    folder = DayFolder(str(tmp_path), TABLES)
    folder.publish(staged(folder, "one"))
    half = staged(folder, "two", tables=TABLES[:2])
    with pytest.raises(ValueError, match="hole_stats were not written"):
        folder.publish(half)
    assert (
        folder.recover() == []
        and contents(tmp_path) == only("one")
        and not list((tmp_path / "_staging").iterdir())
    )


TENANTS = ("acme", "a:b", "other")
"""The folder of the second is tenant=a%3Ab."""


def fleet(folder: DayFolder, content: str, tenants: tuple[str, ...] = TENANTS) -> str:
    """A stage with a file of each tenant, as Spark writes it; of nobody it is an empty folder."""
    stage = folder.stage(DAY)
    for table in TABLES:
        (Path(stage) / table).mkdir(parents=True)
        (Path(stage) / table / "_SUCCESS").touch()
        for tenant in tenants:
            file = Path(stage) / table / f"tenant={quote(tenant)}" / "part-0.parquet"
            file.parent.mkdir()
            file.write_text(content)
    return stage


def said(base: Path) -> list[dict[str, str]]:
    """Of each table, what the day has of each tenant."""
    days = [base / table / f"day={DAY}" for table in TABLES]
    return [
        {unquote(file.parent.name[7:]): file.read_text() for file in day.glob("tenant=*/*.parquet")}
        for day in days
    ]


@pytest.mark.parametrize("tenant", ["acme", "a:b"])
def test_a_tenant_is_replaced_alone_whatever_step_it_dies_at(tmp_path: Path, tenant: str) -> None:
    first, replaced = (
        dict.fromkeys(TENANTS, "one"),
        {**dict.fromkeys(TENANTS, "one"), tenant: "two"},
    )
    finished = False
    for at in range(100):
        base = tmp_path / str(at)
        folder = DayFolder(str(base), TABLES)
        folder.publish(fleet(folder, "one"))

        def work(dying: DayFolder) -> None:
            nonlocal finished
            dying.publish(fleet(dying, "two", (tenant,)), tenant)
            finished = True

        _dies(work, base, at)
        folder.recover()
        assert said(base) in ([first] * len(TABLES), [replaced] * len(TABLES)), at
        assert not list((base / "_staging").iterdir())
        if finished:
            break
    copies, moves = 2 * len(TABLES), 2 * len(TABLES) + 1
    assert at == copies + moves + 1, (
        "it died behind every one of them, and behind the removal of the stage"
    )
    assert said(base) == [replaced] * len(TABLES)
    folder.publish(fleet(folder, "three", ("new",)), "new")
    assert said(base) == [{**replaced, "new": "three"}] * len(TABLES)


def test_nothing_does_not_take_the_place_of_something(tmp_path: Path) -> None:
    folder = DayFolder(str(tmp_path), TABLES)
    folder.publish(fleet(folder, "none yet", ()))
    folder.publish(fleet(folder, "one"))
    for tenant in ("", "acme"):
        with pytest.raises(
            OptionError,
            match=rf"no cursor.*{tenant}.* day={DAY} has some.*What to do: check --root",
        ):
            folder.publish(fleet(folder, "two", ()), tenant)
        assert said(tmp_path) == [dict.fromkeys(TENANTS, "one")] * len(TABLES)
        assert not list((tmp_path / "_staging").iterdir())
    folder.publish(fleet(folder, "two", ()), "nobody")
    assert said(tmp_path) == [dict.fromkeys(TENANTS, "one")] * len(TABLES)


def _steps(base: Path) -> int:
    said: list[str] = []
    folder = DayFolder(str(base), TABLES, say=said.append)
    folder.publish(staged(folder, "one"))
    said.clear()
    folder.publish(staged(folder, "two"))
    return len(said)


def test_it_dies_behind_every_step_and_the_next_run_ends_it(tmp_path: Path) -> None:
    """Also a run that ends what another one began may die, at each of its steps."""
    steps = _steps(tmp_path / "count")
    assert steps == 2 * len(TABLES) + 2
    for at in range(steps):
        for again in range(steps):
            base = tmp_path / f"{at}-{again}"
            whole = DayFolder(str(base), TABLES)
            whole.publish(staged(whole, "one"))
            _dies(lambda folder: folder.publish(staged(folder, "two")), base, at)
            _dies(DayFolder.recover, base, again)
            whole.recover()
            assert contents(base) == only("two"), (at, again)
            assert not list((base / "_staging").iterdir()) and whole.recover() == []


def _dies(work: Callable[[DayFolder], object], base: Path, at: int) -> None:
    left = at

    def say(_step: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died

    with suppress(Died):
        work(DayFolder(str(base), TABLES, say=say))


def test_before_the_decision_the_old_day_stays(tmp_path: Path) -> None:
    folder = DayFolder(str(tmp_path), TABLES)
    folder.publish(staged(folder, "one"))
    staged(folder, "two")  # all of it is written, and then the process dies
    assert folder.recover() == [] and contents(tmp_path) == only("one")


def test_files_of_others_stay(tmp_path: Path) -> None:
    folder = DayFolder(str(tmp_path), TABLES)
    (tmp_path / "_staging" / "mine").mkdir(parents=True)
    folder.recover()
    assert (tmp_path / "_staging" / "mine").is_dir()


def test_an_object_store_is_refused() -> None:
    with pytest.raises(OptionError, match=r"renaming folders.*What to do"):
        DayFolder("s3://bucket/archive?region=eu-west-1", TABLES)
    with pytest.raises(OptionError, match="What to do"):
        DayFolder("nowhere://bucket/archive", TABLES)
