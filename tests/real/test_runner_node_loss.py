"""Nodes end or freeze under a training: it resumes elsewhere; a thawed node ends its own part."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.real.jobs import events, new_mark, newest, running, write_job
from tests.real.yard import HEAD_AND_TWO_WORKERS, Yard, wait_until

pytestmark = pytest.mark.waiting
CLUSTER = HEAD_AND_TWO_WORKERS.replace(": 2", ": 1").replace("count: 1", "count: 3")

# Writes a checkpoint of two files that belong together, then waits to lose its node. The next
# attempt checks that the files fit together.
TRAINING = """
    import os, pathlib, sys, time
    checkpoint = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"])
    metrics = pathlib.Path(os.environ["TRAINYARD_OUTPUT"]) / "metrics.csv"
    step = checkpoint / "step"
    if step.exists():
        whole = (checkpoint / "model" / "weights").read_text() == step.read_text() * 100_000
        print("resumed at", step.read_text(), "whole:", whole, flush=True)
        with metrics.open("a") as file:
            file.write("after\\n")
        raise SystemExit(0)
    metrics.write_text("before\\n")
    (checkpoint / "model").mkdir()
    (checkpoint / "model" / "weights").write_text("7" * 100_000)
    step.write_text("7")
    print("written", flush=True)
    # What is being written when the node dies must not spoil what was whole.
    torn = (checkpoint / "next").open("w")
    while True:
        torn.write("x" * 1000)
        torn.flush()
        time.sleep(0.05)
    """

# Prints and writes without end, and has a child that only its guard knows. The second attempt fails
# when a file says so; the third prints whose checkpoint it got.
FREEZING = """
    import os, pathlib, subprocess, sys, time
    attempt = os.environ["TRAINYARD_ATTEMPT"]
    checkpoint = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"], "attempt")
    if attempt == "3":
        print("found the checkpoint of attempt", checkpoint.read_text(), flush=True)
        raise SystemExit(0)
    subprocess.Popen(["sleep", sys.argv[2]], env={}, start_new_session=True)
    while not pathlib.Path(sys.argv[1]).exists():
        checkpoint.write_text(attempt)
        print("attempt", attempt, flush=True)
        time.sleep(0.5)
    raise SystemExit(1)
    """


@dataclass(frozen=True)
class Frozen:
    """A run whose task is frozen, together with all processes of its node."""

    yard: Yard
    run: Path
    node: str
    processes: list[psutil.Process]
    tell: Path
    mark: str
    command: subprocess.Popen[str]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frozen]:
    """Give a run whose node is frozen: other tests run in the minute that Ray takes to notice."""
    yard = Yard(tmp_path_factory.mktemp("losses"))
    yard.write_cluster(CLUSTER)
    tell, mark = yard.home / "end-attempt-2", new_mark()

    write_job(
        yard,
        "freezing",
        f"command: [python3, train.py, '{tell}', '{mark}']\nresources: {{cpus: 1, gpus: "
        "1}\nretries: 1\n",
        train=FREEZING,
    )

    with yard.up():
        command = yard.start("train.dispatch", "freezing", "--skip-smoke")
        wait_until(
            lambda: "attempt 1" in printed(yard, "freezing.1.log"),
            seconds=120,
            what="the task runs",
        )

        run = newest(yard)
        node = started(run, attempt=1)["node"]
        processes = of_node(yard, node)
        for process in processes:
            process.suspend()

        yield Frozen(yard, run, node, processes, tell, mark, command)
        for process in processes:
            if process.is_running():
                process.resume()

        command.kill()
        for pid in running(mark):
            psutil.Process(pid).kill()


def test_a_killed_node_s_task_continues_elsewhere_from_its_checkpoint(frozen: Frozen) -> None:
    yard = frozen.yard
    job = "command: [python3, train.py]\nresources: {cpus: 1, gpus: 1}\noutputs_every: 1s\n"
    write_job(yard, "survivor", job, train=TRAINING)
    command = yard.start("train.dispatch", "survivor", "--skip-smoke")

    try:
        wait_until(
            lambda: printed(yard, "survivor.1.log") == "written\n",
            seconds=120,
            what="a checkpoint is written",
        )

        run = newest(yard)
        before = arrived(run, "checkpoint")
        # The next checkpoint to arrive may have been begun before both files were written.
        wait_until(
            lambda: arrived(run, "checkpoint") >= before + 2 and arrived(run, "outputs") > 0,
            seconds=120,
            what="the head has the checkpoint and the outputs",
        )

        kill_node(yard, started(run, attempt=1)["node"])
        assert command.wait(timeout=150) == 0
    finally:
        command.kill()

    assert (run / "logs" / "survivor.2.log").read_text() == "resumed at 7 whole: True\n"
    assert (run / "outputs" / "survivor" / "metrics.csv").read_text() == "before\nafter\n"
    ended = [event for event in events(run) if event["event"] == "attempt-ended"]
    assert [one["outcome"] for one in ended] == ["lost", "succeeded"]
    assert ended[0]["node"] != ended[1]["node"]


def test_a_frozen_node_is_lost_and_what_thaws_ends_its_own(frozen: Frozen) -> None:
    """With Ray's defaults the loss would be noticed after 441 s (measured)."""
    yard, run = frozen.yard, frozen.run
    wait_until(
        lambda: "attempt 2" in printed(yard, "freezing.2.log"),
        seconds=180,
        what="the run goes on elsewhere",
    )

    assert started(run, attempt=2)["node"] != frozen.node
    # The run may notice by its connections before Ray's health check does.
    wait_until(
        lambda: f"{frozen.node}: it runs, and is not in Ray" in yard.json("cluster.status")["seen"],
        seconds=60,
        what="Ray calls the frozen node dead",
    )

    elsewhere = set(running(frozen.mark)) - {process.pid for process in frozen.processes}
    for process in frozen.processes:
        process.resume()

    wait_until(
        lambda: not any(map(psutil.Process.is_running, frozen.processes)),
        seconds=60,
        what="all of it is gone",
    )

    assert set(running(frozen.mark)) == elsewhere
    assert yard.states()[frozen.node] == "down"
    frozen.tell.touch()
    assert frozen.command.wait(timeout=120) == 0
    assert printed(yard, "freezing.3.log") == "found the checkpoint of attempt 2\n"
    first = [event["event"] for event in events(run) if event.get("attempt") == 1]
    assert (first[0], first[-1]) == ("attempt-started", "attempt-ended")
    yard.run("cluster.up")
    assert set(yard.states().values()) == {"up"}


