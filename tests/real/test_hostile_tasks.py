"""Hostile tasks of one run: each ends as it should, harms no other task, and leaves nothing."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from trainyard_runner.wire import archive, tree

from tests.real import hostile_tasks
from tests.real.jobs import new_mark, newest, running, write_job
from tests.real.other_user import NOBODY, as_nobody
from tests.real.yard import HEAD_AND_WORKER, Yard

JOB = """
resources: {{cpus: 0.25}}
env: {{MARK: '{mark}'}}
tasks:
"""
FAILS = {"crash": "killed by SIGSEGV"}
# TASK: the files that it brings home, besides directories. Other tasks bring none.
HOME = {
    "deep": {"beside"},
    "locked_directory": {"beside"},
    "locked_output": {"runs/file"},
    "keeps_writing": {"beside", "changing"},
    "crash": {"before"},
    "silent": {"after"},
    "checkpoint": {"found"},
    "litters": {"beside"},
}


@dataclass(frozen=True)
class Ran:
    """The run of all hostile tasks, its document, and the mark of their processes."""

    run: Path
    document: dict[str, Any]
    mark: str

    def brought(self, task: str) -> archive.Entries:
        return archive.scan(str(self.run / "outputs" / task))[0]


@pytest.fixture(scope="module")
def ran() -> Iterator[Ran]:
    """Run the job on a cluster of an ordinary user's."""
    with home_of(NOBODY if os.getuid() == 0 else os.getuid()) as home:
        yard = Yard(home, cluster="hostile", environ={"HOME": str(home)}, prefix=as_nobody())
        yard.write_cluster(HEAD_AND_WORKER)
        try:
            yard.run("cluster.up")
            yield dispatch(yard)
        finally:
            yard.run("cluster.down")
        assert yard.leftovers() == []
        assert list(Path("/tmp").glob(f"trainyard-*/{yard.temp.name}")) == []


def dispatch(yard: Yard) -> Ran:
    tasks = "".join(map(task_of_job, (task.__name__ for task in hostile_tasks.TASKS)))
    mark = new_mark()
    write_job(
        yard,
        "hostile",
        JOB.format(mark=mark) + tasks,
        hostile=Path(hostile_tasks.__file__).read_text(),
    )
    document = yard.json("train.dispatch", "hostile", "--skip-smoke", expect=1)
    return Ran(newest(yard), document, mark)


@contextmanager
def home_of(user: int) -> Iterator[Path]:
    """Give an ordinary user's home; files in it may be such that pytest cannot remove them."""
    home = Path(tempfile.mkdtemp(prefix="hostile-", dir="/tmp"))
    home.chmod(0o755)
    os.chown(home, user, -1)
    try:
        yield home
    finally:
        tree.remove(str(home))


def task_of_job(name: str) -> str:
    retries = 1 if name == "checkpoint" else 0
    return (
        f"  - {{name: {name}, command: [python3, hostile.py, {name}], outputs: [runs/], "
        f"retries: {retries}}}\n"
    )


def test_each_task_ends_in_the_right_state(ran: Ran) -> None:
    assert len(ran.document["tasks"]) == len(hostile_tasks.TASKS)
    ended = {
        task["name"]: (task["state"], task["attempts"][-1]["reason"])
        for task in ran.document["tasks"]
    }
    assert {
        name: reason for name, (state, reason) in ended.items() if state != "succeeded"
    } == FAILS
    attempts = {task["name"]: len(task["attempts"]) for task in ran.document["tasks"]}
    assert {name: count for name, count in attempts.items() if count > 1} == {"checkpoint": 2}


def test_all_that_can_be_read_comes_home_and_nothing_else(ran: Ran) -> None:
    for task in hostile_tasks.TASKS:
        name = task.__name__
        brought = {
            path for path, entry in ran.brought(name).items() if not stat.S_ISDIR(entry.mode)
        }
        assert brought == HOME.get(name, set()), name


def test_outputs_that_were_left_out_are_reported(ran: Ran) -> None:
    events = (ran.run / "events.jsonl").read_text()
    assert "output_is_a_link: not brought back" in events
    assert "it cannot be read: File name too long" in events


def test_no_process_is_left(ran: Ran) -> None:
    assert running(ran.mark) == []
