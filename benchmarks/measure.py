"""Time two ways of doing the same, in turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INVOKE = [str(Path(sys.executable).with_name("invoke"))]


@dataclass(frozen=True)
class Measured:
    """One line of the result, in seconds unless the title says otherwise."""

    title: str
    ours: float
    theirs: float | None = None
    bar: str = ""

    def line(self) -> str:
        ratio = f"{self.ours / self.theirs:7.2f}x" if self.theirs else "        "
        theirs = f"{self.theirs:9.4f}" if self.theirs else "         "
        return f"{self.title:<58} {self.ours:9.4f} {theirs} {ratio}  {self.bar}"


def has_engine() -> bool:
    """Say whether this machine can have the Docker engine of the tests' bed."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("dockerd") is not None


def write_tasks(directory: Path) -> None:
    """Let `invoke` find Trainyard's tasks in a directory."""
    (directory / "tasks.py").write_text("from trainyard.tasks import namespace\n")
    (directory / "invoke.yaml").write_text(
        "tasks: {executor_class: trainyard.tasks.executor.TrainyardExecutor}\n"
    )


def newest_events(directory: Path, job: str) -> list[dict[str, Any]]:
    """Return the events of a job's newest run in `directory`."""
    newest = max(
        (directory / "results").glob(f"{job}-*/events.jsonl"),
        key=lambda path: path.stat().st_mtime,
    )
    return [json.loads(line) for line in newest.read_text().splitlines()]


def in_turns(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of three rounds of both, in seconds."""
    pairs = [(ours(), theirs()) for _ in range(3)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def seconds_of(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> float:
    """Return the wall time of a command; its failure ends the benchmark."""
    began = time.perf_counter()
    output_of(command, env=env, cwd=cwd)
    return time.perf_counter() - began


def output_of(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> str:
    """Return the stdout of a command; its failure ends the benchmark."""
    ended = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(
            f"{' '.join(command)} exited {ended.returncode}:\n{ended.stdout}{ended.stderr}"
        )
    return ended.stdout
