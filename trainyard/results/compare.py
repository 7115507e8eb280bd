"""Several runs beside each other: how they ended, where their curves lead, and what differs in
their job files.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard_runner.wire.names import file_stem

from trainyard.results import curves
from trainyard.results import state as states
from trainyard.results.curves import JobFile, Series
from trainyard.results.report import write_page
from trainyard.results.state import RunState
from trainyard.results.store import RunDirectory

_MOST_SERIES = 300
_MOST_TAGS = 3


# The last values of a scalar over the tasks of a run: "mean", "spread" (their standard deviation,
# or None), "count".
Final = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """One run."""

    state: RunState
    finals: Mapping[str, Final]


@dataclass(frozen=True)
class Comparison:
    """All runs, the scalars that are compared, and by its name each value that differs, in the
    order of runs.
    """

    runs: tuple[Compared, ...]
    tags: tuple[str, ...]
    differences: Mapping[str, tuple[str, ...]]
    tasks_left_out: int
    page: Path

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        names = [compared.state.run for compared in self.runs]
        return {
            "runs": [
                {**compared.state.summary(), "final": compared.finals} for compared in self.runs
            ],
            "differences": {
                name: dict(zip(names, values, strict=True))
                for name, values in self.differences.items()
            },
            "page": str(self.page),
        }


def compare(runs: Sequence[RunDirectory], home: Path, *, tags: Sequence[str] = ()) -> Comparison:
    """Compare runs by these scalars, else by the most telling ones; write the page into `home`."""
    known = [states.load(run) for run in runs]
    jobs = [curves.job_file(run, list(state.tasks)) for run, state in zip(runs, known, strict=True)]
    most = max(10, _MOST_SERIES // len(runs))
    found = [curves.read(run, job, most=most) for run, job in zip(runs, jobs, strict=True)]
    left_out = sum(more for _, more in found)
    gathered = curves.chosen([one for series, _ in found for one in series], left_out)
    chosen = tuple(tags or gathered.telling[:_MOST_TAGS])
    compared = []

    for state, (series, _) in zip(known, found, strict=True):
        compared.append(Compared(state, _finals(series, chosen)))

    differences = _differences(
        [_values(run.record(), job) for run, job in zip(runs, jobs, strict=True)]
    )
    page = home / f"{file_stem('compare-' + '-'.join(run.name for run in runs))}.html"
    comparison = Comparison(tuple(compared), chosen, differences, left_out, page)
    keys = list(dict.fromkeys(key for job in jobs for key in job.keys))

    values = {
        "comparison": comparison,
        "curves": gathered,
        "drawing": gathered.drawing(["run", *keys], averaged=keys),
        "version": (runs[0].record().get("versions") or {}).get("trainyard", ""),
    }

    write_page(page, "compare.html.j2", values)
    return comparison


def _finals(series: Sequence[Series], tags: Sequence[str]) -> dict[str, Final]:
    finals = {}
    for tag in tags:
        if last := [one.curves[tag].last for one in series if tag in one.curves]:
            spread = statistics.stdev(last) if len(last) > 1 else None
            finals[tag] = {"mean": statistics.fmean(last), "spread": spread, "count": len(last)}
    return finals


def _values(record: Mapping[str, Any], job: JobFile) -> dict[str, str]:
    """Return where a run came from, and its job file with every single value under its dotted
    path.
    """
    revision = str((record.get("git") or {}).get("revision") or "")[:12]
    origin = {
        "cluster": record["cluster"],
        "image": str(record.get("image") or ""),
        "git revision": revision,
    }
    return {**dict(flattened(job.content)), **origin}


def flattened(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield single values by path; a list of single values is one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flattened(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            yield from flattened(entry, f"{path}.{index}")
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _differences(values: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for found in values for name in found)
    rows = {name: tuple(found.get(name, "") for found in values) for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}
