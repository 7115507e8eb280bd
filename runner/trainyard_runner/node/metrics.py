"""The watched metric of a task, read beside it from what its training writes, while that grows."""

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

# Name, step if it is known, value, seconds since 1970.
Point = tuple[str, float | None, float, float]
_LONGEST_LINE = 1024 * 1024
# Names are only shown; a program may write any number, of any length.
_LONGEST_NAME = 100
_MOST_NAMES = 1000


class MetricReader:
    """Reads one metric. What an attempt before left is passed over: made when that is restored."""

    def __init__(
        self, watch: dict[str, Any], *, roots: list[Path], environment: Mapping[str, str]
    ) -> None:
        """`roots` are the task's directory and its output directory; `environment` is the
        task's.
        """
        self.names: set[str] = set()
        self._metric = plain(watch["metric"])
        self._values: list[list[float]] = []
        self._count = 0
        self._printed = _Printed(watch["step"])
        self._resources = contextlib.ExitStack()

        kinds: dict[str, Callable[[], Callable[[], Iterable[Point]]]] = {
            "tensorboard": lambda: _EventFiles(roots),
            "stdout": lambda: self._printed,
            "file": lambda: _TextFiles(roots, watch["path"], watch["step"]),
            "mlflow": lambda: self._resources.enter_context(
                mlflow.client(watch, roots[0], environment)
            ),
        }

        names = ("tensorboard", "stdout") if watch["source"] == "auto" else (watch["source"],)
        self._sources = [kinds[name]() for name in names]

    def feed(self, output: list[bytes]) -> None:
        """Take what the task printed."""
        if self._printed in self._sources:
            self._printed.chunks.extend(output)

    def new(self) -> list[list[float]]:
        """Return the values since the last time: [step, value, seconds since 1970] each; of a large
        file, some.

        Raises OSError or ValueError when they cannot be read now.
        """
        for source in self._sources:
            for name, step, value, seconds in source():
                if len(self.names) < _MOST_NAMES:
                    self.names.add(name[:_LONGEST_NAME])
                if plain(name) == self._metric:
                    self._values.append([self._count if step is None else step, value, seconds])
                    self._count += 1
            if self._values:
                self._sources = [source]  # what the others say of it is the same once more
                break
        values = self._values
        self._values = []
        return values

    @property
    def has_more(self) -> bool:
        """Say whether there is more to be read already: very large files are read in pieces."""
        return any(isinstance(source, _TextFiles) and source.has_more for source in self._sources)

    def close(self) -> None:
        self._resources.close()


class _EventFiles:
    """TensorBoard's files below directories; where a run.json says which run it is (Isaac Lab), the
    latest run's.
    """

    def __init__(self, roots: list[Path]) -> None:
        self._roots = roots
        self._offsets = {path: path.stat().st_size for path in self._find()}

    def __call__(self) -> Iterator[Point]:
        found = self._find()
        files = [path for path in found if ".tfevents." in path.name]
        runs = [path for path in found if path.name == "run.json" and path not in self._offsets]
        if runs:
            latest = max(runs, key=lambda path: path.stat().st_mtime).parent
        else:
            latest = Path("/")
        for path in [path for path in files if path.is_relative_to(latest)] or files:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                yield from event_files.scalars(file)
                self._offsets[path] = file.tell()

    def _find(self) -> list[Path]:
        names = [(root, name) for root in self._roots for name in tree.files(str(root))]
        return sorted(
            root / name for root, name in names if ".tfevents." in name or name.endswith("run.json")
        )


class _Printed:
    """JSON lines among what a task prints."""

    def __init__(self, step: str) -> None:
        self.chunks: deque[bytes] = deque(
            maxlen=64
        )  # of who prints faster than can be read, lines are lost
        self._rest = b""
        self._step = step

    def __call__(self) -> Iterator[Point]:
        while self.chunks:
            *lines, self._rest = (self._rest + self.chunks.popleft()).split(b"\n")
            self._rest = self._rest[-_LONGEST_LINE:]
            for line in lines:
                yield from _points(_json_row(line), self._step)


class _TextFiles:
    """JSON lines or CSV with a header; the name may be a pattern: a logger that makes a directory
    of each run.
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
            is_json = file.first.lstrip().startswith(b"{")
            for row in map(_json_row, lines) if is_json else _csv_rows([file.first, *lines]):
                yield from _points(row, self._step)

    def _paths(self) -> list[Path]:
        return sorted(
            path for root in self._roots for path in root.glob(self._pattern) if path.is_file()
        )


def _json_row(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        if line.lstrip().startswith(b"{"):
            return dict(json.loads(line))
        return {}
    return {}


def _csv_rows(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    return csv.DictReader(line.decode("utf-8", "replace") for line in lines)


def _points(row: Mapping[str, Any], step: str) -> Iterator[Point]:
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if not isinstance(value, bool):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                numbers[name] = float(value)
    at = numbers.pop(step, None)
    yield from ((name, at, value, time.time()) for name, value in numbers.items())
