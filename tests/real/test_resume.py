"""Resume a run that did not succeed: on the same cluster, and on a new one after `cluster.down`."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.jobs import end_of, events, newest, runs, write_job
from tests.real.yard import Yard, wait_until

CLUSTER = "name: {name}\nbackend: local\nhead: {{cpus: 3, memory: 1GiB}}\n"
# Prints the step at which it begins, and leaves a checkpoint. From step 0 it then ends, is killed
# or waits, as `ways` says for its seed.
TRAINING = """
    import json, os, pathlib, sys, time
    checkpoint = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"])
    metrics = pathlib.Path(os.environ["TRAINYARD_OUTPUT"], "metrics.csv")
    step = int((checkpoint / "step").read_text()) if (checkpoint / "step").exists() else 0
    with metrics.open("a") as file:
        file.write(f"{step}\\n")
    place = os.environ["TRAINYARD_TASK_INDEX"], os.environ["TRAINYARD_TASK_COUNT"]
    print("begins at", step, "task", *place, metrics.read_text().split(), flush=True)
    (checkpoint / "policy").write_bytes(b"p" * 3_000_000)
    metrics.with_name("video").write_bytes(b"v" * 2_000_000)
    (checkpoint / ".part").write_text(str(step + 10))
    (checkpoint / ".part").rename(checkpoint / "step")
    time.sleep(0.6)
    way = sys.argv[2 + int(sys.argv[1])] if step == 0 and len(sys.argv) > 2 else "end"
    if way == "die":
        os.kill(os.getpid(), 9)
    if way == "stay":
        time.sleep(600)
    """
# A sweep of two configurations; each leaves a checkpoint.
TRYING = """
    import json, os, pathlib, sys
    pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "policy").write_text(sys.argv[1])
    print(json.dumps({"step": 0, "reward": int(sys.argv[1])}), flush=True)
    """
SWEEP = """
    command: [python3, train.py, "{x}"]
    tune: {space: {x: {grid: [1, 2]}}, search: grid, metric: reward}
    """
JOB = 'command: [python3, train.py, "{{seed}}", {ways}]\nmatrix: {{seed: [0, 1, 2]}}\n{more}'


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Yard]:
    """Give a cluster for one test, which may end it."""
    yard = Yard(tmp_path)
    yard.write_cluster(CLUSTER)
    with yard.up():
        yield yard


def log(run: Path, seed: int) -> str:
    return (run / "logs" / f"seed={seed}.1.log").read_text()


def step_at_home(run: Path, seed: int) -> str:
    return (run / "checkpoints" / f"seed={seed}" / "step").read_text()


def resumed(yard: Yard, *flags: str) -> Path:
    """Resume the newest run; return the new run's directory."""
    yard.run("train.resume", *flags, "--skip-smoke")
    return newest(yard)


@pytest.mark.core
def test_killed_and_interrupted_tasks_are_resumed_from_their_checkpoints(yard: Yard) -> None:
    write_job(yard, "rl", JOB.format(ways="end, die, stay", more=""), train=TRAINING)
    before = runs(yard)
    operator = yard.start("train.dispatch", "rl", "--skip-smoke")
    wait_until(lambda: bool(runs(yard) - before), seconds=120, what="a run")
    (run,) = runs(yard) - before

    def is_left_with_one() -> bool:
        told = events(run) if (run / "events.jsonl").exists() else []
        ended = [event["task"] for event in told if event["event"] == "task-ended"]
        saved = [event["task"] for event in told if event["event"] == "checkpoint"]
        return len(ended) == 2 and "seed=2" in saved

    wait_until(
        is_left_with_one, seconds=120, what="two tasks have ended, and the third has a checkpoint"
    )
    operator.send_signal(signal.SIGINT)
    code, output = end_of(operator)
    assert code == 130, output
    assert f"  -> Resume it: trainyard train.resume {run.name}" in output
    assert [step_at_home(run, seed) for seed in (0, 1, 2)] == ["10", "10", "10"]

    again = resumed(yard, run.name)
    assert not (again / "logs" / "seed=0.1.log").exists()
    assert log(again, 1) == "begins at 10 task 1 3 ['0', '10']\n"
    assert log(again, 2) == "begins at 10 task 2 3 ['0', '10']\n"
    document = yard.json("train.status")
    assert (document["state"], document["resumes"]) == ("succeeded", run.name)
    assert [task["state"] for task in document["tasks"]] == ["skipped", "succeeded", "succeeded"]
    assert [step_at_home(again, seed) for seed in (0, 1, 2)] == ["10", "20", "20"]
    assert (again / "outputs" / "seed=0" / "metrics.csv").read_text() == "0\n"
    assert (again / "outputs" / "seed=1" / "metrics.csv").read_text() == "0\n10\n"
    assert run.name in (again / "report.html").read_text()
    refused = yard.run("train.resume", again.name, expect=2)
    assert "there is nothing to resume" in refused.stderr


def test_down_fetches_or_names_results_and_a_new_cluster_resumes_the_run(own: Yard) -> None:
    for name, more in (("none", "checkpoints: false"), ("large", "outputs_limit: 4MiB")):
        write_job(own, name, JOB.format(ways="end, die, end", more=more), train=TRAINING)

    write_job(own, "sweep", SWEEP, train=TRYING)
    own.run("train.dispatch", "none", "--skip-smoke", expect=1)
    none = newest(own)
    assert not (none / "checkpoints").exists()
    own.run("train.fetch", none.name, "--checkpoints")
    assert step_at_home(none, 2) == "10"

    failed = own.run("train.dispatch", "large", "--skip-smoke", expect=1)
    large = newest(own)
    assert f"  -> Resume it: trainyard train.resume {large.name}" in failed.stderr
    assert f"to fetch what stays: trainyard train.fetch {large.name} --checkpoints" in failed.stdout
    own.run("tune.dispatch", "sweep", "--skip-smoke")
    sweep = newest(own)
    best = own.json("tune.status")["best"]["trial"]
    home = sorted(path.name for path in (sweep / "checkpoints").glob("[!.]*"))
    assert home == [f"trial-{best:04d}-0"], "of a sweep the best one's alone"
    assert "is a sweep" in own.run("train.resume", sweep.name, expect=2).stderr
    shutil.rmtree(sweep / "checkpoints")

    down = own.run("cluster.down")
    assert sorted(path.name for path in (sweep / "checkpoints").glob("[!.]*")) == home
    assert (
        f"note: lost with the head: 3 checkpoints of run {large.name}: seed=0 (2.9 MiB)"
        in down.stderr
    )
    assert f"note: lost with the head: 1 checkpoint of run {sweep.name}: trial-" in down.stderr
    assert none.name not in down.stderr
    own.run("cluster.up")
    gone = own.run("train.fetch", large.name, "--checkpoints", expect=4)
    assert f"error: checkpoints of run {large.name} were lost with the cluster at " in gone.stderr
    fetched = own.run("train.fetch", none.name, "--checkpoints")
    assert f"the checkpoints of run {none.name} are all here" in fetched.stdout
    again = resumed(own, none.name)
    assert log(again, 1) == "begins at 10 task 1 3 ['0', '10']\n"
