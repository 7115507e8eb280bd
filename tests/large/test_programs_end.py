"""Programs that start much through Ray, ended in every way: they leave nothing on the cluster.

RLlib with five environment runners, Ray Train with three workers and a sweep of Ray Tune, none of
which would end by itself, on three nodes in containers with images/torch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.real.jobs import newest, write_job
from tests.real.yard import Yard, wait_until
from trainyard.seams.ray_api import RayApi

LAB = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 2, memory: 2GiB}}}}
workers:
  - {{{{name: cpu, count: 2, cpus: 4, memory: 3GiB}}}}
"""
RLLIB = """
    from ray.rllib.algorithms.ppo import PPOConfig

    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=5)
    algorithm = config.training(train_batch_size_per_learner=1000).build_algo()
    while True:
        algorithm.train()
        print("it trains", flush=True)
    """
TRAIN = """
    import time
    import ray.train
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    def train():
        while True:
            if ray.train.get_context().get_world_rank() == 0:
                print("it trains", flush=True)
            time.sleep(1)

    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=3)).fit()
    """
TUNE = """
    import time
    from ray import tune

    def trial(config):
        for step in range(100000):
            tune.report({"loss": config["x"] / (step + 1)})
            print("it trains", flush=True)
            time.sleep(1)

    space = {"x": tune.grid_search(list(range(6)))}
    tune.Tuner(trial, param_space=space, tune_config=tune.TuneConfig(max_concurrent_trials=4)).fit()
    """
PROGRAMS = {"rllib": (RLLIB, 5), "train": (TRAIN, 3), "tune": (TUNE, 4)}
# Needs all CPUs of the cluster: it would never start if one were still held.
NEXT = (
    "command: ['true']\nmatrix: {n: [0, 1, 2]}\nenv: {N: '{n}'}\ntogether: true\nresources: "
    "{cpus: 2}\n"
)


@pytest.fixture(scope="module")
def lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a head and two workers in containers, with images/torch."""
    images.ensure_torch(engine)
    made = Yard(
        tmp_path_factory.mktemp("programs"), cluster="programs-end", environ=engine.environ()
    )
    made.write_cluster(LAB.format(image=images.TORCH))
    with made.up():
        yield made


def started(lab: Yard, kind: str, more: str = "") -> str:
    """Start a program, wait until it trains, and return its run's name."""
    program, actors = PROGRAMS[kind]
    resources = f"{{cpus: 1, actors: {{cpus: {actors}}}}}"
    job = f"command: [python, program.py]\nresources: {resources}\n{more}"
    write_job(lab, kind, job, program=program)
    lab.run("train.dispatch", kind, "--no-wait", "--skip-smoke")
    run = newest(lab).name
    wait_until(lambda: "it trains" in printed(lab, run), seconds=300, what=f"{kind} trains")
    return run


def printed(lab: Yard, run: str) -> str:
    return lab.run("train.logs", run, "--all", "--no-follow").stdout


def assert_nothing_stays(lab: Yard) -> None:
    """Assert that no actor or placement group is left, and that a run on all CPUs succeeds."""
    with RayApi(lab.address(), lab.token()) as ray:
        for kind, dead in (("actors", "DEAD"), ("placement_groups", "REMOVED")):
            rows = ray.living(kind, dead, lambda answer: answer["data"]["result"]["result"])
            assert [
                row for row in rows if row.get("ray_namespace") != "SUPERVISOR_ACTOR_RAY_NAMESPACE"
            ] == []
    write_job(lab, "next", NEXT)
    lab.run("train.dispatch", "next", "--skip-smoke", seconds=120)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_is_stopped_leaves_nothing(lab: Yard, kind: str) -> None:
    run = started(lab, kind)
    lab.run("train.stop", run)
    assert lab.json("train.status", run)["state"] == "stopped"
    assert_nothing_stays(lab)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_runs_out_of_time_leaves_nothing(lab: Yard, kind: str) -> None:
    run = started(lab, kind, "timeout: 60s\n")
    lab.run("train.logs", run, expect=1)
    (task,) = lab.json("train.status", run)["tasks"]
    assert (task["state"], task["reason"]) == ("failed", "it ran longer than its timeout of 60 s")
    assert_nothing_stays(lab)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_whose_driver_is_killed_leaves_nothing_and_is_retried(
    lab: Yard, kind: str
) -> None:
    run = started(lab, kind, "retries: 1\n")
    node = lab.json("train.status", run)["tasks"][0]["attempts"][-1]["node"]
    lab.run("cluster.shell", node, "--command", "kill -9 $(pgrep -f '^python program.py')")
    wait_until(lambda: printed(lab, run).count("attempt 2 on") == 1, seconds=120, what="attempt 2")
    begun = printed(lab, run).partition("attempt 2 on")[0].count("it trains")
    wait_until(
        lambda: printed(lab, run).count("it trains") > begun, seconds=300, what="it trains again"
    )
    lab.run("train.stop", run)
    assert_nothing_stays(lab)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_loses_a_node_leaves_nothing(
    lab: Yard, engine: BedEngine, kind: str
) -> None:
    run = started(lab, kind, "retries: 1\n")
    node = lab.json("train.status", run)["tasks"][0]["attempts"][-1]["node"]
    other = next(name for name in ("cpu-0", "cpu-1") if name != node)
    container = f"trainyard-{lab.cluster}-{other}"
    engine.docker("kill", container)
    engine.docker("start", container)
    lab.run("cluster.up")
    lab.run("train.stop", run, expect=None)
    assert_nothing_stays(lab)
