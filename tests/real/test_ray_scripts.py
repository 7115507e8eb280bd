"""Commands may connect to Ray; what they start on the cluster is like the task itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.real import matrix, ray_start
from tests.real.jobs import events, newest, write_job
from tests.real.yard import Yard, wait_until
from trainyard.seams.ray_api import RayApi

TOKEN = "b" * 64


@pytest.fixture
def token_in_environment() -> Iterator[str]:
    """Give the dashboard's address of a head whose token is only in a variable, as in pods."""
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with ray_start.head(Path(f"/tmp/pod-{os.getpid()}"), variables, cpus=2) as (address, _):
        yield address


def test_a_command_connects_where_nodes_have_their_token_in_a_variable(
    token_in_environment: str, fresh: Yard
) -> None:
    file = fresh.home / "token"
    file.write_text(TOKEN)
    existing = f"existing: {{{{address: '{token_in_environment}', token_file: '{file}'}}}}\n"
    fresh.write_cluster(f"name: {{name}}\nbackend: existing\n{existing}")
    program = """
        import os, ray
        assert "RAY_AUTH_TOKEN" not in os.environ
        ray.init()
        print("answered", ray.get(ray.remote(lambda: 7).remote()))
        """
    write_job(fresh, "connects", "command: [python, connect.py]\n", connect=program)
    fresh.run("train.dispatch", "connects", "--skip-smoke")
    assert "answered 7\n" in (newest(fresh) / "logs" / "connects.1.log").read_text()


def test_tasks_and_actors_of_a_command_are_as_under_ray_job_submit(yard: Yard) -> None:
    directory = matrix.write(yard, "uv")
    status = yard.json("train.dispatch", directory.name, "--skip-smoke", expect=1)
    assert status["tasks"][0]["attempts"][0]["exit_code"] == 3
    ours = matrix.found((newest(yard) / "logs" / f"{directory.name}.1.log").read_text())
    assert ours == matrix.everywhere(nodes=3)
    assert matrix.submitted(yard, directory) == ours


OWN = """
    import os, ray
    ray.init(runtime_env={"env_vars": {"OWN": "yes", "COLOUR": "blue"}})

    @ray.remote(num_cpus=0.1, scheduling_strategy="SPREAD")
    def found():
        import beside
        return beside.WORDS, os.environ["OWN"], os.environ["COLOUR"], os.environ["SHADE"]

    print("FOUND", set(ray.get([found.remote() for _ in range(6)])))
    """


def test_a_runtime_env_of_the_program_is_merged_over_that_of_the_job(yard: Yard) -> None:
    job = "command: [python, own.py]\nenv: {COLOUR: red, SHADE: dark}\n"
    write_job(yard, "own", job, own=OWN, beside="WORDS = 'beside'\n")
    yard.run("train.dispatch", "own", "--skip-smoke")
    assert (
        "FOUND {('beside', 'yes', 'blue', 'dark')}"
        in (newest(yard) / "logs" / "own.1.log").read_text()
    )


# Each attempt leaves two detached actors, one of them named, and a placement group.
KEEPS = """
    import os, sys, time
    import ray
    from ray.util.placement_group import placement_group

    @ray.remote(num_cpus=0.1)
    class Kept:
        def ready(self):
            return True

    ray.init()
    kept = [
        Kept.options(name="kept", namespace="mine", lifetime="detached").remote(),
        Kept.options(lifetime="detached").remote(),
        Kept.remote(),
    ]
    group = placement_group([{"CPU": 0.1}], lifetime="detached")
    ray.get([group.ready(), *(each.ready.remote() for each in kept)])
    print("has its actors", flush=True)
    if "WAITS" in os.environ:
        time.sleep(600)
    sys.exit(3 if os.environ["TRAINYARD_ATTEMPT"] == "1" else 0)
    """
LEFT = "2 detached actors and 1 detached placement group"


def runner_of(yard: Yard, run: str) -> psutil.Process:
    """Return the process of a run's runner; processes that end meanwhile are left out."""
    found = []
    for process in yard.processes():
        with suppress(psutil.Error):
            if run in process.cmdline():
                found.append(process)
    (runner,) = found
    return runner


def living(yard: Yard) -> int:
    """Return how many of the program's actors are alive in Ray."""
    with RayApi(yard.address(), yard.token()) as ray:
        rows = ray.living("actors", "DEAD", lambda answer: answer["data"]["result"]["result"])
    return sum(row["class_name"] == "Kept" for row in rows)


@pytest.mark.core
def test_nothing_that_an_attempt_kept_on_the_cluster_outlives_it(yard: Yard) -> None:
    write_job(
        yard,
        "keeps",
        "command: [python, keeps.py]\nresources: {cpus: 0.5}\nretries: 1\n",
        keeps=KEEPS,
    )
    yard.run("train.dispatch", "keeps", "--skip-smoke")
    notes = [event["text"] for event in events(newest(yard)) if event["event"] == "note"]
    assert notes == [f"keeps: attempt {attempt} left {LEFT}: removed" for attempt in (1, 2)]
    assert living(yard) == 0


def test_a_run_with_drivers_is_one_run_and_up_removes_its_leftovers(yard: Yard) -> None:
    write_job(yard, "killed", "command: [python, keeps.py]\nenv: {WAITS: '1'}\n", keeps=KEEPS)
    yard.run("train.dispatch", "killed", "--skip-smoke", "--no-wait")
    run = newest(yard).name
    wait_until(lambda: living(yard) == 3, seconds=120, what="its actors")
    assert [each["run"] for each in yard.json("cluster.status")["runs"]] == [run]
    refused = yard.run("cluster.down", expect=2).stderr
    assert "1 run is still active" in refused
    runner = runner_of(yard, run)
    runner.kill()
    wait_until(lambda: living(yard) == 2, seconds=60, what="the end of the driver")
    assert f"Remove what killed runs left: {LEFT} (done" in yard.run("cluster.up").stderr
    assert living(yard) == 0
    yard.run("train.logs", run, expect=6)
