"""The jobs that train with RLlib and PyTorch: their parameters, and the room that they ask for."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from trainyard.spec.load import load_job

JOBS = Path(__file__).parents[2] / "jobs"
ALGORITHMS = {"APPO", "DQN", "PPO"}
KEYS = {"lr", "num_env_runners", "num_gpus_per_learner"}


@pytest.fixture(scope="module")
def options() -> ModuleType:
    """Load what jobs/rllib/train.py reads its command line with, as the file that it is."""
    spec = importlib.util.spec_from_file_location("rllib_options", JOBS / "rllib" / "options.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_words_of_rllib_train_are_taken(options: ModuleType) -> None:
    given = options.parse(
        ["--run", "DQN", "--env", "CartPole-v1", "--config", '{"num_env_runners": 5}']
    )
    assert (given.run, given.env, given.config) == ("DQN", "CartPole-v1", {"num_env_runners": 5})
    assert given.stop == {"training_iteration": 100}


def test_flags_of_rllib_train_that_mean_nothing_here_are_answered_together(
    options: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--run PPO --ray-num-cpus 4 --local-dir=/tmp/x -f tuned.yaml --num-samples 3 "
        "--checkpoint-at-end --colour"
    )

    with pytest.raises(SystemExit) as ended:
        options.parse(words.split())

    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1].removeprefix("train.py: error: ").split("; ")
    assert [reason.partition(":")[0] for reason in said if reason.startswith("-")] == [
        "--ray-num-cpus",
        "--local-dir",
        "-f",
        "--num-samples",
        "--colour",
    ]

    assert said[-1] == "--colour: train.py does not know it"
    words = "--checkpoint-at-end --framework torch --torch --restore /mnt/a --checkpoint-freq 5"
    given = options.parse(words.split())
    assert (given.restore, given.checkpoint_freq) == ("/mnt/a", 5)


@pytest.mark.parametrize("text", ["{lr: 1}", "[1]", "5"])
def test_a_config_that_is_no_json_object_is_one_error(
    text: str, options: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["--config", text])
    assert ended.value.code == 2
    assert f"argument --config: {text} is no JSON" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "name", "known", "said"),
    [
        ("algorithm", "PPOO", ALGORITHMS, "RLlib has no algorithm PPOO (did you mean PPO?)"),
        ("algorithm", "A2C-like", ALGORITHMS, "RLlib has no algorithm A2C-like"),
        ("key", "lrr", KEYS, "RLlib has no key lrr (did you mean lr?)"),
        ("key", "num_gpus", KEYS, "RLlib has no num_gpus any more: use num_gpus_per_learner"),
        # RLlib still has this one among its keys, and does nothing with it.
        (
            "key",
            "num_sgd_iter",
            {"num_sgd_iter"},
            "RLlib has no num_sgd_iter any more: use num_epochs",
        ),
    ],
)
def test_a_name_unknown_to_rllib_is_said_with_the_one_that_was_meant(
    what: str, name: str, known: set[str], said: str, options: ModuleType
) -> None:
    assert options.wrong(what, [name], known) == [said]


def test_names_that_rllib_knows_are_right(options: ModuleType) -> None:
    assert options.wrong("key", KEYS, KEYS) == []


RESULT = {
    "training_iteration": 3,
    "num_env_steps_sampled_lifetime": 900,
    "env_runners": {"episode_return_mean": 21.5, "episode_len_mean": 21.5},
    "evaluation": {"env_runners": {"episode_return_mean": 30.0}},
    "learners": {
        "__all_modules__": {"learner_steps": 1},
        "default_policy": {"entropy": 0.5, "loss": float("nan"), "optimizer": "adam"},
        "other": {"entropy": 0.25},
    },
}


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ({"training_iteration": 3}, "training_iteration 3"),
        ({"training_iteration": 4}, None),
        (
            {"training_iteration": 4, "episode_reward_mean": 20},
            "env_runners/episode_return_mean 21.5",
        ),
        ({"timesteps_total": 900}, "num_env_steps_sampled_lifetime 900"),
        # No episode has ended: that comes.
        ({"env_runners/not_yet": 1}, None),
    ],
)
def test_the_goal_that_is_reached_first_ends_the_training(
    stop: dict[str, float], end: str | None, options: ModuleType
) -> None:
    assert options.reached(stop, RESULT) == end


def test_a_goal_that_no_result_has_is_not_waited_for(options: ModuleType) -> None:
    with pytest.raises(KeyError, match="training_iterations"):
        options.reached({"training_iterations": 3}, RESULT)


def test_curves_are_the_episodes_and_what_each_learner_says(options: ModuleType) -> None:
    assert dict(options.curves(RESULT)) == {
        "rollout/return": 21.5,
        "rollout/len": 21.5,
        "eval/return": 30.0,
        "train/entropy": 0.5,
        "train/other/entropy": 0.25,
    }


@pytest.mark.parametrize(
    ("name", "key"), [("rllib", "env_runners"), ("torch-train", "workers"), ("ray-tune", "trials")]
)
def test_a_job_leaves_as_many_cpus_free_as_it_starts_actors(name: str, key: str) -> None:
    job = load_job(JOBS / name)
    assert job.resources.actors
    assert list(map(str, job.matrix[key])) == [f"{job.resources.actors.cpus:g}"]
