"""A comparison of runs: their ends, final values, and differing settings."""

from __future__ import annotations

import itertools
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


# A scalar's last values in all tasks of a run: "mean", "spread" (standard deviation, or None) and
# "count".
Final = dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """A run in a comparison, with its final values by scalar."""

    state: RunState
    finals: Mapping[str, Final]


@dataclass(frozen=True)
class Comparison:
    """The runs, the scalars compared, and the settings that differ.

    `differences` has each such setting's values, by its name, in the order of
    `runs`.
    """

    runs: tuple[Compared, ...]
    tags: tuple[str, ...]
    differences: Mapping[str, tuple[str, ...]]
    tasks_left_out: int
    page: Path

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        names = [compared.state.run for compared in self.runs]
        summaries = []
        for compared in self.runs:
            summaries.append({**compared.state.summary(), "final": compared.finals})

        differences = {}
        for name, values in self.differences.items():
            differences[name] = dict(zip(names, values, strict=True))
        return {"runs": summaries, "differences": differences, "page": str(self.page)}


def compare(runs: Sequence[RunDirectory], home: Path, *, tags: Sequence[str] = ()) -> Comparison:
    """Write the page that compares runs, by `tags` or a few likely scalars."""
    most = max(10, _MOST_SERIES // len(runs))
    loaded = [_loaded(run, most=most) for run in runs]
    left_out = sum(run.left_out for run in loaded)
    all_series: list[Series] = []
    for run in loaded:
        all_series += run.series

    gathered = curves.chosen(all_series, left_out)
    chosen = tuple(tags or gathered.telling[:_MOST_TAGS])
    compared = tuple(Compared(run.state, _finals(run.series, chosen)) for run in loaded)
    differences = _differences([_values(run.record, run.job) for run in loaded])
    page = home / f"{file_stem('compare-' + '-'.join(run.name for run in runs))}.html"
    comparison = Comparison(compared, chosen, differences, left_out, page)

    keys: list[str] = []
    for run in loaded:
        keys += [key for key in run.job.keys if key not in keys]
    values = {
        "comparison": comparison,
        "curves": gathered,
        "drawing": gathered.drawing(["run", *keys], averaged=keys),
        "version": (loaded[0].record.get("versions") or {}).get("trainyard", ""),
    }

    write_page(page, "compare.html.j2", values)
    return comparison


@dataclass(frozen=True)
class _Loaded:
    record: Mapping[str, Any]
    state: RunState
    job: JobFile
    series: Sequence[Series]
    left_out: int  # tasks


def _loaded(run: RunDirectory, *, most: int) -> _Loaded:
    state = states.load(run)
    job = curves.job_file(run, list(state.tasks))
    series, left_out = curves.read(run, job, most=most)
    return _Loaded(run.record(), state, job, series, left_out)


def _finals(series: Sequence[Series], tags: Sequence[str]) -> dict[str, Final]:
    finals = {}
    for tag in tags:
        last = [one.curves[tag].last for one in series if tag in one.curves]
        if not last:
            continue

        spread = None
        if len(last) > 1:
            spread = statistics.stdev(last)
        finals[tag] = {"mean": statistics.fmean(last), "spread": spread, "count": len(last)}
    return finals


def _values(record: Mapping[str, Any], job: JobFile) -> dict[str, str]:
    revision = str((record.get("git") or {}).get("revision") or "")[:12]
    origin = {
        "cluster": record["cluster"],
        "image": str(record.get("image") or ""),
        "git revision": revision,
    }
    return {**dict(flattened(job.content)), **origin}


def flattened(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted path, text) of each single value or list of such values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            inner_path = key
            if path:
                inner_path = f"{path}.{key}"
            yield from flattened(inner, inner_path)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            yield from flattened(entry, f"{path}.{index}")
    elif isinstance(value, list):
        yield path, ", ".join(map(str, value))
    else:
        yield path, str(value)


def _differences(values_of_runs: Sequence[Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return differing values by name, in the runs' order; "" for none."""
    rows: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(itertools.chain(*values_of_runs)):
        row = tuple(values.get(name, "") for values in values_of_runs)
        if len(set(row)) > 1:
            rows[name] = row
    return rows
