"""Room for what tasks start through Ray: runs leave it free, and an error names a lack of it."""

from __future__ import annotations

from typing import Any

from tests.real.jobs import newest, write_job
from tests.real.yard import Yard, wait_until

SLEEP = "command: [sleep, '600']\nmatrix: {{n: {n}}}\nenv: {{N: '{{n}}'}}\nresources: {resources}\n"
# The cluster has six CPUs, of which the task itself holds one.
TOO_MANY = """
    import ray

    @ray.remote(num_cpus=1)
    class Runner:
        def ready(self):
            return True

    ray.init()
    runners = [Runner.remote() for _ in range(7)]
    ray.get([runner.ready.remote() for runner in runners])
    """


def start(yard: Yard, job: str, text: str, **programs: str) -> str:
    write_job(yard, job, text, **programs)
    yard.run("train.dispatch", job, "--no-wait", "--skip-smoke")
    return newest(yard).name


def status(yard: Yard, run: str) -> dict[str, Any]:
    found: dict[str, Any] = yard.json("train.status", run)
    return found


def states(yard: Yard, run: str) -> list[str]:
    return [task["state"] for task in status(yard, run)["tasks"]]


def test_room_for_actors_is_left_free_by_the_run_and_by_others(yard: Yard) -> None:
    resources = "{cpus: 1, actors: {cpus: 3}}"
    keeping = start(yard, "keeping", SLEEP.format(n=[0, 1], resources=resources))
    wait_until(
        lambda: states(yard, keeping) == ["running", "waiting"],
        seconds=60,
        what="the first task alone",
    )

    plain = start(yard, "plain", SLEEP.format(n=[0, 1, 2], resources="{cpus: 1}"))
    try:
        wait_until(
            lambda: status(yard, plain)["waiting"] is not None,
            seconds=60,
            what="the other run waits",
        )

        assert states(yard, plain) == ["running", "running", "waiting"]
        text = f"6 of 6 CPUs in use or kept free, 2 by this run, 4 by run {keeping}"
        assert status(yard, plain)["waiting"]["text"] == f"1 task waits for 1 CPU: {text}"
        assert status(yard, keeping)["kept_free"] == {"cpus": 3.0, "gpus": 0.0, "memory": 0}
        assert (
            "kept free for what tasks start through Ray: 3 CPUs"
            in yard.run("train.status", keeping).stdout
        )
        assert states(yard, keeping) == ["running", "waiting"]
    finally:
        yard.run("train.stop", keeping)

    wait_until(
        lambda: states(yard, plain) == ["running"] * 3, seconds=60, what="the room is free again"
    )
    yard.run("train.stop", plain)


def test_more_room_than_the_cluster_can_have_is_refused(yard: Yard) -> None:
    write_job(yard, "vast", "command: ['true']\nresources: {actors: {cpus: 6}}\n")
    refused = yard.run("train.dispatch", "vast", expect=2).stderr
    assert (
        "asks for 1 CPU, with 6 CPUs free for its actors; the cluster has 6 CPUs in all" in refused
    )


def test_a_command_whose_actors_have_no_room_is_named(yard: Yard) -> None:
    run = start(yard, "starves", "command: [python, starve.py]\n", starve=TOO_MANY)
    try:
        wait_until(
            lambda: status(yard, run)["waiting"] is not None, seconds=120, what="its run says so"
        )
        text = "pending in Ray for task starves: 2 requests for 1 CPU each; 0 of 6 CPUs free"
        assert status(yard, run)["waiting"]["text"] == text
    finally:
        yard.run("train.stop", run)
