"""Several runs beside each other: how they ended, where their curves lead, and what differs in their job files."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainyard_runner.names import file_stem

from trainyard.results import curves, job_file, rendering, story
from trainyard.results.curves import Curves, Series
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

_MOST_SERIES = 300
_MOST_TAGS = 3


@dataclass(frozen=True)
class Final:
    """The last values of a scalar over the tasks of a run; the spread is their standard deviation."""

    mean: float
    spread: float | None
    count: int


@dataclass(frozen=True)
class Compared:
    """One run."""

    run: RunDirectory
    state: RunState
    finals: Mapping[str, Final]
    values: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """All runs, the scalars that are compared, and by its name each value that differs, in the order of runs."""

    runs: tuple[Compared, ...]
    tags: tuple[str, ...]
    differences: Mapping[str, tuple[str, ...]]
    tasks_left_out: int
    page: Path

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "runs": [_document(compared) for compared in self.runs],
            "differences": {
                name: {compared.run.name: value for compared, value in zip(self.runs, values, strict=True)}
                for name, values in self.differences.items()
            },
            "page": str(self.page),
        }


def compare(runs: Sequence[RunDirectory], home: Path, *, tags: Sequence[str] = ()) -> Comparison:
    """Compare runs by these scalars, else by the most telling ones; write the page into `home`."""
    everything: list[Series] = []
    keys: dict[str, None] = {"run": None}
    parts: list[tuple[RunDirectory, RunState, list[Series], dict[str, str]]] = []
    left_out = 0
    for run in runs:
        told = story.read(run.path)
        job = job_file.read(run, list(told.state.tasks))
        found, more = curves.read(run, told.state.tasks, job, most=max(10, _MOST_SERIES // len(runs)))
        series = [replace(one, parameters={"run": run.name, **one.parameters}) for one in found]
        everything += series
        left_out += more
        keys |= dict.fromkeys(job.keys)
        parts.append((run, told.state, series, job.values() | _origin(told.record)))
    gathered = curves.chosen(everything, left_out)
    compared_tags = tuple(tags or gathered.telling(_MOST_TAGS))
    compared = tuple(
        Compared(run, state, dict(_finals(series, compared_tags)), values) for run, state, series, values in parts
    )
    page = home / f"{file_stem('compare-' + '-'.join(run.name for run in runs))}.html"
    differences = _differences([one.values for one in compared])
    comparison = Comparison(compared, compared_tags, differences, left_out, page)
    _write_page(comparison, gathered, list(keys))
    return comparison


def _write_page(comparison: Comparison, gathered: Curves, keys: Sequence[str]) -> None:
    values = {
        "comparison": comparison,
        "curves": gathered,
        "drawing": gathered.drawing(keys, averaged=keys[1:]),
        "version": story.read(comparison.runs[0].run.path).version,
    }
    rendering.write_page(comparison.page, "compare.html.j2", values)


def _origin(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what may differ besides the job file."""
    revision = str((record.get("git") or {}).get("revision") or "")[:12]
    return {
        "cluster": str(record.get("cluster", "")),
        "image": str(record.get("image") or ""),
        "git revision": revision,
    }


def _finals(series: Sequence[Series], tags: Iterable[str]) -> Iterable[tuple[str, Final]]:
    for tag in tags:
        values = curves.finals(series, tag)
        if values:
            spread = statistics.stdev(values) if len(values) > 1 else None
            yield tag, Final(statistics.fmean(values), spread, len(values))


def _differences(values: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for one in values for name in one)
    rows = {name: tuple(one.get(name, "") for one in values) for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}


def _document(compared: Compared) -> dict[str, Any]:
    state = compared.state
    return {
        "run": compared.run.name,
        "state": state.state,
        "job": state.job,
        "cluster": state.cluster,
        "seconds": state.seconds,
        "counts": {name: count for name, count in state.counts.items() if count},
        "final": {
            tag: {"mean": final.mean, "spread": final.spread, "count": final.count}
            for tag, final in compared.finals.items()
        },
    }
