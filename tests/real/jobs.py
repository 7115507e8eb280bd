"""Small jobs for the real tests, and what they leave behind."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import psutil

from tests.real.yard import Yard

# Prints numbered lines, a few at a time: any gap or repeat shows.
COUNTING = """
import sys, time
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    if number % 10 == 9:
        time.sleep(float(sys.argv[2]))
"""


def write_job(yard: Yard, name: str, job: str, **programs: str) -> str:
    """Write jobs/NAME with job.yaml and programs (name without .py -> text); return the name."""
    directory = yard.home / "jobs" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "job.yaml").write_text(textwrap.dedent(job))
    for program, text in programs.items():
        (directory / f"{program}.py").write_text(textwrap.dedent(text))
    return name


def newest(yard: Yard) -> Path:
    """Return the directory of the newest run."""
    return max(yard.results.glob("*/run.json"), key=lambda path: path.stat().st_mtime_ns).parent


def counted(lines: int) -> str:
    """Return what COUNTING prints."""
    return "".join(f"line {number}\n" for number in range(lines))


def events(run: Path) -> list[dict[str, Any]]:
    """Return the recorded events of a run."""
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def running(mark: str) -> list[int]:
    """Return the processes whose command line contains a mark."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and mark in process.info["cmdline"]:
            found.append(process.info["pid"])
    return found
