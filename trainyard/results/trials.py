"""The report's part on a sweep: its best configuration, trials and axes."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainyard_runner.wire.space import filled, text_of

from trainyard.results import formats
from trainyard.results.curves import JobFile
from trainyard.results.importance import importances
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep, Trial
from trainyard.spec.tune import BY_LOGARITHM, KINDS
from trainyard.wording import clean

_MOST_TRIALS = 2000
# The most tasks with learning curves in the page, those of the best trials first. At first, only
# the curves of SEEN_FIRST trials are visible.
_MOST_CURVES = 120
SEEN_FIRST = 10

Row = dict[str, Any]


def job_file(job: JobFile, sweep: Sweep) -> JobFile:
    """Return a sweep's job file, with trial and repeat as parameters.

    The SEEN_FIRST best trials come first, then running ones, then the others.
    """
    ranked = sweep.ranked()
    running = [trial for trial in sweep.trials.values() if trial.state == "running"]
    known = {}
    for trial in (*ranked[:SEEN_FIRST], *running, *ranked, *sweep.trials.values()):
        known[trial.number] = trial
    parameters = {}
    for trial in known.values():
        for task in trial.tasks:
            # A trial that continues another lacks the repeats that had finished there.
            repeat = task.rpartition("-")[2]
            parameters[task] = {"trial": str(trial.number), "repeat": repeat}
    return dataclasses.replace(job, keys=("trial", "repeat"), parameters=parameters)


def drawn(job: JobFile) -> JobFile:
    """Keep only the tasks whose curves are drawn."""
    return dataclasses.replace(
        job, parameters=dict(itertools.islice(job.parameters.items(), _MOST_CURVES))
    )


def values(run: RunDirectory, sweep: Sweep, job: JobFile) -> Row:
    """Return the page's values for a sweep, without its learning curves."""
    ranked = sweep.ranked()
    best = {trial.number for trial in ranked}
    others = [trial for trial in sweep.trials.values() if trial.number not in best]
    ordered = (ranked + others[::-1])[:_MOST_TRIALS]
    shown = sorted(ordered, key=lambda trial: trial.number)
    axes = [_axis(name, parameter, shown) for name, parameter in sweep.tune["space"].items()]
    shares, remark = importances(run.path / "study.journal")
    counts = [f"{count:,} {state}" for state, count in sweep.counts().items() if count]
    points = []
    for trial in shown:
        places = [_place(trial.params.get(axis["key"]), axis) for axis in axes]
        points.append([trial.number, trial.state, trial.value, places])

    return {
        "metric": sweep.tune["metric"],
        "mode": sweep.tune["mode"],
        "counts": ", ".join(counts),
        "reason": (sweep.end or {}).get("reason"),
        "best": _best(ranked[0], job, sweep.tune["space"]) if ranked else None,
        "rows": [_row(trial, list(sweep.tune["space"])) for trial in ordered],
        "left_out": len(sweep.trials) - len(shown),
        "importances": shares,
        "remark": remark,
        "drawing": {
            "metric": clean(sweep.tune["metric"]),
            "mode": sweep.tune["mode"],
            "axes": axes,
            "trials": points,
        },
    }


def _axis(name: str, parameter: Mapping[str, Any], trials: Sequence[Trial]) -> Row:
    """Return an axis: the labels of a choice or grid, else ends and `log`."""
    (kind,) = parameter.keys() & KINDS
    axis: Row = {"key": name, "name": clean(name)}
    if kind not in ("choice", "grid"):
        return {**axis, "ends": parameter[kind], "log": kind in BY_LOGARITHM}

    tried = [trial.params[name] for trial in trials if name in trial.params]
    texts = dict.fromkeys(map(text_of, [*parameter[kind], *tried]))
    return {**axis, "labels": list(map(clean, texts))}


def _place(value: Any, axis: Row) -> object:
    """Return a value's place on its axis: its label's index, or the value."""
    if value is not None and "labels" in axis:
        return axis["labels"].index(clean(text_of(value)))
    return value


def _best(trial: Trial, job: JobFile, space: Collection[str]) -> Row:
    template: Row = {"command": job.content.get("command") or [], "env": {}}
    command = filled(template, {**trial.params, "repeat": 0}, space)["command"]
    params = []
    for name, value in trial.params.items():
        params.append((name, text_of(value), formats.scalar(value)))
    return {
        **vars(trial),
        "spread": trial.spread,
        "params": params,
        "command": shlex.join(command) or None,
    }


def _row(trial: Trial, names: Sequence[str]) -> Row:
    cells: list[tuple[Any, str]] = []
    for name in names:
        value = trial.params.get(name)
        if value is None:
            cells.append(("", "–"))
        else:
            cells.append((value, formats.scalar(value)))
    return {**vars(trial), "spread": trial.spread, "seconds": trial.seconds, "cells": cells}
