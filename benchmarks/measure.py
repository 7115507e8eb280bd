"""Time two ways of doing the same, in turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INVOKE = [str(Path(sys.executable).with_name("invoke"))]


@dataclass(frozen=True)
class Measured:
    """One line of the result: medians, in seconds unless the title says otherwise."""

    title: str
    ours: float
    theirs: float | None = None
    bar: str = ""

    def line(self) -> str:
        """Return the line as it is printed."""
        ratio = f"{self.ours / self.theirs:7.2f}x" if self.theirs else "        "
        theirs = f"{self.theirs:9.4f}" if self.theirs else "         "
        return f"{self.title:<58} {self.ours:9.4f} {theirs} {ratio}  {self.bar}"


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], *, rounds: int = 3
) -> tuple[float, float]:
    """Return the medians of both, in seconds."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def seconds_of(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> float:
    """Run a command to its end and return its wall time; its failure ends the benchmark."""
    began = time.perf_counter()
    output_of(command, env=env, cwd=cwd)
    return time.perf_counter() - began


def output_of(command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> str:
    """Run a command to its end and return what it printed; its failure ends the benchmark."""
    ended = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(
            f"{' '.join(command)} exited {ended.returncode}:\n{ended.stdout}{ended.stderr}"
        )
    return ended.stdout
