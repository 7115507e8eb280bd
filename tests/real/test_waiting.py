"""Waiting runs name the run that holds what they need, on a cluster that three runs share."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard, wait_until

SLEEP = "command: [sleep, '600']\nmatrix: {{n: {n}}}\nresources: {resources}\n"


def start(yard: Yard, job: str, *, n: list[int], resources: str) -> str:
    write_job(yard, job, SLEEP.format(n=n, resources=resources) + "env: {N: '{n}'}\n")
    yard.run("train.dispatch", job, "--no-wait", "--skip-smoke")
    return newest(yard).name


def waiting(yard: Yard, run: str) -> str | None:
    found: dict[str, Any] | None = yard.json("train.status", run)["waiting"]
    return str(found["text"]) if found else None


@pytest.fixture(scope="module")
def runs(yard: Yard) -> Iterator[dict[str, str]]:
    """Start three runs: one holds all CPUs, one waits for CPUs, one waits for memory of its own."""
    started = {"holder": start(yard, "holder", n=[0, 1, 2, 3, 4, 5], resources="{cpus: 1}")}
    wait_until(
        lambda: all(
            task["state"] == "running"
            for task in yard.json("train.status", started["holder"])["tasks"]
        ),
        seconds=60,
        what="all tasks of the holder run",
    )

    started["second"] = start(yard, "second", n=[0, 1], resources="{cpus: 2}")
    started["memory"] = start(yard, "memory", n=[0, 1, 2, 3], resources="{cpus: 0, memory: 768MiB}")
    yield started

    with ThreadPoolExecutor(len(started)) as pool:
        list(pool.map(lambda run: yard.run("train.stop", run), started.values()))


def test_a_run_names_who_holds_the_cpus_it_waits_for(yard: Yard, runs: dict[str, str]) -> None:
    wait_until(
        lambda: waiting(yard, runs["second"]) is not None,
        seconds=60,
        what="the second run says what it lacks",
    )
    text = f"2 tasks wait for 2 CPUs each: 6 of 6 CPUs in use, 6 by run {runs['holder']} (6 tasks)"
    assert waiting(yard, runs["second"]) == text
    assert yard.json("train.status", runs["second"])["waiting"]["holders"] == [runs["holder"]]
    assert text in yard.run("train.status", runs["second"]).stdout
    followed = yard.run("train.logs", runs["second"], "--no-follow", "--all").stdout
    assert followed.count(f"-- {text}\n") == 1


def test_memory_that_lacks_is_said_with_what_the_nodes_have(
    yard: Yard, runs: dict[str, str]
) -> None:
    text = (
        "1 task waits for 0.75 GiB: 2.25 of 3 GiB in use, 2.25 by this run (3 tasks), at most "
        "0.25 free on one node"
    )
    wait_until(lambda: waiting(yard, runs["memory"]) == text, seconds=60, what=text)


def test_the_status_of_a_cluster_shows_its_free_room_and_active_runs(
    yard: Yard, runs: dict[str, str]
) -> None:
    wait_until(
        lambda: waiting(yard, runs["memory"]) is not None,
        seconds=60,
        what="the memory run says what it lacks",
    )

    # Ray's own figures are some seconds late.
    wait_until(
        lambda: yard.json("cluster.status")["used"]["cpus"] == 6.0,
        seconds=30,
        what="Ray counts the tasks",
    )

    found = yard.json("cluster.status")
    gib = 2**30
    assert found["used"] == {"cpus": 6.0, "gpus": 0.0, "memory": round(2.25 * gib)}
    assert found["free"] == {"cpus": 0.0, "gpus": 4.0, "memory": round(0.75 * gib)}
    gpu_0 = next(node for node in found["nodes"] if node["name"] == "gpu-0")
    assert gpu_0["free"] == {"cpus": 0.0, "gpus": 2.0, "memory": round(0.25 * gib)}
    shown = {run["run"]: (run["job"], run["running"], run["waiting"]) for run in found["runs"]}
    assert shown == {
        runs["holder"]: ("holder", 6, 0),
        runs["second"]: ("second", 0, 2),
        runs["memory"]: ("memory", 3, 1),
    }

    printed = yard.run("cluster.status").stdout
    assert "0 CPUs, 2 GPUs, 256.0 MiB" in printed
    assert all(run in printed for run in runs.values())


def test_running_tasks_show_their_seconds(yard: Yard, runs: dict[str, str]) -> None:
    (task, *_) = yard.json("train.status", runs["holder"])["tasks"]
    (attempt,) = task["attempts"]
    assert task["state"] == "running" and attempt["seconds"] > 0 and attempt["exit_code"] is None
    row = next(
        line
        for line in yard.run("train.status", runs["holder"]).stdout.splitlines()
        if "n=0" in line
    )
    assert float(row.split()[4]) >= attempt["seconds"]


def test_a_task_that_never_ran_says_so(yard: Yard, runs: dict[str, str]) -> None:
    yard.run("train.stop", runs["second"])
    assert [task["reason"] for task in yard.json("train.status", runs["second"])["tasks"]] == [
        "never ran: the run was stopped",
        "never ran: the run was stopped",
    ]
    assert any(event["event"] == "waiting" for event in events(yard.results / runs["second"]))
