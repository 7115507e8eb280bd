"""The examples train for about a minute each on two nodes without a shared disk, and resume.

The nodes of jobs/torch-*, jobs/lightning and jobs/rllib run images/torch, with the torch of the
index that pip uses here and all that torch brings of CUDA: 6.9 GB. The image is built once, as the
bed's other images are, before a test's time limit begins. jobs/ado is in test_ado.py.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.large.shipped import dispatched, flags, log, loses_a_node, resumed, stopped
from tests.real.jobs import newest
from tests.real.yard import Yard
from trainyard.results.scalars import read_directory

LAB = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 2, memory: 2GiB}}}}
workers:
  - {{{{name: cpu, count: 1, cpus: 2, memory: 2GiB}}}}
# As the bed's images have them: where a proxy stands before the package registries, uv has to know its CA.
env: {{{{SSL_CERT_FILE: {trust}}}}}
"""
JOBS = Path(__file__).parents[2] / "jobs"
GOOD = 0.95
EPOCHS = 40
# The commands of job.yaml, with more epochs.
TORCHRUN = "command=[bash, torchrun.sh, train.py, --epochs, '{epochs}']"
TORCH_TRAIN = "command=[python, train.py, --workers, '{{workers}}', --epochs, '{epochs}']"
RLLIB = "command=[python, train.py, --run={run}, --env={env}, '--config={config}', '--stop={stop}']"


