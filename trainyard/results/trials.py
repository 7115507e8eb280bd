"""What the report shows of a sweep: its best configuration, all trials, and the axes on which they
are drawn.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trainyard_runner.wire.space import filled

from trainyard.results import formats
from trainyard.results.curves import JobFile
from trainyard.results.importance import importances
from trainyard.results.store import RunDirectory
from trainyard.results.sweep import Sweep, Trial
from trainyard.spec.job import scalar_text
from trainyard.spec.tune import BY_LOGARITHM, KINDS
from trainyard.wording import clean

_MOST_TRIALS = 2000
# Tasks whose learning curves are in the page, those of the best trials first; and of how many
# trials they are seen.
_MOST_CURVES = 120
SEEN_FIRST = 10

Row = dict[str, Any]


def job_file(job: JobFile, sweep: Sweep) -> JobFile:
    """Return a sweep's job file with what each task got: trial and repeat; the best trials first,
    then running ones.
    """
    ranked = sweep.ranked()
    running = [trial for trial in sweep.trials.values() if trial.state == "running"]
    known = {}
    for trial in (*ranked[:SEEN_FIRST], *running, *ranked, *sweep.trials.values()):
        known[trial.number] = trial
    parameters = {}
    for trial in known.values():
        for repeat, task in enumerate(trial.tasks):
            parameters[task] = {"trial": str(trial.number), "repeat": str(repeat)}
    return dataclasses.replace(job, keys=("trial", "repeat"), parameters=parameters)


def drawn(job: JobFile) -> JobFile:
    """Return it with the tasks whose curves are drawn."""
    return dataclasses.replace(
        job, parameters=dict(itertools.islice(job.parameters.items(), _MOST_CURVES))
    )


def values(run: RunDirectory, sweep: Sweep, job: JobFile) -> Row:
    """Return all that the page shows of a sweep besides its learning curves."""
    ranked = sweep.ranked()
    best = {trial.number for trial in ranked}
    others = [trial for trial in sweep.trials.values() if trial.number not in best]
    ordered = (ranked + others[::-1])[:_MOST_TRIALS]
    shown = sorted(ordered, key=lambda trial: trial.number)
    axes = [_axis(name, parameter, shown) for name, parameter in sweep.tune["space"].items()]
    shares, remark = importances(run.path / "study.journal")

    return {
        "metric": sweep.tune["metric"],
        "mode": sweep.tune["mode"],
        "counts": ", ".join(
            f"{count:,} {state}" for state, count in sweep.counts().items() if count
        ),
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
            "trials": [
                [
                    trial.number,
                    trial.state,
                    trial.value,
                    [_place(trial.params.get(axis["key"]), axis) for axis in axes],
                ]
                for trial in shown
            ],
        },
    }


def _axis(name: str, parameter: Mapping[str, Any], trials: Sequence[Trial]) -> Row:
    """Return a parameter's axis: logarithmic where it was searched so, and a list of values where
    it was a choice.
    """
    (kind,) = parameter.keys() & KINDS
    axis: Row = {"key": name, "name": clean(name)}
    if kind in ("choice", "grid"):
        given = [trial.params[name] for trial in trials if name in trial.params]
        return {
            **axis,
            "labels": [
                clean(text) for text in dict.fromkeys(map(scalar_text, [*parameter[kind], *given]))
            ],
        }
    return {**axis, "ends": parameter[kind], "log": kind in BY_LOGARITHM}


def _place(value: Any, axis: Row) -> object:
    """Return where on its axis a value is: itself, or its number in the list; None if it is not
    set.
    """
    if value is not None and "labels" in axis:
        return axis["labels"].index(clean(scalar_text(value)))
    return value


def _best(trial: Trial, job: JobFile, space: Collection[str]) -> Row:
    template: Row = {"command": job.content.get("command") or [], "env": {}}
    command = filled(template, {**trial.params, "repeat": 0}, space)["command"]
    return {
        **vars(trial),
        "spread": trial.spread,
        "params": [
            (name, scalar_text(value), formats.scalar(value))
            for name, value in trial.params.items()
        ],
        "command": shlex.join(command) or None,
    }


def _row(trial: Trial, names: Sequence[str]) -> Row:
    cells = [trial.params.get(name) for name in names]
    return {
        **vars(trial),
        "spread": trial.spread,
        "seconds": trial.seconds,
        "cells": [
            ("" if value is None else value, "–" if value is None else formats.scalar(value))
            for value in cells
        ],
    }
