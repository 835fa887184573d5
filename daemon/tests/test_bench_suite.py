"""For readers of the README's plot: the suite's plots are drawn from any result, the committed ones
are those of the committed result, and a run says what it has left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import flush_bytes, plots
from bench.figures import ABOUT, BACKLOGS, HEADLINE, PLOTS, keys, ratios
from bench.suite import Case, Machine, Run, table
from cursorkeeper.format.pulsar.values import Compression

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"
ABOUT_TINY = {"platform": "a machine", "cores": 2, "date": "2026-01-02T03:04+00:00"}
TINY = {
    HEADLINE: 3_000,
    "bytes_per_flush_1000_uniform_1M": 1_800,
    "stack_bytes_per_flush_1M": 1_801,
    "pulsar_bytes_per_flush_1M": 170_000,
    "pulsar_bytes_per_flush_100M": 17_000_000,
    "recovery_ms_1M": 60.5,
    "raw_read_ms_1M": 20,
    "acks_per_s_1000": 500_000,
    "cursors_p99_ms_100": 20,
    "cursors_p99_ms_10000": 2_000,
    "ack_ms_p50": 5,
    "ack_ms_p99": 9.5,
    "raw_add_ms_p50": 4,
    "raw_add_ms_p99": 8,
    **ABOUT_TINY,
}
TEXT = "{http://www.w3.org/2000/svg}text"


def texts(file: Path) -> list[str]:
    return [node.text or "" for node in ElementTree.parse(file).iter(TEXT)]


def test_every_plot_is_drawn_with_its_text_as_text(tmp_path: Path) -> None:
    files = plots.draw(TINY, tmp_path)
    assert [file.stem for file in files] == [plot.name for plot in PLOTS]
    for plot, file in zip(PLOTS, files, strict=True):
        said = texts(file)
        assert plot.title in said
        assert any(text.startswith("CursorKeeper, ") for text in said)
        assert any("a machine, 2 cores, 2026-01-02" in text for text in said)


def test_baselines_and_published_figures_are_named(tmp_path: Path) -> None:
    plots.draw(TINY, tmp_path)
    said = "\n".join(texts(tmp_path / "flush_bytes.svg"))
    assert "Pulsar's whole state, 17 MB" in said
    assert "1 : 5,667" in said
    assert "154 B (published)" in said and "published: KIP-1349" in said
    assert "83.2 k/s (published)" in "\n".join(texts(tmp_path / "acks_per_second.svg"))


def test_the_same_result_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = plots.draw(TINY, tmp_path / "a"), plots.draw(TINY, tmp_path / "b")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_plot_of_which_nothing_was_measured_goes(tmp_path: Path) -> None:
    plots.draw(TINY, tmp_path)
    drawn = plots.draw({HEADLINE: 3_000, **ABOUT_TINY}, tmp_path)
    assert drawn == list(tmp_path.iterdir()) == [tmp_path / "flush_bytes.svg"]


@pytest.mark.parametrize("name", ["full", "quick"])
def test_a_committed_result_is_flat_and_has_declared_keys(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    assert result["run"] == name
    assert next(iter(result)) == HEADLINE
    assert set(ABOUT) <= result.keys() <= {*keys(), *ABOUT}
    figures = {key: value for key, value in result.items() if key not in ABOUT}
    assert all(isinstance(value, int | float) and value > 0 for value in figures.values())
    assert "failed" not in result["left_out"]
    for key, value in ratios(result).items():
        assert result[key] == pytest.approx(value, rel=0.01)
    assert name != "full" or all(f"pulsar_bytes_per_flush_{point}" in result for point in BACKLOGS)


def test_the_committed_plots_are_those_of_the_committed_result(tmp_path: Path) -> None:
    drawn = plots.draw(json.loads((RESULTS / "full.json").read_text()), tmp_path)
    assert {file.name for file in drawn} == {file.name for file in (RESULTS / "full").iterdir()}
    for file in drawn:
        assert file.read_bytes() == (RESULTS / "full" / file.name).read_bytes(), (
            f"python -m bench.plots bench/results/full.json, and commit {file.name}"
        )


def test_the_exact_figures_are_still_those_of_the_committed_result() -> None:
    """The encoders' bytes do not depend on the machine: if they change, so must the plot."""
    result = json.loads((RESULTS / "full.json").read_text())
    for key, value in flush_bytes.figures("1M", 1_000_000).items():
        assert result[key] == pytest.approx(value, rel=0.01), "make bench, and commit its results"


def test_what_a_flush_writes_is_what_is_new() -> None:
    state = flush_bytes.backlog(1_000_000, flush_bytes.HOLES)
    columns = next(flush_bytes.uniform(1_000_000, 1, 7))
    assert sum(len(entries) for entries in columns.values()) == flush_bytes.ACKS
    assert all(
        not state.is_acked(ledger, int(entry))
        for ledger, entries in columns.items()
        for entry in entries
    )
    before = state.hole_count
    assert flush_bytes.ours(state, 1_000_000) < 2_000
    assert before - state.hole_count == flush_bytes.FLUSHES * flush_bytes.ACKS
    assert flush_bytes.whole(state, Compression.NONE) > 125_000


def test_the_table_fits_eighty_columns() -> None:
    wide = dict.fromkeys(keys(), 123_456_789.123) | ABOUT_TINY
    for result in (TINY, wide):
        assert max(map(len, table(result).splitlines())) <= 80
    assert "CursorKeeper" in table(TINY)


@pytest.mark.parametrize("error", [RuntimeError("acks lost"), TimeoutError("acks lost")])
async def test_what_does_not_fit_is_left_out_and_a_failure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    async def well(machine: Machine) -> dict[str, float]:
        return {HEADLINE: 3_271.125}

    async def wrong(machine: Machine) -> dict[str, float]:
        raise error

    cases = [Case("long", 1e9, well), Case("wrong", 1, wrong), Case("good", 1, well)]
    run = Run("quick", cases, 100.0)
    await run.play(Machine(tmp_path))
    result = run.result(ABOUT_TINY)
    assert run.failed == ["wrong"]
    assert result[HEADLINE] == 3271
    assert str(result["left_out"]).startswith("long: needs 1000000000 s")
    assert "wrong: failed: acks lost" in str(result["left_out"])
    assert "acks lost" in capsys.readouterr().err
