"""Each attempt has files of its own: no task, attempt or run finds what another one wrote, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

# Counts lines in a file that was sent, adds one, changes a setting, and saves weights where they were loaded.
LEARNS = """
    import os, sys
    from pathlib import Path
    here = Path(os.path.realpath(sys.argv[0])).parent
    assert here == Path(sys.path[0]) == Path(__file__).resolve().parent == Path.cwd(), (here, sys.path, Path.cwd())
    log, setting, weights = Path("runs/log.csv"), Path("setting.ini"), Path("model/weights.txt")
    print("found", len(log.read_text().splitlines()), setting.read_text(), weights.read_text(), flush=True)
    with log.open("a") as file:
        file.write("line\\n")
    setting.write_text("changed")
    weights.write_text(str(int(weights.read_text()) + 100))
    sys.exit(os.environ["TRAINYARD_ATTEMPT"] == "1")
    """
JOB = """
    command: [python3, learn.py]
    matrix: {seed: [1, 2, 3, 4]}
    env: {SEED: "{seed}"}
    outputs: [model/]
    retries: 1
    """
# Two actors, one on each of two nodes if there are two, add to a file in their working directory.
ACTORS = """
    import ray
    ray.init()

    @ray.remote(num_cpus=0)
    def add():
        with open("lines.txt", "a") as file:
            file.write("line\\n")
        return len(open("lines.txt").read().splitlines())

    print("found", ray.get(add.remote()) - 1, flush=True)
    """


def printed(run: Path) -> dict[str, str]:
    """Return what each attempt printed, by the name of its log."""
    return {path.name: path.read_text() for path in sorted((run / "logs").glob("*.log"))}


@pytest.mark.core
def test_no_attempt_finds_what_another_one_wrote_and_weights_saved_in_place_come_home(yard: Yard) -> None:
    write_job(yard, "learns", JOB, learn=LEARNS)
    for name, text in (("runs/log.csv", "first\n"), ("setting.ini", "as sent"), ("model/weights.txt", "0")):
        path = yard.home / "jobs/learns" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for _ in range(2):
        done = yard.run("train.dispatch", "learns", "--skip-smoke")
        run = newest(yard)
        tasks = [f"seed={seed}" for seed in (1, 2, 3, 4)]
        firsts = {f"{task}.1.log": "found 1 as sent 0\n" for task in tasks}
        # A declared output is as the attempt before left it; all else begins as it was sent.
        retries = {f"{task}.2.log": "found 1 as sent 100\n" for task in tasks}
        assert printed(run) == {**firsts, **retries}
        assert {(run / "outputs" / task / "model/weights.txt").read_text() for task in tasks} == {"200"}
        behind = (
            "not in `outputs`, so not brought home: runs/log.csv, setting.ini of seed=1; also files of 3 other tasks"
        )
        assert behind in done.stdout


def test_tasks_that_run_together_have_files_of_their_own(yard: Yard) -> None:
    job = JOB.replace("retries: 1", "together: true").replace("[1, 2, 3, 4]", "[1, 2]")
    write_job(yard, "learns-together", job, learn=LEARNS.replace('os.environ["TRAINYARD_ATTEMPT"] == "1"', "0"))
    for name, text in (("runs/log.csv", "first\n"), ("setting.ini", "as sent"), ("model/weights.txt", "0")):
        path = yard.home / "jobs/learns-together" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    yard.run("train.dispatch", "learns-together", "--skip-smoke")
    assert set(printed(newest(yard)).values()) == {"found 1 as sent 0\n"}


def test_what_actors_write_in_their_directory_no_other_task_and_no_later_run_finds(yard: Yard) -> None:
    write_job(yard, "adds", "command: [python3, add.py]\nmatrix: {seed: [1, 2]}\nenv: {SEED: '{seed}'}\n", add=ACTORS)
    for _ in range(2):
        yard.run("train.dispatch", "adds", "--skip-smoke")
        logs = printed(newest(yard)).values()
        assert ["found 0\n" in log for log in logs] == [True, True], logs
