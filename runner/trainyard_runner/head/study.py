"""The study of a sweep: Optuna's record of all trials.

Only this module imports Optuna. Each line of Optuna's journal is also written
as an event. So the run's directory on the operator's machine has the study,
too.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard_runner.wire import space
from trainyard_runner.wire.events import Event, StudyGrown, TrialOutcome
from trainyard_runner.wire.space import Params

# If the search proposes this many known configurations in a row, random ones are drawn instead.
_TRIES = 4
# If this many random configurations are known, too, the search gives up.
_DRAWS = 100
# How a trial ended: Optuna's name, and the name in events.
_OUTCOMES: dict[str, TrialOutcome] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


@dataclass(frozen=True)
class Result:
    """A configuration that this run or a former one tried.

    `values`: the objective of each repeat, None for a repeat without a value.
    `value`: the mean of the values, if the configuration is complete or pruned.
    """

    trial: int
    params: Params
    outcome: TrialOutcome
    value: float | None
    values: list[float | None]
    reason: str | None


@dataclass(frozen=True)
class Reached:
    """The state of a trial's repeat, for a run that continues the trial.

    `step` and `value` are the point of its curve that is its objective.
    """

    step: float
    value: float
    is_finished: bool


@dataclass(frozen=True)
class Configuration:
    """An untried configuration.

    `continues`: a trial that was running when a former run ended, and that this
    one continues. `reached`: the state of its repeats there.
    """

    trial: int
    params: Params
    continues: int | None = None
    reached: Mapping[int, Reached] = field(default_factory=dict)


def missing(search: str) -> str | None:
    """Import a search's packages; return the first that is missing, or None."""
    for package in space.packages(search):
        try:
            importlib.import_module(package)
        except ImportError:
            return package
    return None


