"""The launcher of Schola 1.1 and later: the algorithm follows the flags on the command line.

Groups of dataclasses hold its settings. It has the functions, flags and defaults of the real
launcher and makes the same calls to Ray, so that the same versions of Ray reject them.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import ray
from ray import air, tune

_MODULES = {"PPO": "ppo", "APPO": "appo", "IMPALA": "impala"}
_NUMBERS: dict[str, float] = {
    "timesteps": 3000,
    "learning-rate": 0.0003,
    "minibatch-size": 128,
    "train-batch-size-per-learner": 256,
    "num-sgd-iter": 5,
    "gamma": 0.99,
    "num-gpus": 0,
    "num-cpus": 1,
    "num-learners": 0,
    "num-cpus-per-learner": 1,
    "num-gpus-per-learner": 0,
    "num-cpus-for-main-process": 1,
    "save-freq": 100000,
}


@dataclass
class RLlibScriptArgs:
    """The requested settings."""

    algorithm_settings: Any
    asked: Namespace


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="Launch Schola Examples with RLlib")
    parser.add_argument("-t", dest="timesteps", type=int)
    parser.add_argument("-p", "--port", type=int)

    for flag, default in _NUMBERS.items():
        parser.add_argument(f"--{flag}", type=type(default), default=default)

    for flag in (
        "enable-checkpoints",
        "save-final-policy",
        "launch-unreal",
        "headless",
        "using-cluster",
    ):
        parser.add_argument(f"--{flag}", action="store_true")

    parser.add_argument("--checkpoint-dir", default="./ckpt")
    parser.add_argument("--activation", default="relu")
    algorithms = parser.add_subparsers(required=True, dest="algorithm")

    for name in _MODULES:
        algorithms.add_parser(name)

    return parser


def main_from_cli() -> Any:
    asked = make_parser().parse_args()
    module = import_module(f"ray.rllib.algorithms.{_MODULES[asked.algorithm]}")
    made = getattr(module, f"{asked.algorithm}Config")
    settings = SimpleNamespace(name=asked.algorithm, rllib_config=made)
    return main(RLlibScriptArgs(settings, asked))


def main(args: RLlibScriptArgs) -> Any:
    """Train with the given settings, on the cluster's Ray or on a new local one."""
    asked = args.asked
    ray.init(
        **({} if asked.using_cluster else {"num_cpus": asked.num_cpus, "num_gpus": asked.num_gpus})
    )

    config = (
        args.algorithm_settings.rllib_config()
        .api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
        .environment("schola_env", clip_rewards=False, clip_actions=True, normalize_actions=False)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .resources(
            num_cpus_for_main_process=asked.num_cpus_for_main_process, num_gpus=asked.num_gpus
        )
        .learners(
            num_learners=asked.num_learners,
            num_cpus_per_learner=asked.num_cpus_per_learner,
            num_gpus_per_learner=asked.num_gpus_per_learner,
        )
        .training(
            lr=asked.learning_rate,
            gamma=asked.gamma,
            num_sgd_iter=asked.num_sgd_iter,
            train_batch_size_per_learner=asked.train_batch_size_per_learner,
            minibatch_size=asked.minibatch_size,
        )
    )
    try:
        return tune.run(
            args.algorithm_settings.name,
            config=config,
            stop={"timesteps_total": asked.timesteps},
            checkpoint_config=air.CheckpointConfig(checkpoint_at_end=asked.save_final_policy),
            storage_path=asked.checkpoint_dir,
        )
    finally:
        ray.shutdown()