def test_hidden_processes_of_a_task_that_killed_its_guards_end_with_down(frozen: Frozen) -> None:
    mark = new_mark()
    kill = (
        f"env -i setsid sleep {mark} & sleep 0.5; kill -9 $PPID $(cut -d' ' -f4 /proc/$PPID/stat)"
    )
    write_job(frozen.yard, "killer", f"command: [sh, -c, {json.dumps(kill)}]\n")
    frozen.yard.run("train.dispatch", "killer", "--skip-smoke", expect=1)
    assert [
        event["outcome"]
        for event in events(newest(frozen.yard))
        if event["event"] == "attempt-ended"
    ] == ["failed"]

    frozen.yard.run("cluster.down", "--end-runs")
    left = running(mark)
    for pid in left:
        psutil.Process(pid).kill()

    assert left == []


def started(run: Path, *, attempt: int) -> dict[str, Any]:
    return next(
        e for e in events(run) if e["event"] == "attempt-started" and e["attempt"] == attempt
    )


def arrived(run: Path, kind: str) -> int:
    """Return how many checkpoints or outputs (`kind`) the head got in full."""
    return sum(event["event"] == kind for event in events(run))


def of_node(yard: Yard, node: str) -> list[psutil.Process]:
    keeper = psutil.Process(yard.keeper(node).pid)
    return [keeper, *keeper.children(recursive=True)]


def kill_node(yard: Yard, node: str) -> None:
    """Kill every process of a node at once, as a power cut would."""
    for process in of_node(yard, node):
        if process.is_running():
            process.kill()


def printed(yard: Yard, log: str) -> str:
    found: list[Path] = list(yard.results.glob(f"*/logs/{log}"))
    return found[0].read_text() if found else ""
