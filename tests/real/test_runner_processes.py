"""Nothing that a task started outlives it: after a timeout, a stop, or kill -9 of its parents."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from trainyard_runner.node import attempt
from trainyard_runner.node.workspace import Spare
from trainyard_runner.wire.order import Order

from tests.real.jobs import GONE_WITHIN, events, new_mark, newest, running, write_job
from tests.real.yard import Yard, wait_until

# A child in its own session that ignores SIGTERM, an orphan, and a command that also ignores
# SIGTERM.
TREE = """\
trap '' TERM
setsid sh -c "trap '' TERM; sleep $1" &
(sleep $1 &)
echo started
sleep $1
"""
GUARD_KILLED = (
    "the guard process that started the task was killed, by the task or by another program"
)

QUICK_ORDER: Order = {
    "run": "r-1",
    "task": "a",
    "index": 0,
    "count": 1,
    "attempt": 1,
    "command": ["echo", "done"],
    "env": {},
    "ray_environment": {},
    "has_own_package": False,
    "cpus": 1.0,
    "gpus": 0.0,
    "timeout": None,
    "outputs": [],
    "watch": None,
    "master": None,
    "together": False,
    "every": 5.0,
    "limit": 10**9,
    "held": None,
    "checkpoint": [],
    "restored": [],
    "ray_address": "192.0.2.1:6379",
}


@pytest.fixture
def mark() -> Iterator[str]:
    """Give an argument by which a task's processes are found; kill what a failed test leaves."""
    mark = new_mark()
    yield mark
    for pid in running(mark):
        psutil.Process(pid).kill()


@pytest.mark.core
def test_a_task_that_ends_takes_along_all_that_it_started(yard: Yard, mark: str) -> None:
    """The tasks: one too slow, one with children on its pipe, one that kills its guard's guard."""
    job = f"""
        resources: {{cpus: 0.5}}
        retries: 0
        tasks:
          - {{name: late, command: [sh, tree.sh, '{mark}'], timeout: 1s}}
          - {{name: daemons, command: [sh, daemons.sh, '{mark}']}}
          - {{name: killer, command: [sh, killer.sh, '{mark}']}}
          - {{name: files, command: [sh, -c, 'exec ls /proc/self/fd']}}
        """

    write_job(yard, "ending", job)
    scripts = {
        "tree": TREE,
        "daemons": "setsid sleep $1 & (sleep $1 &) ; echo done",
        "killer": (
            "env -i setsid sleep $1 & sleep 0.5; kill -9 $(cut -d' ' -f4 "
            "/proc/$PPID/stat); sleep $1"
        ),
    }
    for name, script in scripts.items():
        (yard.home / "jobs" / "ending" / f"{name}.sh").write_text(script)

    yard.run("train.dispatch", "ending", "--skip-smoke", expect=1)
    assert [psutil.Process(pid).cmdline() for pid in running(mark)] == []
    assert {one["task"]: (one["outcome"], one["reason"]) for one in attempts(newest(yard))} == {
        "late": ("timeout", "it ran longer than its timeout of 1 s"),
        "daemons": ("succeeded", None),
        "files": ("succeeded", None),
        "killer": ("failed", GUARD_KILLED),
    }

    # Standard streams, and the directory that ls reads: no descriptor of the guard.
    assert (newest(yard) / "logs" / "files.1.log").read_text().split() == ["0", "1", "2", "3"]


@pytest.mark.core
def test_processes_of_an_ended_task_are_gone_while_its_run_continues(yard: Yard, mark: str) -> None:
    """A process left behind would keep the GPU that the run's next task gets."""
    of_the_other = new_mark()
    job = f"""
        resources: {{cpus: 0.5}}
        tasks:
          - {{name: ends, command: [sh, ends.sh, '{mark}']}}
          - {{name: stays, command: [sh, tree.sh, '{of_the_other}']}}
        """

    write_job(yard, "leaving", job)
    for name, script in {
        "ends": "setsid sleep $1 & (sleep $1 &) ; echo done",
        "tree": TREE,
    }.items():
        (yard.home / "jobs" / "leaving" / f"{name}.sh").write_text(script)

    with dispatched(yard, "leaving", of_the_other) as run:
        wait_until(lambda: bool(attempts(run)), seconds=60, what="one task has ended")
        assert [one["task"] for one in attempts(run)] == ["ends"]
        assert running(mark) == []
        yard.run("train.stop", run.name, expect=None)


