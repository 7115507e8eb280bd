"""A node dies under a training: it goes on elsewhere from its checkpoint."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard, wait_until

CLUSTER = """
name: {name}
backend: local
head: {{cpus: 1, memory: 1GiB}}
workers:
  - {{name: gpu, count: 2, cpus: 1, memory: 1GiB, gpus: 1}}
local: {{simulated_gpus: true}}
"""

# Writes a checkpoint of two files that belong together, then waits to lose its node; the next attempt compares them.
TRAINING = """
    import os, pathlib, sys, time
    checkpoint = pathlib.Path(os.environ["TRAINYARD_CHECKPOINT"])
    step = checkpoint / "step"
    if step.exists():
        whole = (checkpoint / "model" / "weights").read_text() == step.read_text() * 100_000
        print("resumed at", step.read_text(), "whole:", whole, flush=True)
        raise SystemExit(0)
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


def test_kill_9_of_a_node_continues_elsewhere_from_the_checkpoint(fresh: Yard) -> None:
    fresh.write_cluster(CLUSTER)
    fresh.run("cluster.up")
    write_job(fresh, "survivor", "command: [python3, train.py]\nresources: {cpus: 1, gpus: 1}\n", train=TRAINING)
    command = fresh.start("train.dispatch", "survivor", "--skip-smoke")
    try:
        wait_until(lambda: printed(fresh, "survivor.1.log") == "written\n", seconds=120, what="a checkpoint is written")
        time.sleep(5)  # what issue 3 promises: what was there 5 s before is there for the next attempt
        first = next(event for event in events(newest(fresh)) if event["event"] == "attempt-started")
        kill_node(fresh, first["node"])
        assert command.wait(timeout=150) == 0
    finally:
        command.kill()
    run = newest(fresh)
    assert (run / "logs" / "survivor.2.log").read_text() == "resumed at 7 whole: True\n"
    ended = [event for event in events(run) if event["event"] == "attempt-ended"]
    assert [one["outcome"] for one in ended] == ["lost", "succeeded"]
    assert ended[0]["node"] != ended[1]["node"]


def kill_node(yard: Yard, node: str) -> None:
    """End every process of a node at once, as a power cut would."""
    keeper = psutil.Process(yard.keeper(node).pid)
    for process in [keeper, *keeper.children(recursive=True)]:
        if process.is_running():
            process.kill()


def printed(yard: Yard, log: str) -> str:
    found: list[Path] = list(yard.results.glob(f"*/logs/{log}"))
    return found[0].read_text() if found else ""
