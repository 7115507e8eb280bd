"""The shipped jobs, as a user dispatches them: run to their end, or stopped and resumed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.bed.engine import BedEngine
from tests.real.jobs import newest, runs
from tests.real.yard import Yard, wait_until


def dispatched(lab: Yard, job: str, *settings: str, expect: int = 0) -> Path:
    """Run a job to its end, with these values of --set; return the run's directory."""
    lab.run("train.dispatch", f"jobs/{job}", *flags(settings), expect=expect, seconds=1200)
    return newest(lab)


def stopped(lab: Yard, job: str, *settings: str, at: str) -> Path:
    """Run a job until its output matches `at`, then stop it; return the run's directory."""
    before = runs(lab)
    following = lab.start("train.dispatch", f"jobs/{job}", *flags(settings))
    try:
        wait_until(
            lambda: printed(lab, before, at, following), seconds=600, what=f"{job} prints {at}"
        )
        lab.run("train.stop", newest(lab).name)
        following.communicate(timeout=120)
    finally:
        following.kill()
    return newest(lab)


def loses_a_node(lab: Yard, engine: BedEngine, job: str, *settings: str, at: str) -> Path:
    """Run a job to its end, killing its worker's container once it prints `at`; return the run.

    `cluster.up` brings the node back, as a user would do.
    """
    before = runs(lab)
    following = lab.start("train.dispatch", f"jobs/{job}", *flags(settings))
    try:
        wait_until(
            lambda: printed(lab, before, at, following), seconds=600, what=f"{job} prints {at}"
        )
        engine.docker("kill", f"trainyard-{lab.cluster}-cpu-0")
        lab.run("cluster.up")
        said, _ = following.communicate(timeout=900)
    finally:
        following.kill()
    assert following.returncode == 0, said
    return newest(lab)


def printed(lab: Yard, before: set[Path], pattern: str, following: subprocess.Popen[str]) -> bool:
    if following.poll() is not None:
        raise AssertionError(f"it ended: {following.communicate()[0]}")
    return any(re.search(pattern, log(run)) for run in runs(lab) - before)


def resumed(lab: Yard, run: Path) -> Path:
    lab.run("train.resume", run.name, seconds=1200)
    return newest(lab)


def flags(settings: tuple[str, ...]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def log(run: Path) -> str:
    """Return what all tasks of a run have printed."""
    return "\n".join(path.read_text() for path in sorted(run.glob("logs/*.log")))
