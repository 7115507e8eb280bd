"""Several runs side by side: final values, what differs, one page for the curves of all."""

from __future__ import annotations

from pathlib import Path

from tests.recorded_run import RecordedRun, ended, started
from tests.unit.test_report import Page
from trainyard.results.compare import Comparison, compare
from trainyard.results.store import RunDirectory


def recorded(home: Path, name: str, *, returns: list[float], lr: str = "0.1") -> RunDirectory:
    """Record a run of one task per seed, each with a curve that ends at its return."""
    run = RecordedRun(home, *(f"seed={seed}" for seed in range(len(returns))), run=name)
    job = run.path / "job.yaml"
    job.write_text(f'{job.read_text()}env: {{LR: "{lr}"}}\n')
    started(run)
    for seed, value in enumerate(returns):
        run.attempt(f"seed={seed}", "cpu-0", 1.0, 5.0)
        run.lines(f"seed={seed}", score=[0.0, 0.0, value])
        run.event(6.5, "task-ended", task=f"seed={seed}", state="succeeded", attempts=1)
    ended(run, 9.0)
    return RunDirectory(run.write())


def two(home: Path) -> Comparison:
    first = recorded(home, "cartpole-1", returns=[1.0, 2.0, 3.0])
    return compare([first, recorded(home, "cartpole-2", returns=[5.0], lr="0.01")], home)


def test_the_page_draws_a_mean_for_each_run_from_the_curves_of_its_tasks(tmp_path: Path) -> None:
    comparison = two(tmp_path)
    assert comparison.page == tmp_path / "compare-cartpole-1-cartpole-2.html"
    page = Page(comparison.page)
    assert (page.drawing["keys"], page.drawing["averaged"]) == (["run", "seed"], ["seed"])
    assert [series["values"] for series in page.drawing["series"]] == [
        ["cartpole-1", "0"],
        ["cartpole-1", "1"],
        ["cartpole-1", "2"],
        ["cartpole-2", "0"],
    ]
    assert "cartpole-1 succeeded 3 of 3 9.0 s 2 ± 1 (3)" in page.words
    assert "env.LR 0.1 0.01" in page.words


def test_a_scalar_can_be_chosen(tmp_path: Path) -> None:
    alone = recorded(tmp_path, "cartpole-1", returns=[1.0])
    comparison = compare([alone, alone], tmp_path, tags=["train/loss"])
    assert comparison.tags == ("train/loss",)
    assert [run.finals for run in comparison.runs] == [{}, {}]


def test_final_values_have_mean_and_deviation_and_differences_are_named(tmp_path: Path) -> None:
    document = two(tmp_path).document()
    assert document["differences"] == {
        "matrix.seed": {"cartpole-1": "0, 1, 2", "cartpole-2": "0"},
        "env.LR": {"cartpole-1": "0.1", "cartpole-2": "0.01"},
    }
    assert document["runs"][1]["final"] == {"score": {"mean": 5.0, "spread": None, "count": 1}}

    assert document["runs"][0] == {
        "run": "cartpole-1",
        "state": "succeeded",
        "job": "cartpole",
        "cluster": "local",
        "resumes": None,
        "seconds": 9.0,
        "counts": {"succeeded": 3},
        "final": {"score": {"mean": 2.0, "spread": 1.0, "count": 3}},
    }
