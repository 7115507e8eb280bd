"""Jobs that change their own files: each attempt finds what was sent, and its task's outputs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard

# Counts lines in a file that was sent, adds one, changes a setting, and saves weights to the file
# from which it loaded them.
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
    matrix: {seed: [1, 2]}
    env: {SEED: "{seed}"}
    outputs: [model/]
    retries: 1
    """
TASKS = ("seed=1", "seed=2")
# Two actors, on two nodes if there are two, add to a file in their working directory.
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


def write(yard: Yard, name: str, job: str, program: str) -> None:
    """Write a job that learns, with the files that it changes."""
    write_job(yard, name, job, learn=program)
    for file, text in (
        ("runs/log.csv", "first\n"),
        ("setting.ini", "as sent"),
        ("model/weights.txt", "0"),
    ):
        path = yard.home / "jobs" / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def of_a_matrix_with_retries(yard: Yard) -> None:
    """Run the job twice: weights saved in place come home; a line counts the files."""
    write(yard, "learns", JOB, LEARNS)
    for _ in range(2):
        done = yard.run("train.dispatch", "learns", "--skip-smoke")
        run = newest(yard)
        firsts = {f"{task}.1.log": "found 1 as sent 0\n" for task in TASKS}
        # A declared output is as the attempt before left it; all other files are as they were sent.
        retries = {f"{task}.2.log": "found 1 as sent 100\n" for task in TASKS}
        assert printed(run) == {**firsts, **retries}
        assert {(run / "outputs" / task / "model/weights.txt").read_text() for task in TASKS} == {
            "200"
        }
        assert re.search(
            r"^files: 5 sent \(.+\), 2 brought home \(6 B\)$", done.stdout, re.MULTILINE
        )
        behind = "runs/log.csv, setting.ini of seed=1; also files of 1 other task"
        assert f"not in `outputs`, so not brought home: {behind}\n" in done.stdout


def of_tasks_together(yard: Yard) -> None:
    job = JOB.replace("retries: 1", "together: true")
    write(
        yard, "learns-together", job, LEARNS.replace('os.environ["TRAINYARD_ATTEMPT"] == "1"', "0")
    )
    yard.run("train.dispatch", "learns-together", "--skip-smoke")
    assert set(printed(newest(yard)).values()) == {"found 1 as sent 0\n"}


def of_actors(yard: Yard) -> None:
    """Run it twice, two tasks each: no actor finds what an actor of another task has written."""
    write_job(
        yard,
        "adds",
        "command: [python3, add.py]\nmatrix: {seed: [1, 2]}\nenv: {SEED: '{seed}'}\n",
        add=ACTORS,
    )
    for _ in range(2):
        yard.run("train.dispatch", "adds", "--skip-smoke")
        logs = printed(newest(yard)).values()
        assert ["found 0\n" in log for log in logs] == [True, True], logs