@pytest.mark.core
def test_a_stopped_run_ends_its_trees_and_says_so(yard: Yard, mark: str) -> None:
    tree_job(yard, "stopped", mark, "outputs: [left.txt]")
    with dispatched(yard, "stopped", mark) as run:
        yard.run("train.stop", run.name, expect=None)
    wait_until(lambda: not running(mark), seconds=GONE_WITHIN, what="no process left")
    recorded = events(run)
    assert recorded[-1]["event"] == "run-ended"
    assert (recorded[-1]["state"], recorded[-1]["exit"]) == ("stopped", 1)
    assert [one["outcome"] for one in attempts(run)] == ["stopped"]


def test_kill_9_of_the_ray_worker_is_a_loss_that_costs_no_retry(yard: Yard, mark: str) -> None:
    tree_job(yard, "crashed", mark, "")
    with dispatched(yard, "crashed", mark) as run:
        first = running(mark)
        worker_of(run).kill()
        wait_until(
            lambda: not set(first) & set(running(mark)),
            seconds=GONE_WITHIN,
            what="the first tree is gone",
        )
        wait_until(lambda: bool(running(mark)), seconds=120, what="another attempt")
        yard.run("train.stop", run.name, expect=None)
    assert [one["outcome"] for one in attempts(run)] == ["lost", "stopped"]


def tree_job(yard: Yard, name: str, mark: str, more: str) -> None:
    write_job(yard, name, f"command: [sh, tree.sh, '{mark}']\nresources: {{cpus: 0.5}}\n{more}\n")
    (yard.home / "jobs" / name / "tree.sh").write_text(TREE)


class dispatched:
    """A run whose task is running; leaving the block ends the command that follows the run."""

    def __init__(self, yard: Yard, name: str, mark: str) -> None:
        self._yard, self._name, self._mark = yard, name, mark
        self._command: subprocess.Popen[str] | None = None

    def __enter__(self) -> Path:
        self._command = self._yard.start("train.dispatch", self._name, "--skip-smoke")
        # The script itself and its three sleepers.
        wait_until(lambda: len(running(self._mark)) >= 4, seconds=120, what=f"{self._name} runs")
        run = newest(self._yard)
        # The record on this machine follows a moment later.
        wait_until(
            lambda: any(one["event"] == "attempt-started" for one in events(run)),
            seconds=60,
            what="its record",
        )
        return run

    def __exit__(self, *_: object) -> None:
        assert self._command is not None
        try:
            self._command.wait(timeout=100)
        finally:
            self._command.kill()


def attempts(run: Path) -> list[dict[str, Any]]:
    return [event for event in events(run) if event["event"] == "attempt-ended"]


def worker_of(run: Path) -> psutil.Process:
    started = next(event for event in events(run) if event["event"] == "attempt-started")
    workers = [
        one for one in named("ray::attempts") if started["node_id"] in " ".join(parent_command(one))
    ]
    return workers[0]


def named(title: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] and process.info["cmdline"][0] == title:
            yield process


def parent_command(process: psutil.Process) -> list[str]:
    parent = process.parent()
    return parent.cmdline() if parent else []


def test_a_quick_attempt_is_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is a message through Ray, which takes as long as a quick command."""
    # On a busy machine, `echo` may take longer than the real limit.
    monkeypatch.setattr(attempt, "QUICK", 60.0)
    quick = attempt.Attempt(
        QUICK_ORDER, home=tmp_path, files=None, gpus=[], node="node", package=None, spare=Spare()
    )

    (batch,) = quick.run(lambda references: iter(()))
    assert [kind for kind, _ in batch] == ["started", "output", "ended"]
    assert batch[-1][1]["outcome"] == "succeeded"