@pytest.fixture(scope="module")
def torch_lab(engine: BedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Give a head and a worker in containers, with images/torch."""
    images.ensure_torch(engine)
    yield from made(engine, tmp_path_factory.mktemp("torch"), "examples-torch", images.TORCH)


def made(engine: BedEngine, home: Path, name: str, image: str) -> Iterator[Yard]:
    lab = Yard(home, cluster=name, environ=engine.environ())
    lab.write_cluster(LAB.format(image=image, trust=images.HOST_CA))
    with lab.up():
        yield lab


def result(run: Path) -> dict[str, Any]:
    """Return the result that exactly one task of a run has written."""
    (path,) = run.glob("outputs/*/result.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def epochs(run: Path) -> list[int]:
    """Return the epochs whose end a run has printed."""
    return [int(number) for number in re.findall(r"epoch +(\d+) ", log(run))]


def nodes(lab: Yard, run: Path) -> set[str]:
    """Return the nodes on which the last attempts of a run's tasks ran."""
    return {task["attempts"][-1]["node"] for task in lab.json("train.status", run.name)["tasks"]}


def curve(run: Path, tag: str) -> list[tuple[float, float]]:
    """Return the points (step, value) of a curve, which exactly one task must have."""
    found = [
        curves[tag]
        for task in run.glob("outputs/*")
        for curves in read_directory(task, points=10_000, tags=100).values()
        if tag in curves
    ]
    assert len(found) == 1, f"{len(found)} tasks have {tag}"
    return [(step, value) for step, value, _ in found[0].points()]


@pytest.mark.parametrize("job", ["torch-ddp", "lightning"])
def test_torchrun_trains_on_two_nodes_and_continues(job: str, torch_lab: Yard) -> None:
    settings = (TORCHRUN.format(epochs=EPOCHS), "resources={share: 1}")
    first = stopped(torch_lab, job, *settings, at=r"epoch +5 ")
    assert nodes(torch_lab, first) == {"head", "cpu-0"}

    again = resumed(torch_lab, first)
    assert nodes(torch_lab, again) == {"head", "cpu-0"}
    assert result(again)["device"] == "cpu"
    assert result(again)["accuracy"] > GOOD
    # Training begins after the last checkpoint of the stopped run.
    trained = epochs(again)
    assert 2 <= trained[0] <= 1 + epochs(first)[-1]
    assert trained == list(range(trained[0], EPOCHS + 1))
    losses = curve(again, "train/loss")
    assert losses[0][1] > 3 * losses[-1][1]


def test_ray_train_trains_with_workers_on_two_nodes_and_continues(torch_lab: Yard) -> None:
    # Ray Train records a checkpoint some seconds after its workers made it: wait for the next
    # epoch.
    two = r"(?s)epoch +(\d+) .*epoch +(?!\1 )\d+ "
    first = stopped(torch_lab, "torch-train", TORCH_TRAIN.format(epochs=EPOCHS), at=two)
    again = resumed(torch_lab, first)
    after = [
        int(number) for number in re.findall(r"computes on cpu, after epoch (\d+)", log(again))
    ]
    # Ray prints equal lines of two workers, which differ only in a number, once.
    assert len(set(after)) == 1
    assert after[0] >= 1
    assert result(again)["epoch"] == EPOCHS
    assert result(again)["eval/accuracy"] > GOOD
    losses = curve(again, "train/loss")
    assert losses[0][1] > 3 * losses[-1][1]
    # Ray Train's own records and checkpoints came home too.
    assert list(again.glob("checkpoints/*/spirals/checkpoint_*/state.pt"))


def test_ray_tune_searches_with_trials_on_two_nodes_and_continues(torch_lab: Yard) -> None:
    settings = "command=[python, train.py, --samples, '4', --at-once, '{trials}', --epochs, '12']"
    first = stopped(torch_lab, "ray-tune", settings, at=r"epoch +4 ")
    again = resumed(torch_lab, first)
    assert "continues the search" in log(again)
    assert result(again)["accuracy"] > 0.6
    # Trials continue after their last checkpoint, and each has its curves.
    before, after = (set(re.findall(r"trial (\S+) epoch", log(run))) for run in (first, again))
    assert before & after
    (written,) = again.glob("outputs/*/result.json")
    curves = read_directory(written.parent, points=100, tags=10)
    assert set(curves) == before | after
    assert all({"loss", "accuracy"} <= set(tags) for tags in curves.values())


def test_rllib_trains_with_runners_on_two_nodes_and_continues(torch_lab: Yard) -> None:
    first = stopped(torch_lab, "rllib", "runtime_env={}", at=r"iteration +2 ")
    assert "PPO starts 2 actors with 2 CPUs and 0 GPUs: resources.actors leaves them room" in log(
        first
    )
    again = dispatched_again(torch_lab, first)
    assert re.search(r"continues after iteration [1-9]", log(again))
    returns = curve(again, "rollout/return")
    assert returns[-1][1] > 2 * returns[0][1]
    assert list(again.glob("checkpoints/*/iteration-*/rllib_checkpoint.json"))


@pytest.mark.parametrize("job", ["torch-ddp", "lightning"])
def test_torchrun_continues_after_a_lost_node(job: str, torch_lab: Yard, engine: BedEngine) -> None:
    settings = (TORCHRUN.format(epochs=EPOCHS), "resources={share: 1}")
    run = loses_a_node(torch_lab, engine, job, *settings, at=r"epoch +5 ")
    assert result(run)["accuracy"] > GOOD
    second = "".join(path.read_text() for path in run.glob("logs/*.2.log"))
    trained = [int(number) for number in re.findall(r"epoch +(\d+) ", second)]
    assert 2 <= trained[0] <= EPOCHS
    assert trained == list(range(trained[0], EPOCHS + 1))


def test_ray_train_continues_after_a_lost_node(torch_lab: Yard, engine: BedEngine) -> None:
    two = r"(?s)epoch +(\d+) .*epoch +(?!\1 )\d+ "
    run = loses_a_node(torch_lab, engine, "torch-train", TORCH_TRAIN.format(epochs=EPOCHS), at=two)
    assert result(run)["epoch"] == EPOCHS
    assert result(run)["eval/accuracy"] > GOOD
    assert re.search(r"computes on cpu, after epoch [1-9]", log(run))


def test_ray_tune_continues_after_a_lost_node(torch_lab: Yard, engine: BedEngine) -> None:
    settings = "command=[python, train.py, --samples, '4', --at-once, '{trials}', --epochs, '12']"
    run = loses_a_node(torch_lab, engine, "ray-tune", settings, at=r"epoch +4 ")
    assert result(run)["accuracy"] > 0.6


def dispatched_again(lab: Yard, run: Path) -> Path:
    """Resume a training of RLlib, now with an end at iteration 8; return the new run."""
    stop = rllib(
        run="PPO",
        env="CartPole-v1",
        config='{"num_env_runners": RUNNERS}',
        stop='{"training_iteration": 8}',
    )
    lab.run(
        "train.resume", run.name, "--set", stop.replace("RUNNERS", "{env_runners}"), seconds=1200
    )
    return newest(lab)


def rllib(**words: str) -> str:
    """Return the command of jobs/rllib as a --set; a job's command doubles each brace."""
    doubled = {name: word.replace("{", "{{").replace("}", "}}") for name, word in words.items()}
    return RLLIB.format(**doubled)


@pytest.mark.parametrize(
    ("run", "env", "config"),
    [
        ("DQN", "CartPole-v1", '{"num_env_runners": 2, "model": {"fcnet_hiddens": [32]}}'),
        ("SAC", "Pendulum-v1", '{"num_env_runners": 1}'),
        ("IMPALA", "CartPole-v1", '{"num_workers": 1}'),
    ],
)
def test_rllib_takes_any_algorithm_environment_and_config(
    run: str, env: str, config: str, torch_lab: Yard
) -> None:
    command = rllib(run=run, env=env, config=config, stop='{"training_iteration": 3}')
    ended = dispatched(torch_lab, "rllib", command, "matrix={}", "runtime_env={}")
    assert "ends: training_iteration 3" in log(ended)


@pytest.mark.parametrize(
    ("run", "env", "config", "said"),
    [
        (
            "PPOO",
            "CartPole-v1",
            "{}",
            "RLlib has no algorithm PPOO (did you mean PPO?); it has APPO, BC, ",
        ),
        (
            "PPO",
            "CartPole-v9",
            "{}",
            "--env=CartPole-v9: Environment version `v9` for environment `CartPole` doesn't exist",
        ),
        (
            "PPO",
            "CartPole-v1",
            '{"num_gpus": 1}',
            "RLlib has no num_gpus any more: use num_gpus_per_learner",
        ),
        ("PPO", "CartPole-v1", '{"lrr": 1}', "RLlib has no key lrr (did you mean lr?)"),
        ("PPO", "no_env.Mine", "{}", "--env=no_env.Mine: No module named 'no_env'"),
    ],
)
def test_an_unknown_rllib_argument_is_one_error_without_a_retry(
    run: str, env: str, config: str, said: str, torch_lab: Yard
) -> None:
    command = rllib(run=run, env=env, config=config, stop="{}")
    ended = dispatched(torch_lab, "rllib", command, "matrix={}", "runtime_env={}", expect=1)
    assert f"train.py: error: {said}" in log(ended)
    # The error would be the same at a retry: there is one attempt.
    assert [path.name for path in ended.glob("logs/*.log")] == ["rllib.1.log"]
    assert "Traceback" not in log(ended)


OWN_ENV = """
import gymnasium, numpy, socket

class Steps(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config=None):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        self.steps += 1
        return numpy.zeros(2, numpy.float32), float(action), self.steps >= 20, False, {}
"""


def test_rllib_trains_in_an_environment_of_the_jobs_own_on_every_node(torch_lab: Yard) -> None:
    job = torch_lab.home / "jobs" / "mine"
    shutil.copytree(JOBS / "rllib", job)
    (job / "my_env.py").write_text(OWN_ENV)
    config = '{"num_env_runners": 3, "train_batch_size_per_learner": 300}'
    command = rllib(run="PPO", env="my_env.Steps", config=config, stop='{"training_iteration": 3}')
    more = ("matrix={}", "runtime_env={}", "resources.actors.cpus=3")
    torch_lab.run("train.dispatch", str(job), *flags((command, *more)), seconds=1200)
    assert "ends: training_iteration 3" in log(newest(torch_lab))


PLAIN = """
name: {name}
backend: local
head: {{cpus: 1}}
workers: [{{name: cpu, count: 1, cpus: 2}}]
"""


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Yard]:
    """Give nodes of this machine that have neither torch nor the other imports of RLlib."""
    yard = Yard(tmp_path, cluster="plain")
    yard.write_cluster(PLAIN)
    with yard.up():
        yield yard


def test_rllib_as_shipped_runs_with_what_ray_installs(plain: Yard) -> None:
    trains_as_shipped(plain)


def test_rllib_as_shipped_runs_on_two_nodes_with_what_ray_installs(
    fresh: Yard, engine: BedEngine
) -> None:
    fresh.environ.update(engine.environ())
    fresh.write_cluster(LAB.format(image=images.RAY, trust=images.HOST_CA))
    with fresh.up():
        trains_as_shipped(fresh)


def trains_as_shipped(lab: Yard) -> None:
    """Run jobs/rllib with its own runtime_env, and look for what the run said while it waited."""
    ended = dispatched(lab, "rllib", "timeout=20m")
    assert "ends: " in log(ended)
    shown = (ended / "events.jsonl").read_text()
    assert (
        "waits for Ray, which first installs torch, gymnasium==1.2.2, dm_tree, lz4 and 6 more "
        "where a node lacks them"
    ) in shown
