"""The events of a sweep, folded."""

from __future__ import annotations

from typing import Any

from trainyard_runner.wire.events import Metric, TrialEnded

from tests.run_events import an_event
from trainyard.results import trials
from trainyard.results.curves import JobFile, collect
from trainyard.results.scalars import Curve
from trainyard.results.state import RunState
from trainyard.results.sweep import Sweep


def folded(*events: tuple[str, dict[str, Any]], mode: str = "max") -> Sweep:
    state = RunState(
        run="sweep-1", cluster="lab", job="cartpole", tune={"metric": "reward", "mode": mode}
    )
    for at, (name, fields) in enumerate(events):
        state.apply(an_event(name, time=100.0 + at, **fields))
    assert state.sweep
    return state.sweep


def begun(trial: int, *tasks: str, **params: Any) -> tuple[str, dict[str, Any]]:
    return "trial-started", {"trial": trial, "params": params, "tasks": list(tasks)}


def done(
    trial: int, outcome: str, *values: float | None, value: float | None = None
) -> tuple[str, dict[str, Any]]:
    fields = {
        "trial": trial,
        "outcome": outcome,
        "value": value,
        "values": list(values),
        "reason": None,
    }
    return "trial-ended", fields


def test_trials_are_folded_into_what_status_prints() -> None:
    sweep = folded(
        begun(0, "trial-0000-0", "trial-0000-1", lr=0.1),
        begun(1, "trial-0001-0", "trial-0001-1", lr=0.2),
        done(0, "complete", 1.0, 3.0, value=2.0),
        done(1, "pruned", 5.0, None, value=5.0),
        begun(2, "trial-0002-0", lr=0.3),
    )

    first = {"params": {"lr": 0.1}, "state": "complete", "value": 2.0, "values": (1.0, 3.0)}
    document = sweep.document()
    assert document["trials"][0] == {
        "trial": 0,
        **first,
        "tasks": ("trial-0000-0", "trial-0000-1"),
        "reason": None,
        "seconds": 2.0,
    }

    assert document["counts"] == {
        "complete": 1,
        "pruned": 1,
        "failed": 0,
        "running": 1,
        "stopped": 0,
    }

    # A trial that was pruned is not the best one, whatever its value was.
    assert document["best"] == {"trial": 0, "value": 2.0, "params": {"lr": 0.1}}


def test_the_best_is_by_mode_and_of_equal_ones_the_first() -> None:
    values = {0: 3.0, 1: 1.0, 2: 3.0, 3: 1.0}
    events = [
        *(begun(n) for n in values),
        *(done(n, "complete", v, value=v) for n, v in values.items()),
    ]
    assert [trial.number for trial in folded(*events).ranked()] == [0, 2, 1, 3]
    assert [trial.number for trial in folded(*events, mode="min").ranked()] == [1, 3, 0, 2]


def test_trials_that_run_at_the_end_were_stopped_and_nan_is_no_value() -> None:
    end = {"reason": "time", "samples": 1, "best": None}
    ended = {"state": "stopped", "exit": 1, "seconds": 5.0, "sweep": end}
    sweep = folded(
        begun(0),
        begun(1, "trial-0001-0"),
        done(0, "complete", float("nan"), value=float("nan")),
        ("run-ended", ended),
    )
    assert (sweep.trials[0].value, sweep.trials[0].values) == (None, (None,))
    assert (sweep.trials[1].state, sweep.trials[1].seconds) == ("stopped", 2.0)
    assert (sweep.ranked(), sweep.end) == ([], end)


def test_curves_of_a_trial_with_a_repeat_of_a_former_run_keep_their_number() -> None:
    sweep = folded(begun(3, "trial-0003-1", lr=0.1))
    job = trials.job_file(JobFile({}, (), {}), sweep)
    assert job.parameters == {"trial-0003-1": {"trial": "3", "repeat": "1"}}


def test_metric_values_that_cannot_be_drawn_are_no_points_of_its_curve() -> None:
    values = [
        [0, 1.5, 100.0],
        [1, float("nan"), 101.0],
        [2, float("inf"), 102.0],
        [4, 2, 104],
    ]
    metrics: dict[str, Curve] = {}
    collect(Metric("a", 1, values), metrics)
    assert metrics["a"].points() == [(0.0, 1.5, 100.0), (4.0, 2.0, 104.0)]


def test_a_value_that_no_float_can_be_is_none() -> None:
    state = Sweep({"metric": "reward", "mode": "max"})
    values = [1.7e308, -1.7e308, float("nan")]
    state.apply(TrialEnded(0, "complete", value=10**400, values=values))
    trial = state.trials[0]
    assert (trial.value, trial.values, trial.spread) == (None, (1.7e308, -1.7e308, None), None)