class Study:
    """Gets configurations from Optuna, each once, and reports their results."""

    def __init__(
        self, spec: Mapping[str, Any], journal: str, *, name: str, write: Callable[[Event], None]
    ) -> None:
        """Continue the study in a former run's `journal`; "" opens a new study.

        `write` writes an event. Trials that the former run left running are
        tried first.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._states: Any = optuna.trial.TrialState
        self._space = spec["space"]
        self._open: dict[int, Any] = {}
        storage: Any = optuna.storages.JournalStorage(_Journal(journal, write))  # type: ignore[arg-type, unused-ignore]
        pruner = _pruner(optuna.pruners, spec["prune"])

        if journal:
            self._study: Any = optuna.load_study(study_name=None, storage=storage, pruner=pruner)
        else:
            direction = "maximize" if spec["mode"] == "max" else "minimize"
            self._study = optuna.create_study(
                study_name=name, storage=storage, direction=direction, pruner=pruner
            )

        self._enqueue_interrupted()
        # A continued study adds its number of trials to the seed: the same seed would propose the
        # same configurations again.
        self._sampler = _sampler(
            optuna.samplers, spec["search"], spec["seed"] + len(self._trials())
        )
        self._known = {space.key_of(result.params): result.trial for result in self.results()}
        self._is_grid = spec["search"] == "grid"
        # The untried configurations of a finite space; None for an infinite one.
        self._left: Iterator[Params] | None = None
        if space.is_finite(self._space):
            self._left = self._untried(spec["seed"])
        self._random: Any = optuna.samplers.RandomSampler(seed=spec["seed"] + len(self._trials()))
        # Whether all of the space was tried.
        self.is_used_up = False

    def results(self) -> Iterator[Result]:
        """Yield the results of ended configurations, ordered by number.

        A trial that was interrupted and continued under another number is left
        out.
        """
        interrupted = {trial.user_attrs.get("continues") for trial in self._trials()}
        for trial in self._trials(*(self._states[name] for name in _OUTCOMES)):
            attributes = trial.user_attrs
            if "values" in attributes and trial.number not in interrupted:
                outcome = _OUTCOMES[trial.state.name]
                params = space.tidy(trial.params)
                yield Result(
                    trial.number,
                    params,
                    outcome,
                    trial.value,
                    attributes["values"],
                    attributes.get("reason"),
                )

    def ask(self) -> Configuration | None:
        """Return an untried configuration.

        Returns None if the space is used up (`is_used_up`), or if only known
        configurations were proposed.
        """
        for tries in range(_TRIES + _DRAWS):
            trial = self._proposed(by_chance=tries >= _TRIES)
            if trial is None:
                return None
            params = space.suggest(trial, self._space)
            if self._known.setdefault(space.key_of(params), trial.number) == trial.number:
                self._open[trial.number] = trial
                attributes = trial.user_attrs
                reached = _reached(attributes.get("reached", {}))
                return Configuration(trial.number, params, attributes.get("continues"), reached)
            self._study.tell(trial, state=self._states.FAIL)
        return None

    def _proposed(self, *, by_chance: bool) -> Any:
        """Return the search's next trial or a random one; None if none is left.

        Interrupted trials come first. The configuration may be known already.
        """
        if by_chance:
            self._study.sampler = self._random
        else:
            self._study.sampler = self._sampler

        left = self._left if self._is_grid or by_chance else None
        if left is not None and not self._trials(self._states.WAITING):
            params = next(left, None)
            if params is None:
                self.is_used_up = True
                return None
            self._study.enqueue_trial(params)

        return self._study.ask()

    def _untried(self, seed: int) -> Iterator[Params]:
        """Yield the configurations of a finite space, without known ones.

        A configuration is skipped if it is known when its turn comes. A grid
        search gets the configurations in the grid's order, other searches in
        random order.
        """
        if self._is_grid:
            ordered = self._space
        else:
            ordered = space.shuffled(self._space, seed)
        for params in space.grid(ordered):
            if space.key_of(params) not in self._known:
                yield params

    def should_prune(self, number: int, step: int, value: float) -> bool:
        """Report a trial's value to Optuna; return whether Optuna would prune.

        `step`: the value's index, from 0.
        """
        trial = self._open[number]
        trial.report(value, step)
        return bool(trial.should_prune())

    def keep(self, number: int, reached: Mapping[int, Reached]) -> None:
        """Record the state of a trial's repeats, by repeat."""
        points = {}
        for repeat, point in reached.items():
            points[str(repeat)] = [point.step, point.value, point.is_finished]
        self._open[number].set_user_attr("reached", points)

    def tell(self, result: Result) -> None:
        """Report a trial's end to Optuna, and a complete trial's value."""
        trial = self._open.pop(result.trial)
        trial.set_user_attr("values", result.values)
        if result.reason:
            trial.set_user_attr("reason", result.reason)

        state = next(name for name, outcome in _OUTCOMES.items() if outcome == result.outcome)
        value = result.value if state == "COMPLETE" else None
        self._study.tell(trial, value, state=self._states[state])

    def _trials(self, *states: Any) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False, states=states or None))

    def _enqueue_interrupted(self) -> None:
        """Queue, before all others, trials that a former run left running.

        Optuna gives them new numbers; the attribute `continues` has the old
        number, and `reached` the state of its repeats.
        """
        for trial in self._trials(self._states.RUNNING):
            attributes = {
                "continues": trial.number,
                "reached": trial.user_attrs.get("reached", {}),
            }
            self._study.enqueue_trial(trial.params, user_attrs=attributes)
            self._study.tell(trial.number, state=self._states.FAIL)


class _Journal:
    """Optuna's journal, in memory and as events instead of in a file."""

    def __init__(self, text: str, write: Callable[[Event], None]) -> None:
        self._lines = text.splitlines()
        self._size = len(text.encode())
        self._write = write

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return map(json.loads, self._lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = [json.dumps(log, separators=(",", ":")) for log in logs]
        text = "".join(f"{line}\n" for line in lines)
        self._write(StudyGrown(self._size, text))
        self._lines += lines
        self._size += len(text.encode())


def _reached(points: Mapping[str, Any]) -> dict[int, Reached]:
    return {int(repeat): Reached(*point) for repeat, point in points.items()}


def _sampler(samplers: Any, search: str, seed: int) -> Any:
    if search == "tpe":
        # Constant liar: running trials count as bad, so that the next trial differs from them.
        return samplers.TPESampler(seed=seed, constant_liar=True)
    if search == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


def _pruner(pruners: Any, prune: Mapping[str, Any] | None) -> Any:
    if prune is None:
        return pruners.NopPruner()
    if prune["by"] == "hyperband":
        return pruners.HyperbandPruner(min_resource=max(1, prune["warmup"]))

    percentile = prune["percentile"] if prune["by"] == "percentile" else 50.0
    return pruners.PercentilePruner(
        percentile, n_startup_trials=prune["after"], n_warmup_steps=prune["warmup"]
    )
