"""The watched metric of a task, read beside it from what its training writes, while that grows."""

from __future__ import annotations

import csv
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from trainyard_runner import event_files, mlflow, tree

# Name, step, value, seconds since 1970.
Point = tuple[str, float, float, float]
_MOST_NAMES = 1000
_LONGEST_LINE = 1024 * 1024
# Looking for files takes at most one part in so many of the time.
_SHARE = 20


def plain(name: str) -> str:
    """Return a name as Isaac Lab's tuner spells it; both spellings are one name."""
    return re.sub(r"[^0-9A-Za-z_./]", "_", name)


class MetricReader:
    """Reads one metric. What an attempt before left is passed over: made when that is restored."""

    def __init__(
        self,
        watch: dict[str, Any],
        *,
        roots: list[Path],
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`roots` are the task's directory and its output directory; `environment` is the task's."""
        self.names: set[str] = set()
        self._metric = plain(watch["metric"])
        self._values: list[list[float]] = []
        self._printed = _Printed(watch["step"])
        kinds: dict[str, Callable[[], Callable[[], Iterable[Point]]]] = {
            "tensorboard": lambda: _EventFiles(roots, clock),
            "stdout": lambda: self._printed,
            "file": lambda: _TextFiles(roots, watch["path"], watch["step"]),
            "mlflow": lambda: mlflow.source(watch, roots[0], environment, lambda name: plain(name) == self._metric),
        }
        names = ("tensorboard", "stdout") if watch["source"] == "auto" else (watch["source"],)
        self._sources = [kinds[name]() for name in names]

    def feed(self, output: list[bytes]) -> None:
        """Take what the task printed."""
        if self._printed in self._sources:
            self._printed.chunks.extend(output)

    def new(self) -> list[list[float]]:
        """Return the values since the last time: [step, value, seconds since 1970] each.

        Raises OSError or ValueError when they cannot be read now.
        """
        for source in self._sources:
            for name, *point in source():
                if len(self.names) < _MOST_NAMES:
                    self.names.add(name)
                if plain(name) == self._metric:
                    self._values.append(point)
            if self._values:
                self._sources = [source]  # what the others say of it is the same once more
                break
        values, self._values = self._values, []
        return values


class _EventFiles:
    """TensorBoard's files below directories; where a run.json says which run it is (Isaac Lab), that run's."""

    def __init__(self, roots: list[Path], clock: Callable[[], float]) -> None:
        self._roots = roots
        self._clock = clock
        self._look_at = 0.0
        self._old = {path: path.stat().st_size for path in self._find()}
        self._at: dict[Path, int] = {}
        self._files: list[Path] = []

    def __call__(self) -> Iterator[Point]:
        if (began := self._clock()) >= self._look_at:
            found = list(self._find())
            self._files = sorted(path for path in found if ".tfevents." in path.name)
            runs = [path for path in found if path.name == "run.json" and path not in self._old]
            if run := max(runs, key=_created, default=None):
                self._files = [path for path in self._files if path.is_relative_to(run.parent)] or self._files
            self._look_at = self._clock() + _SHARE * (self._clock() - began)
        for path in self._files:
            with path.open("rb") as file:
                file.seek(self._at.get(path, self._old.get(path, 0)))
                yield from event_files.scalars(file)
                self._at[path] = file.tell()

    def _find(self) -> Iterator[Path]:
        for root in self._roots:
            for name in tree.files(str(root)):
                if ".tfevents." in name or name.endswith("run.json"):
                    yield root / name


class _Printed:
    """JSON lines among what a task prints."""

    def __init__(self, step: str) -> None:
        self.chunks: deque[bytes] = deque(maxlen=64)  # of who prints faster than can be read, lines are lost
        self._rest = b""
        self._rows = _Rows(step)

    def __call__(self) -> Iterator[Point]:
        while self.chunks:
            *lines, self._rest = (self._rest + self.chunks.popleft()).split(b"\n")
            self._rest = self._rest[-_LONGEST_LINE:]
            for line in lines:
                yield from self._rows.points(_json_row(line))


class _TextFiles:
    """JSON lines or CSV with a header; the name may be a pattern: a logger that makes a directory of each run."""

    def __init__(self, roots: list[Path], pattern: str, step: str) -> None:
        self._roots = roots
        self._pattern = pattern
        self._rows = _Rows(step)
        # Offset and, of CSV, the header; Stable-Baselines3 writes the whole file again when there is one more column.
        self._at: dict[Path, tuple[int, list[str] | None]] = {}
        for path in self._paths():
            with path.open("rb") as file:
                self._at[path] = (path.stat().st_size, _header(file.readline()))

    def __call__(self) -> Iterator[Point]:
        for path in self._paths():
            with path.open("rb") as file:
                yield from self._grown(path, file)

    def _grown(self, path: Path, file: BinaryIO) -> Iterator[Point]:
        first = file.readline()
        if not first.endswith(b"\n"):
            return
        header = _header(first)
        begin = 0 if header is None else len(first)
        at, known = self._at.get(path, (begin, header))
        at = begin if known != header or path.stat().st_size < at else at
        file.seek(at)
        for line in file:
            if not line.endswith(b"\n"):
                break
            at += len(line)
            yield from self._rows.points(_json_row(line) if header is None else _csv_row(header, line))
        self._at[path] = (at, header)

    def _paths(self) -> list[Path]:
        return sorted(path for root in self._roots for path in root.glob(self._pattern) if path.is_file())


class _Rows:
    """Rows of values by name: steps are what one of them says, or else how many there were."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._count = 0

    def points(self, row: Mapping[str, Any]) -> Iterator[Point]:
        numbers = {name: float(value) for name, value in row.items() if type(value) in (int, float)}
        step = numbers.pop(self._step, float(self._count))
        self._count += bool(numbers)
        yield from ((name, step, value, time.time()) for name, value in numbers.items())


def _json_row(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line) if line.lstrip().startswith(b"{") else {}
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _header(line: bytes) -> list[str] | None:
    return None if line.lstrip().startswith(b"{") else next(csv.reader([line.decode("utf-8", "replace")]), [])


def _csv_row(header: list[str], line: bytes) -> dict[str, float]:
    row = {}
    for name, text in zip(header, next(csv.reader([line.decode("utf-8", "replace")]), []), strict=False):
        try:
            row[name] = float(text)
        except ValueError:
            continue
    return row


def _created(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["created_at"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""  # it is just being written
