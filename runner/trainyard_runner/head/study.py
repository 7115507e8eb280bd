"""The study of a sweep: Optuna's, asked and told. The only module that imports Optuna.

Every line of its journal is handed on as it is written, so that whoever follows the run has the
study too.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard_runner.wire import space
from trainyard_runner.wire.space import Params

# So often in a row a search may propose what was tried; then chance chooses, and has more tries.
_TRIES = 4
_DRAWS = 100
# Optuna's names of how a trial ended, and ours.
_OUTCOMES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


@dataclass(frozen=True)
class Result:
    """A configuration that was tried, in this run or in one that it goes on from; `values` are
    those of its repeats.
    """

    trial: int
    params: Params
    outcome: str
    value: float | None
    values: list[float | None]
    reason: str | None


def missing(search: str) -> str | None:
    """Return the package that this Python lacks for a search; else have Optuna ready."""
    for package in space.packages(search):
        try:
            importlib.import_module(package)
        except ImportError:
            return package
    return None


class Study:
    """Asks for configurations, each of them once, and tells what became of them."""

    def __init__(
        self, spec: Mapping[str, Any], journal: str, *, name: str, write: Callable[..., None]
    ) -> None:
        """Open a study: a new one, or the one in the text of a former journal. `write` writes an
        event.
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
        # The same seed once more would give the same configurations again.
        self._sampler = _sampler(
            optuna.samplers, spec["search"], spec["seed"] + len(self._trials())
        )
        self._known = {space.key_of(result.params): result.trial for result in self.results()}
        self._is_grid = spec["search"] == "grid"
        # Of a space that has an end, what is left of it.
        self._left = self._untried(spec["seed"]) if space.is_finite(self._space) else None
        self._random: Any = optuna.samplers.RandomSampler(seed=spec["seed"] + len(self._trials()))
        # Whether all of the space was tried.
        self.is_used_up = False

    def results(self) -> Iterator[Result]:
        """Yield the configurations that were tried to an end, in order: without interrupted ones,
        and repetitions.
        """
        interrupted = {trial.user_attrs.get("continues") for trial in self._trials()}
        for trial in self._trials(*(self._states[name] for name in _OUTCOMES)):
            told = trial.user_attrs
            if "values" in told and trial.number not in interrupted:
                outcome = _OUTCOMES[trial.state.name]
                params = space.tidy(trial.params)
                yield Result(
                    trial.number, params, outcome, trial.value, told["values"], told.get("reason")
                )

    def ask(self) -> tuple[int, Params, int | None] | None:
        """Return a configuration that was not tried, by its number, and the number it had when it
        was interrupted.

        None if there is none, or none can be found.
        """
        for tries in range(_TRIES + _DRAWS):
            if (trial := self._proposed(by_chance=tries >= _TRIES)) is None:
                return None
            params = space.suggest(trial, self._space)
            if self._known.setdefault(space.key_of(params), trial.number) == trial.number:
                self._open[trial.number] = trial
                return trial.number, params, trial.user_attrs.get("continues")
            self._study.tell(trial, state=self._states.FAIL)
        return None

    def _proposed(self, *, by_chance: bool) -> Any:
        """Return what the search proposes, or by chance what is left; None if nothing is.

        What was interrupted comes first.
        """
        if by_chance:
            self._study.sampler = self._random
        else:
            self._study.sampler = self._sampler
        left = self._left if self._is_grid or by_chance else None
        if left is not None and not self._trials(self._states.WAITING):
            if (params := next(left, None)) is None:
                self.is_used_up = True
                return None
            self._study.enqueue_trial(params)
        return self._study.ask()

    def _untried(self, seed: int) -> Iterator[Params]:
        """Yield what of a space was not tried when its turn comes: a grid in its order, else
        mixed.
        """
        if self._is_grid:
            mixed = self._space
        else:
            mixed = space.shuffled(self._space, seed)
        return (params for params in space.grid(mixed) if space.key_of(params) not in self._known)

    def should_prune(self, number: int, step: int, value: float) -> bool:
        """Report a value of a configuration that goes on; return whether it should be given up."""
        trial = self._open[number]
        trial.report(value, step)
        return bool(trial.should_prune())

    def tell(self, result: Result) -> None:
        """Tell how a configuration ended."""
        trial = self._open.pop(result.trial)
        trial.set_user_attr("values", result.values)
        if result.reason:
            trial.set_user_attr("reason", result.reason)
        state = next(name for name, outcome in _OUTCOMES.items() if outcome == result.outcome)
        self._study.tell(
            trial, result.value if state == "COMPLETE" else None, state=self._states[state]
        )

    def _trials(self, *states: Any) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False, states=states or None))

    def _enqueue_interrupted(self) -> None:
        """Put what ran when the former run ended in front of the queue, under new numbers."""
        for trial in self._trials(self._states.RUNNING):
            self._study.enqueue_trial(trial.params, user_attrs={"continues": trial.number})
            self._study.tell(trial.number, state=self._states.FAIL)


class _Journal:
    """Optuna's journal in memory: its file is where the events of the run are."""

    def __init__(self, text: str, write: Callable[..., None]) -> None:
        self._lines = text.splitlines()
        self._size = len(text.encode())
        self._write = write

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return map(json.loads, self._lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = [json.dumps(log, separators=(",", ":")) for log in logs]
        text = "".join(f"{line}\n" for line in lines)
        self._write("study", at=self._size, text=text)
        self._lines += lines
        self._size += len(text.encode())


def _sampler(samplers: Any, search: str, seed: int) -> Any:
    if search == "tpe":
        # What runs beside counts as bad until it has ended: the next one is elsewhere.
        return samplers.TPESampler(seed=seed, constant_liar=True)
    if search == "cmaes":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return samplers.RandomSampler(seed=seed)


def _pruner(pruners: Any, prune: Mapping[str, Any] | None) -> Any:
    if prune is None:
        return pruners.NopPruner()
    if prune["by"] == "hyperband":
        return pruners.HyperbandPruner(min_resource=max(1, prune["warmup"]))
    if prune["by"] == "percentile":
        percentile = prune["percentile"]
    else:
        percentile = 50.0
    return pruners.PercentilePruner(
        percentile, n_startup_trials=prune["after"], n_warmup_steps=prune["warmup"]
    )
