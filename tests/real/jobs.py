"""Small jobs for the real tests, and what they leave in results and among processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import psutil

from tests.real.yard import Yard, wait_until

# 10 s are promised; a busy machine may need longer, and tests assert only that nothing stays.
GONE_WITHIN = 60.0
# Prints numbered lines, a few at a time: a gap or a repeat shows.
COUNTING = """
import sys, time
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    if number % 10 == 9:
        time.sleep(float(sys.argv[2]))
"""
# Prints `began` and leaves a checkpoint; with a checkpoint, prints `resumed` and ends.
RESUMING = """
import os, pathlib, time
checkpoint = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "began")
if checkpoint.exists():
    print("resumed", flush=True)
    raise SystemExit(0)
checkpoint.touch()
print("began", flush=True)
"""
_NUMBERS = itertools.count(1)


def new_mark() -> str:
    """Return a unique number of seconds for a test's process to sleep: `running` finds it so."""
    return f"4000.{os.getpid()}{next(_NUMBERS):04}"


def write_job(yard: Yard, name: str, job: str, **programs: str) -> str:
    """Write jobs/NAME with job.yaml and programs (name without .py -> text); return the name."""
    directory = yard.home / "jobs" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "job.yaml").write_text(textwrap.dedent(job))
    for program, text in programs.items():
        (directory / f"{program}.py").write_text(textwrap.dedent(text))
    return name


def newest(yard: Yard) -> Path:
    return max(yard.results.glob("*/run.json"), key=lambda path: path.stat().st_mtime_ns).parent


def counted(lines: int) -> str:
    """Return what COUNTING prints."""
    return "".join(f"line {number}\n" for number in range(lines))


def runs(yard: Yard) -> set[Path]:
    return {path.parent for path in yard.results.glob("*/run.json")}


def log_of(run: Path) -> str:
    """Return what a run's task `counting` has printed so far."""
    path = run / "logs" / "counting.1.log"
    return path.read_text() if path.exists() else ""


def started(yard: Yard, before: set[Path], following: subprocess.Popen[str]) -> Path:
    """Wait until output of a new run that counts has arrived; return the run's directory."""

    def printed_something() -> bool:
        if following.poll() is not None:
            raise AssertionError(f"it ended: {following.communicate()[0]}")
        return any("line 20\n" in log_of(run) for run in runs(yard) - before)

    wait_until(printed_something, seconds=180, what="a run that prints")
    return next(iter(runs(yard) - before))


def end_of(process: subprocess.Popen[str], *, seconds: float = 240) -> tuple[int, str]:
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def printed_until(text: str, process: subprocess.Popen[str]) -> str:
    """Return what is printed up to the line with this text, or up to the end."""
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if text in line:
            break
    return "".join(lines)


def rest_of(process: subprocess.Popen[str], *, seconds: float = 240) -> tuple[int, str]:
    """Do as `end_of`, after `printed_until`: `communicate` would lose what was read ahead."""
    output = process.stdout.read() if process.stdout else ""
    return process.wait(timeout=seconds), output


def assert_whole(output: str, run: Path, lines: int) -> None:
    """Assert that a run's output, shown and recorded, has every counted line once and in order."""
    shown = [line for line in output.splitlines() if line.startswith("[counting] line")]
    assert shown == [f"[counting] line {number}" for number in range(lines)], output
    assert log_of(run) == counted(lines)


def events(run: Path) -> list[dict[str, Any]]:
    """Return the events that have arrived; the last line may be half written, and is left out."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text().split("\n")[:-1]]


def running(mark: str) -> list[int]:
    """Return the machine's processes that have this mark (`new_mark`) among their arguments."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and mark in (
            process.info["cmdline"] or ()
        ):
            found.append(process.info["pid"])
    return found
