"""What the recorded job.yaml of a run says: the matrix value of each task, and any value to compare."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.results.store import RunDirectory
from trainyard.spec.job_values import scalar_text
from trainyard.spec.yaml_source import UnreadableError, compose


@dataclass(frozen=True)
class JobFile:
    """A job file as resolved, and what each task got of its matrix."""

    content: Mapping[str, object] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def by_attempt(self) -> bool:
        """Say whether every attempt has an output directory of its own."""
        return self.content.get("outputs_each_attempt") is True

    def values(self) -> dict[str, str]:
        """Return every single value under its dotted path; lists of single values are one."""
        return dict(_flattened(self.content, ""))


def read(run: RunDirectory, tasks: Sequence[str]) -> JobFile:
    """Read a run's job file; one that is missing or broken says nothing.

    A job without a matrix has one key, the task itself.
    """
    try:
        content = compose((run.path / "job.yaml").read_text(encoding="utf-8"), origin="job.yaml").value
    except (OSError, UnicodeDecodeError, UnreadableError):
        content = {}
    if not isinstance(content, dict):
        content = {}
    keys, combinations = _matrix(content.get("matrix"))
    if keys and len(combinations) == len(tasks):
        return JobFile(content, keys, dict(zip(tasks, combinations, strict=True)))
    return JobFile(content, ("task",), {task: {"task": task} for task in tasks})


def _matrix(matrix: object) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return the keys, and every combination in the order of the run's tasks (spec/expand.py)."""
    if not isinstance(matrix, dict) or not all(isinstance(values, list) for values in matrix.values()):
        return (), []
    texts = [[scalar_text(value) for value in values] for values in matrix.values()]
    return tuple(matrix), [dict(zip(matrix, chosen, strict=True)) for chosen in itertools.product(*texts)]


def _flattened(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flattened(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        for index, entry in enumerate(value):
            yield from _flattened(entry, f"{path}.{index}")
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
