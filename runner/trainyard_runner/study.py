"""The study of a sweep: Optuna's, asked and told. The only module that imports Optuna.

Every line of its journal is handed on as it is written, so that whoever follows the run has the study too.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard_runner import space
from trainyard_runner.space import Params

_TRIES = 100


@dataclass(frozen=True)
class Ended:
    """A configuration that was tried, in this run or in one that it goes on from."""

    number: int
    params: Params
    outcome: str
    value: float | None
    values: list[float | None]
    reason: str | None


def missing(search: str) -> str | None:
    """Return the package that this Python lacks for a search; else have Optuna ready."""
    for package in ("optuna", *(["cmaes"] if search == "cmaes" else [])):
        try:
            importlib.import_module(package)
        except ImportError:
            return package
    return None


class Study:
    """Asks for configurations, each of them once, and tells what became of them."""

    def __init__(self, sweep: Mapping[str, Any], journal: str, *, name: str, write: Callable[[int, str], None]) -> None:
        """Open a study: a new one, or the one in the text of a former journal.

        `write` gets what is appended to the journal, and at which byte of it.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna: Any = optuna
        self._states: Any = optuna.trial.TrialState
        self._space = sweep["space"]
        self._open: dict[int, Any] = {}
        storage = optuna.storages.JournalStorage(_Journal(journal, write))  # type: ignore[arg-type, unused-ignore]
        pruner = _pruner(optuna.pruners, sweep["prune"])
        if journal:
            self._study: Any = optuna.load_study(study_name=None, storage=storage, pruner=pruner)
        else:
            direction = "maximize" if sweep["mode"] == "max" else "minimize"
            self._study = optuna.create_study(study_name=name, storage=storage, direction=direction, pruner=pruner)
        self._interrupted = self._try_again()
        before = self._study.get_trials(deepcopy=False)
        # The same seed once more would give the same configurations again.
        self._study.sampler = _sampler(optuna.samplers, sweep["search"], sweep["seed"] + len(before))
        self._grid = space.grid(self._space) if sweep["search"] == "grid" else None
        self._known = {space.key_of(ended.params): ended.number for ended in self.ended()}

    def ended(self) -> Iterator[Ended]:
        """Yield the configurations that were tried to an end, in order."""
        outcomes = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
        for trial in self._study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            if trial.state.is_finished() and trial.number not in self._interrupted and "same_as" not in attributes:
                yield Ended(
                    trial.number,
                    space.tidy(trial.params),
                    outcomes[trial.state.name],
                    trial.value,
                    attributes.get("values", []),
                    attributes.get("reason"),
                )

    def ask(self) -> tuple[int, Params, int | None] | None:
        """Return a configuration that was not tried, by its number, and the number it had when it was interrupted.

        None if there seems to be none.
        """
        for _ in range(_TRIES):
            if self._grid is not None and not self._waiting():
                fresh = (params for params in self._grid if space.key_of(params) not in self._known)
                if (params := next(fresh, None)) is None:
                    return None
                self._study.enqueue_trial(params)
            trial = self._study.ask()
            params = space.suggest(trial, self._space)
            same = self._known.setdefault(space.key_of(params), trial.number)
            if same == trial.number:
                self._open[trial.number] = trial
                return trial.number, params, trial.user_attrs.get("continues")
            trial.set_user_attr("same_as", same)
            self._study.tell(trial, state=self._states.FAIL)
        return None

    def is_worse(self, number: int, step: int, value: float) -> bool:
        """Report a value of a configuration that goes on; return whether it should be given up."""
        trial = self._open[number]
        trial.report(value, step)
        return bool(trial.should_prune())

    def tell(self, ended: Ended) -> None:
        """Tell how a configuration ended."""
        trial = self._open.pop(ended.number)
        trial.set_user_attr("values", ended.values)
        if ended.reason:
            trial.set_user_attr("reason", ended.reason)
        if ended.outcome == "complete":
            self._study.tell(trial, ended.value)
        else:
            self._study.tell(trial, state=self._states.PRUNED if ended.outcome == "pruned" else self._states.FAIL)

    def _try_again(self) -> set[int]:
        """Put what ran when the former run ended in front of the queue; return the numbers that it had."""
        trials = self._study.get_trials(deepcopy=False)
        again = {trial.user_attrs["continues"] for trial in trials if "continues" in trial.user_attrs}
        for trial in trials:
            if trial.state == self._states.RUNNING:
                if trial.number not in again:
                    self._study.enqueue_trial(trial.params, user_attrs={"continues": trial.number})
                self._study.tell(trial.number, state=self._states.FAIL)
                again.add(trial.number)
        return again

    def _waiting(self) -> bool:
        return bool(self._study.get_trials(deepcopy=False, states=(self._states.WAITING,)))


class _Journal:
    """Optuna's journal in memory: its file is where the events of the run are."""

    def __init__(self, text: str, write: Callable[[int, str], None]) -> None:
        self._lines = text.splitlines()
        self._size = len(text.encode())
        self._write = write

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return map(json.loads, self._lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = [json.dumps(log, separators=(",", ":")) for log in logs]
        text = "".join(f"{line}\n" for line in lines)
        self._write(self._size, text)
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
    limits = {"n_startup_trials": prune["after"], "n_warmup_steps": prune["warmup"]}
    if prune["by"] == "percentile":
        return pruners.PercentilePruner(prune["percentile"], **limits)
    return pruners.MedianPruner(**limits)
