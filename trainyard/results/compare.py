"""Several runs beside each other: how they ended, where their curves lead, and what differs in their job files."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trainyard_runner.names import file_stem

from trainyard.results import curves, rendering
from trainyard.results import state as states
from trainyard.results.curves import Series
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

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {
            "run": self.run.name,
            "state": self.state.state,
            "job": self.state.job,
            "cluster": self.state.cluster,
            "seconds": self.state.seconds,
            "counts": {name: count for name, count in self.state.counts.items() if count},
            "final": {tag: asdict(final) for tag, final in self.finals.items()},
        }


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
        names = [compared.run.name for compared in self.runs]
        return {
            "runs": [compared.document() for compared in self.runs],
            "differences": {name: dict(zip(names, values, strict=True)) for name, values in self.differences.items()},
            "page": str(self.page),
        }


def compare(runs: Sequence[RunDirectory], home: Path, *, tags: Sequence[str] = ()) -> Comparison:
    """Compare runs by these scalars, else by the most telling ones; write the page into `home`."""
    loaded = [(run, states.load(run)) for run in runs]
    jobs = [curves.job_file(run, list(state.tasks)) for run, state in loaded]
    keys = list(dict.fromkeys(["run", *(key for job in jobs for key in job.keys)]))
    series: list[list[Series]] = []
    left_out = 0
    for (run, state), job in zip(loaded, jobs, strict=True):
        found, more = curves.read(run, state.tasks, job, most=max(10, _MOST_SERIES // len(runs)))
        series.append([replace(one, parameters={"run": run.name, **one.parameters}) for one in found])
        left_out += more
    gathered = curves.chosen([one for found in series for one in found], left_out)
    chosen = tuple(tags or gathered.telling[:_MOST_TAGS])
    compared = tuple(
        Compared(run, state, _finals(found, chosen), job.values() | _origin(run.record()))
        for (run, state), job, found in zip(loaded, jobs, series, strict=True)
    )
    page = home / f"{file_stem('compare-' + '-'.join(run.name for run in runs))}.html"
    comparison = Comparison(compared, chosen, _differences([one.values for one in compared]), left_out, page)
    values = {
        "comparison": comparison,
        "curves": gathered,
        "drawing": gathered.drawing(keys, averaged=keys[1:]),
        "version": (runs[0].record().get("versions") or {}).get("trainyard", ""),
    }
    rendering.write_page(page, "compare.html.j2", values)
    return comparison


def _origin(record: Mapping[str, Any]) -> dict[str, str]:
    revision = str((record.get("git") or {}).get("revision") or "")[:12]
    return {"cluster": record["cluster"], "image": str(record.get("image") or ""), "git revision": revision}


def _finals(series: Sequence[Series], tags: Sequence[str]) -> dict[str, Final]:
    values = {tag: found for tag in tags if (found := curves.finals(series, tag))}
    return {
        tag: Final(statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))
        for tag, found in values.items()
    }


def _differences(values: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for found in values for name in found)
    rows = {name: tuple(found.get(name, "") for found in values) for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}
