"""Reads a running task's watched metric from files, its output or MLflow."""

from __future__ import annotations

import contextlib
import csv
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard_runner.node import mlflow
from trainyard_runner.node.growing import GrowingFile
from trainyard_runner.wire import event_files, tree
from trainyard_runner.wire.names import plain

# One value of one metric: its name, step, value, and seconds since 1970.
Point = tuple[str, float | None, float, float]

_LONGEST_LINE = 1024 * 1024
# Limits of the names that are kept for messages: programs may write any number of names.
_LONGEST_NAME = 100
_MOST_NAMES = 1000


class MetricReader:
    """Reads one metric's new values from the sources of a job's `watch:`."""

    def __init__(
        self, watch: dict[str, Any], *, roots: list[Path], environment: Mapping[str, str]
    ) -> None:
        """Skip the present content of event and text files below `roots`.

        A former attempt wrote it: make the reader after these files are
        restored, and before the command starts. `roots`: the command's working
        directory, then its output directory. `environment`: the command's. If
        MLflow is the source, this starts MLflow's client as a process.
        """
        self.names: set[str] = set()
        self._metric = plain(watch["metric"])
        self._values: list[list[float]] = []
        self._count = 0
        self._printed = _Printed(watch["step"])
        self._resources = contextlib.ExitStack()

        self._sources: list[Callable[[], Iterable[Any]]] = []
        if watch["source"] in ("tensorboard", "auto"):
            self._sources.append(_EventFiles(roots))
        if watch["source"] in ("stdout", "auto"):
            self._sources.append(self._printed)
        if watch["source"] == "file":
            self._sources.append(_TextFiles(roots, watch["path"], watch["step"]))
        if watch["source"] == "mlflow":
            client = mlflow.client(watch, roots[0], environment)
            self._sources.append(self._resources.enter_context(client))

    def feed(self, output: list[bytes]) -> None:
        if self._printed in self._sources:
            self._printed.chunks.extend(output)

    def new(self) -> list[list[float]]:
        """Return the values since the last reading.

        Each is [step, value, seconds since 1970]. A large text file is read in
        pieces, one per call. The first source with a value of the metric
        becomes the only source. Values without a step are numbered from 0.
        Raises OSError or ValueError if a source cannot be read now.
        """
        for source in self._sources:
            for name, step, value, seconds in source():
                if len(self.names) < _MOST_NAMES:
                    self.names.add(name[:_LONGEST_NAME])
                if plain(name) == self._metric:
                    number = self._count if step is None else step
                    self._values.append([number, value, seconds])
                    self._count += 1
            if self._values:
                # Other sources would repeat the same values.
                self._sources = [source]
                break

        values = self._values
        self._values = []
        return values

    @property
    def has_more(self) -> bool:
        return any(isinstance(source, _TextFiles) and source.has_more for source in self._sources)

    def close(self) -> None:
        self._resources.close()


class _EventFiles:
    """TensorBoard's event files below the roots.

    Isaac Lab writes a run.json into each run's directory. If there is a new
    run.json, only event files of the latest run are read.
    """

    def __init__(self, roots: list[Path]) -> None:
        self._roots = roots
        self._offsets = {path: path.stat().st_size for path in self._find()}

    def __call__(self) -> Iterator[Point]:
        for path in self._files():
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                yield from event_files.scalars(file)
                self._offsets[path] = file.tell()

    def _files(self) -> list[Path]:
        found = self._find()
        files = [path for path in found if ".tfevents." in path.name]
        runs = [path for path in found if path.name == "run.json" and path not in self._offsets]
        if not runs:
            return files
        latest = max(runs, key=lambda path: path.stat().st_mtime).parent
        return [path for path in files if path.is_relative_to(latest)] or files

    def _find(self) -> list[Path]:
        found = []
        for root in self._roots:
            for name in tree.files(str(root)):
                if ".tfevents." in name or name.endswith("run.json"):
                    found.append(root / name)
        return sorted(found)


class _Printed:
    """JSON lines in a task's output."""

    def __init__(self, step: str) -> None:
        # If the task prints too fast for the reader, the oldest chunks are dropped.
        self.chunks: deque[bytes] = deque(maxlen=64)
        self._rest = b""
        self._step = step

    def __call__(self) -> Iterator[Point]:
        while self.chunks:
            *lines, self._rest = (self._rest + self.chunks.popleft()).split(b"\n")
            self._rest = self._rest[-_LONGEST_LINE:]
            for line in lines:
                yield from _points(_json_row(line), self._step)


class _TextFiles:
    """Files of JSON lines, or of CSV with a header, below the roots.

    `pattern` is a path or a glob pattern: loggers make a new directory for each
    run.
    """

    def __init__(self, roots: list[Path], pattern: str, step: str) -> None:
        self._roots = roots
        self._pattern = pattern
        self._step = step
        self._files = {path: GrowingFile(path) for path in self._paths()}
        for file in self._files.values():
            file.pass_over()

    @property
    def has_more(self) -> bool:
        return any(file.has_more for file in self._files.values())

    def __call__(self) -> Iterator[Point]:
        for path in self._paths():
            file = self._files.setdefault(path, GrowingFile(path))
            lines = file.new()
            rows: Iterable[Mapping[str, Any]]
            if file.first.lstrip().startswith(b"{"):
                rows = map(_json_row, lines)
            else:
                table = [line.decode("utf-8", "replace") for line in [file.first, *lines]]
                rows = csv.DictReader(table)
            for row in rows:
                yield from _points(row, self._step)

    def _paths(self) -> list[Path]:
        return sorted(
            path for root in self._roots for path in root.glob(self._pattern) if path.is_file()
        )


def _json_row(line: bytes) -> dict[str, Any]:
    if line.lstrip().startswith(b"{"):
        with contextlib.suppress(ValueError, RecursionError):
            return dict(json.loads(line))
    return {}


def _points(row: Mapping[str, Any], step: str) -> Iterator[Point]:
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if not isinstance(value, bool):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                numbers[name] = float(value)

    at = numbers.pop(step, None)
    for name, number in numbers.items():
        yield name, at, number, time.time()
