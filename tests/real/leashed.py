"""Clusters with a leash (deadline, idle limit): the operator's machine is lost, and they end."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard, wait_until

# The time allowed between the deadline and the moment when everything is gone.
A_MINUTE = 60.0
WAITS = """
    command: [sleep, "600"]
    resources: {cpus: 1}
    """


def followed(yard: Yard, name: str, job: str) -> subprocess.Popen[str]:
    """Dispatch a run, and return the process that follows it, once a task has started."""
    following = yard.start(
        "train.dispatch", write_job(yard, name, job), "--skip-smoke", as_leader=True
    )
    wait_until(
        lambda: any(
            "attempt-started" in path.read_text()
            for path in yard.results.glob(f"*{name}*/events.jsonl")
        ),
        seconds=120,
        what="a run that is followed",
    )
    return following


def killed(following: subprocess.Popen[str]) -> None:
    """Kill the process that follows a run, as a power cut would."""
    for process in [
        *psutil.Process(following.pid).children(recursive=True),
        psutil.Process(following.pid),
    ]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    following.communicate()


def shorten(yard: Yard, *, made: float, seconds: float = 20.0) -> float:
    """Set the cluster's deadline to `seconds` from now, and return the deadline."""
    deadline = time.time() - made + seconds
    yard.run("cluster.up", "--set", f"leash.deadline={deadline:.0f}s")
    return made + round(deadline)


def operator_leaves(
    yard: Yard, away: Path, *, made: float, seconds: float = 20.0
) -> tuple[str, float]:
    """Shorten the deadline, kill a run's follower, move the state; return run and deadline."""
    following = followed(yard, "waits", WAITS)
    due = shorten(yard, made=made, seconds=seconds)
    killed(following)
    shutil.move(yard.state, away)
    return newest(yard).name, due


def ended_in_time(yard: Yard, away: Path, left: Callable[[], list[str]], *, due: float) -> None:
    """Wait until nothing is left, soon after the deadline; then check what the operator is told.

    The operator has its state directory again by then.
    """
    wait_until(lambda: not left(), seconds=due + A_MINUTE - time.time(), what="everything is gone")
    assert time.time() >= due
    shutil.rmtree(yard.state, ignore_errors=True)
    shutil.move(away, yard.state)
    assert_told(yard, newest(yard).name)


def assert_told(yard: Yard, run: str) -> None:
    """Assert that the cluster, and a run without a follower, say why they are gone."""
    status = yard.json("cluster.status")
    assert status["condition"] == "absent"
    assert "it had a leash (ends at " in status["remark"]
    assert "outputs that were not fetched before it ended are lost" in status["remark"]
    assert "it had a leash" in json.dumps(yard.json("train.status", run))
