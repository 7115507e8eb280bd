"""A sweep without Ray, on Optuna's own study: its configurations, their ends and their results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from math import isfinite
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from trainyard_runner.head.records import AttemptRecord
from trainyard_runner.head.study import Study
from trainyard_runner.head.sweep import Sweep
from trainyard_runner.wire.events import Event, StudyGrown, TrialEnded
from trainyard_runner.wire.nodes import Node
from trainyard_runner.wire.outcome import State
from trainyard_runner.wire.space import key_of

from trainyard.spec.expand import sweep as sweep_of
from trainyard.spec.job import JobSpec

NODES = [Node("a", "a", None, "a", {"CPU": 4})]
SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-5, 1e-1]},
    "optimizer": {"choice": ["adam", "sgd"]},
    "momentum": {"uniform": [0, 1], "step": 0.1, "when": {"optimizer": ["sgd"]}},
}
COMMAND = ["train", "{lr}", "{optimizer}", "--momentum={momentum}", "{repeat}"]


@dataclass
class Yard:
    """A sweep on a cluster with room for four tasks, and what it wrote."""

    tune: dict[str, Any]
    command: list[str] = field(default_factory=lambda: COMMAND)
    before: str = ""
    now: float = 0.0
    ended: list[TrialEnded] = field(default_factory=list)
    commands: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tune = {"space": SPACE, "metric": "reward", "samples": 10, **self.tune}
        spec = sweep_of(
            JobSpec.model_validate({"name": "job", "command": self.command, "tune": tune})
        )
        assert spec
        self.journal = self.before
        self.study = Study(spec, self.before, name="job", write=self._write)
        self.sweep = Sweep(spec, self.study, self._write, clock=lambda: self.now)

    def start(self) -> list[str]:
        tasks = [unit.tasks[0] for unit in self.sweep.next_units(NODES)]
        self.commands |= {task.name: task.command for task in tasks}
        return [task.name for task in tasks]

    def train(
        self, value: Callable[[tuple[str, ...], int], float], *, rounds: int = 1000, steps: int = 5
    ) -> None:
        """Run every task to its end, all repeats of a trial in step, until the sweep is over."""
        for _ in range(rounds):
            if self.sweep.is_over:
                return
            names = self.start()
            for step in range(steps):
                for name in names:
                    reward = value(self.commands[name], step)
                    self.sweep.metric(AttemptRecord(name, 1), [[step, reward, 0.0]])
            self.end(*names)

    def write(self, name: str, *points: tuple[float, float]) -> None:
        record = AttemptRecord(name, 1)
        self.sweep.metric(record, [[step, value, 0.0] for step, value in points])

    def end(self, *names: str, state: State = "succeeded", reason: str | None = None) -> None:
        for name in names:
            self.sweep.ended(name, "stopped" if name in self.sweep.to_stop else state, reason)

    def outcomes(self) -> Counter[str]:
        return Counter(ended.outcome for ended in self.ended)

    def _write(self, event: Event) -> None:
        if isinstance(event, TrialEnded):
            self.ended.append(event)
        if isinstance(event, StudyGrown):
            assert event.at == len(self.journal.encode())
            self.journal += event.text


def closeness(command: tuple[str, ...], step: int) -> float:
    return -abs(float(command[1]) - 1e-3)


def test_a_configuration_fills_a_command_without_words_that_lack_values() -> None:
    yard = Yard({"repeats": 2})
    yard.train(closeness)
    assert {name.rpartition("-")[2] for name in yard.commands} == {"0", "1"}
    for command in yard.commands.values():
        assert any(word.startswith("--momentum=") for word in command) == (command[2] == "sgd")
    momenta = [
        command[3].partition("=")[2] for command in yard.commands.values() if command[2] == "sgd"
    ]
    assert momenta and all(len(momentum) == 3 for momentum in momenta)


@pytest.mark.parametrize("search", ["tpe", "random", "cmaes"])
def test_each_configuration_is_tried_once_its_repeats_averaged(search: str) -> None:
    space = {"lr": SPACE["lr"], "width": {"randint": [1, 3]}}
    yard = Yard(
        {"space": space, "search": search, "repeats": 3, "samples": 8},
        ["x", "{lr}", "{width}", "{repeat}"],
    )
    yard.train(lambda command, step: float(command[3]))
    assert yard.outcomes() == {"complete": 8}
    assert all((ended.value, ended.values) == (1.0, [0.0, 1.0, 2.0]) for ended in yard.ended)
    assert yard.sweep.result()["reason"] == "all samples were tried"


def test_a_grid_is_tried_whole_without_what_makes_no_difference() -> None:
    space = {
        "optimizer": SPACE["optimizer"],
        "momentum": {"uniform": [0, 0.2], "step": 0.1, "when": {"optimizer": ["sgd"]}},
    }
    command = ["x", "{optimizer}", "{momentum}"]
    yard = Yard({"space": space, "search": "grid", "samples": None}, command)
    yard.train(lambda command, step: 1.0)
    assert sorted(yard.commands.values()) == [
        ("x", "adam"),
        *(("x", "sgd", m) for m in ("0.0", "0.1", "0.2")),
    ]
    assert yard.sweep.result()["reason"] == "every configuration of the space was tried"


def test_a_space_that_is_used_up_ends_a_sweep() -> None:
    yard = Yard({"space": {"a": {"choice": [1, True]}}, "search": "random"}, ["x", "{a}"])
    yard.train(lambda command, step: 1.0)
    assert yard.outcomes() == {"complete": 2}


def test_a_search_with_repeated_proposals_draws_untried_configurations() -> None:
    space = {"a": {"randint": [0, 1]}, "b": {"uniform": [0, 1.5], "step": 0.1}}
    yard = Yard({"space": space, "samples": 28}, ["x", "{a}", "{b}"])
    yard.train(lambda command, step: float(command[1]), steps=1)
    assert (yard.outcomes(), yard.sweep.result()["reason"]) == (
        {"complete": 28},
        "all samples were tried",
    )
    whole = Yard({"space": space, "samples": 100}, ["x", "{a}", "{b}"], before=yard.journal)
    whole.train(lambda command, step: float(command[1]), steps=1)
    reason = "every configuration of the space was tried"
    assert (whole.outcomes(), whole.sweep.result()["reason"]) == ({"complete": 32}, reason)


class AlwaysTheSame(optuna.samplers.RandomSampler):  # type: ignore[misc, unused-ignore]
    """A search that has made up its mind."""

    def sample_independent(self, *_: Any) -> Any:
        return 5


def test_a_space_too_large_to_be_listed_is_drawn_from_by_chance() -> None:
    yard = Yard({"space": {"a": {"randint": [0, 10**6]}}, "samples": 9}, ["x", "{a}"])
    yard.study._sampler = AlwaysTheSame()
    yard.train(lambda command, step: 1.0, steps=1)
    assert yard.outcomes() == {"complete": 9}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("search", "prune"), [("tpe", "median"), ("cmaes", "hyperband"), ("random", "percentile")]
)
def test_the_largest_numbers_end_no_sweep(search: str, prune: str) -> None:
    most = 1.7976931348623157e308
    ranges = {"a": {"uniform": [-1e300, 1e300]}, "b": {"randint": [-(2**53), 2**53]}}
    space = {
        **ranges,
        "c": {"loguniform": [1e-300, 1e300]},
        "d": {"uniform": [0, 1e300], "step": 1e299},
    }
    tune = {"space": space, "search": search, "samples": 30, "repeats": 2, "prune": {"by": prune}}
    yard = Yard(tune, ["x", *(f"{{{name}}}" for name in space)])
    values = cycle([most, most, -most, most, 1.0])
    yard.train(lambda *_: next(values))
    assert sum(yard.outcomes().values()) == 30
    assert all(isfinite(ended.value) for ended in yard.ended)


def test_a_killed_sweep_continues_and_counts_each_configuration_once(tmp_path: Any) -> None:
    killed = Yard({"repeats": 2})
    killed.train(closeness, rounds=3)
    ran = killed.start()
    again = Yard({"repeats": 2}, before=killed.journal)
    assert [ended.outcome for ended in again.ended] == ["complete"] * killed.outcomes()["complete"]
    # The configurations that ran then are tried first, under new numbers.
    first = again.start()
    assert [again.commands[name] for name in first] == [killed.commands[name] for name in ran]
    assert not set(first) & set(ran)
    again.end(*first, state="failed", reason="exit code 1")
    again.train(closeness)
    assert sum(again.outcomes().values()) == 10
    file = tmp_path / "study.journal"
    file.write_text(again.journal)
    study = optuna.load_study(
        study_name=None, storage=JournalStorage(JournalFileBackend(str(file)))
    )
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert (
        len({key_of(trial.params) for trial in complete})
        == len(complete)
        == again.outcomes()["complete"]
    )

    best = again.sweep.result()["best"]
    assert (study.best_trial.number, study.best_value) == (best["trial"], best["value"])


def test_a_failed_task_ends_its_configuration_which_counts_as_failed() -> None:
    yard = Yard({"repeats": 2, "concurrency": 1, "stop": {"failures": 2}})
    for _ in range(2):
        first, second = yard.start()
        yard.end(first, state="failed", reason="exit code 1")
        assert list(yard.sweep.to_stop) == [second]
        yard.end(second)
    assert yard.ended[0].reason == "trial-0000-0: exit code 1"
    assert yard.sweep.is_over
    assert yard.sweep.problem() == "2 of 2 configurations failed"


def test_a_sweep_whose_first_configurations_all_failed_ends() -> None:
    yard = Yard({"concurrency": 1, "samples": None, "time": "1h", "search": "random"})
    for _ in range(20):
        assert not yard.sweep.is_over
        yard.end(*yard.start(), state="failed", reason="exit code 1")
    assert yard.sweep.is_over
    assert yard.sweep.problem() == "20 of 20 configurations failed"


def test_a_task_without_a_value_has_failed() -> None:
    yard = Yard({"concurrency": 1})
    yard.end(*yard.start())
    assert yard.ended[0].reason == "trial-0000-0: the task wrote no value of reward"


def test_a_configuration_worse_than_others_at_a_step_is_pruned() -> None:
    yard = Yard({"repeats": 2, "samples": 20, "concurrency": 1, "prune": {"after": 3, "warmup": 2}})
    yard.train(closeness)
    pruned = [ended for ended in yard.ended if ended.outcome == "pruned"]
    assert pruned and yard.outcomes()["complete"] >= 3
    assert all(
        re.fullmatch(r"worse than others at value \d+ \(median\)", str(ended.reason))
        for ended in pruned
    )
    assert yard.sweep.problem() is None


def test_a_second_attempt_writes_the_values_of_its_steps_again() -> None:
    yard = Yard({"repeats": 2, "objective": "best"})
    first, second = yard.start()[:2]
    for name, attempt, values in (
        (first, 1, [5.0]),
        (first, 2, [1.0, 2.0]),
        (second, 1, [4.0, 3.0]),
    ):
        points = [[step, value, 0.0] for step, value in enumerate(values)]
        yard.sweep.metric(AttemptRecord(name, attempt), points)
    yard.end(first, second)
    assert (yard.ended[0].value, yard.ended[0].values) == (3.0, [2.0, 4.0])


def test_a_plateau_lets_run_what_runs_and_time_ends_it() -> None:
    flat = Yard({"samples": 100, "stop": {"plateau": 5}})
    flat.train(lambda command, step: 1.0)
    assert flat.outcomes() == {"complete": 8}  # four at a time
    assert flat.sweep.result()["reason"] == "5 configurations in a row were no better"
    timed = Yard({"samples": None, "time": 60.0})
    timed.train(closeness, rounds=1)
    names = timed.start()
    timed.now = 61.0
    assert timed.start() == [] and list(timed.sweep.to_stop) == names
    timed.end(*names)
    assert timed.outcomes() == {"complete": 4, "stopped": 4}
    assert (timed.sweep.is_over, timed.sweep.problem()) == (True, None)


def test_a_run_that_is_stopped_leaves_its_configurations_to_the_next() -> None:
    yard = Yard({})
    yard.end(*yard.start(), state="stopped")
    assert yard.outcomes() == {"stopped": 4}
    assert not yard.sweep.is_over
    assert yard.sweep.result()["reason"] == "the run was stopped"
    assert len(Yard({}, before=yard.journal).start()) == 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_repeat_that_had_finished_keeps_its_value_and_does_not_run_again(is_killed: bool) -> None:
    tune = {"repeats": 2, "concurrency": 1, "samples": 1}
    yard = Yard(tune)
    first, second = yard.start()
    yard.write(first, (0, 50.0), (1, 102.0))
    yard.end(first)
    if not is_killed:
        yard.end(second, state="stopped")

    again = Yard(tune, before=yard.journal)
    assert again.start() == ["trial-0001-1"]
    again.end("trial-0001-1", state="stopped")

    # The value also outlives a second stop.
    last = Yard(tune, before=again.journal)
    assert last.start() == ["trial-0002-1"]
    last.write("trial-0002-1", (1, 100.0))
    last.end("trial-0002-1")
    (ended,) = last.ended
    assert (ended.outcome, ended.value, ended.values) == ("complete", 101.0, [102.0, 100.0])


def test_a_trial_whose_repeats_all_had_finished_is_complete_at_once() -> None:
    yard = Yard({"time": 60.0, "samples": 1})
    (task,) = yard.start()
    yard.now = 61.0
    yard.start()
    yard.write(task, (0, 7.0))
    yard.sweep.ended(task, "succeeded", None)
    assert yard.outcomes() == {"stopped": 1}

    again = Yard({"time": 60.0, "samples": 1}, before=yard.journal)
    assert again.start() == []
    assert [(ended.outcome, ended.value) for ended in again.ended] == [("complete", 7.0)]
    assert again.sweep.is_over


@pytest.mark.parametrize(
    ("objective", "points", "value"),
    [
        # The training had written all its values, but had not exited yet.
        ("last", [], 3.0),
        ("best", [], 9.0),
        ("last", [(3, 4.0)], 4.0),
        ("best", [(3, 4.0)], 9.0),
        # It begins again from an older checkpoint.
        ("last", [(2, 6.0), (1, 5.0)], 5.0),
        ("best", [(1, 5.0), (2, 6.0)], 6.0),
    ],
)
def test_a_stopped_task_continues_with_the_value_that_it_had(
    objective: str, points: list[tuple[float, float]], value: float
) -> None:
    tune = {"objective": objective, "concurrency": 1}
    yard = Yard(tune)
    (task,) = yard.start()
    yard.write(task, (0, 1.0), (1, 9.0), (2, 3.0))
    yard.end(task, state="stopped")

    again = Yard(tune, before=yard.journal)
    (task,) = again.start()
    again.write(task, *points)
    again.end(task)
    assert [(ended.outcome, ended.value) for ended in again.ended] == [("complete", value)]


def test_a_trial_with_a_finished_repeat_is_not_pruned_by_the_others_alone() -> None:
    tune = {"repeats": 2, "concurrency": 1, "prune": {"after": 1, "warmup": 0}}
    yard = Yard(tune)
    for value in (5.0, 6.0):
        for task in yard.start():
            yard.write(task, (0, value))
            yard.end(task)
    first, second = yard.start()
    yard.write(first, (0, 9.0))
    yard.end(first)
    yard.end(second, state="stopped")

    again = Yard(tune, before=yard.journal)
    (task,) = again.start()
    again.write(task, (0, -100.0))
    assert not again.sweep.to_stop
