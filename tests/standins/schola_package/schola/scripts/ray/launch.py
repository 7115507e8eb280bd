"""Schola's launcher for RLlib: `main` trains, and `main_from_cli` calls it with parsed flags.

It makes the same calls to Ray as the real 1.0.0, by method and name, so that the same versions of
Ray reject them.
"""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from ray import air, tune
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.policy.policy import PolicySpec
from ray.tune.registry import register_env

from schola.core.env import ScholaEnv
from schola.core.unreal_connections import StandaloneUnrealConnection, UnrealEditorConnection


@dataclass
class RLlibArgs:
    """The requested settings."""

    timesteps: int = 3000
    n_steps: int = 2048
    learning_rate: float = 0.0003
    mini_batch_size: int = 256
    fcnet_hiddens: list[int] = field(default_factory=lambda: [512, 512])
    enable_checkpoints: bool = False
    checkpoint_dir: str = "./ckpt"
    save_freq: int = 100000
    save_final_policy: bool = False
    resume_from: str | None = None
    num_cpus: int | None = None
    num_gpus: int | None = None
    num_learners: int | None = None
    num_cpus_per_learner: int = 1
    num_gpus_per_learner: int = 0
    num_cpus_for_main_process: int | None = None
    launch_unreal: bool = False
    unreal_path: str | None = None
    headless: bool = False
    port: int | None = None
    map: str | None = None
    fps: int | None = None
    disable_script: bool = False

    def make_unreal_connection(self) -> Any:
        if not self.launch_unreal:
            return UnrealEditorConnection("localhost", self.port)
        return StandaloneUnrealConnection(
            "localhost",
            str(self.unreal_path),
            self.headless,
            port=self.port,
            map=self.map,
            set_fps=self.fps,
            disable_script=self.disable_script,
        )


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="Launch Schola Examples with RLlib")
    parser.add_argument("-t", "--timesteps", type=int, default=3000)
    parser.add_argument("--fcnet-hiddens", nargs="+", type=int, default=[512, 512])
    parser.add_argument("--learning-rate", type=float, default=0.0003)
    parser.add_argument("--checkpoint-dir", default="./ckpt")
    parser.add_argument("-p", "--port", type=int)

    for name in (
        "enable-checkpoints",
        "save-final-policy",
        "launch-unreal",
        "headless",
        "disable-script",
    ):
        parser.add_argument(f"--{name}", action="store_true")

    for name in ("resume-from", "unreal-path", "map"):
        parser.add_argument(f"--{name}")

    for name, default in (("n-steps", 2048), ("mini-batch-size", 256), ("save-freq", 100000)):
        parser.add_argument(f"--{name}", type=int, default=default)

    for name in ("num-gpus", "num-cpus", "num-learners", "num-cpus-for-main-process", "fps"):
        parser.add_argument(f"--{name}", type=int)

    for name, default in (("num-cpus-per-learner", 1), ("num-gpus-per-learner", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)

    return parser


def main_from_cli() -> Any:
    return main(RLlibArgs(**vars(make_parser().parse_args())))


def main(args: RLlibArgs) -> Any:
    """Ask the game for its agents, then train; these agents, unlike Schola's, do not play."""
    game = ScholaEnv(args.make_unreal_connection(), verbosity=0)
    names = game.agent_display_names[0]
    game.close()
    ray.init(num_cpus=args.num_cpus)
    register_env("schola_env", lambda env_config: ScholaEnv(args.make_unreal_connection()))

    config = (
        PPOConfig()
        .environment("schola_env", clip_rewards=False, clip_actions=True)
        .framework("torch")
        .env_runners(num_env_runners=0, rollout_fragment_length=200)
        .multi_agent(
            policies={
                name: PolicySpec(observation_space=None, action_space=None)
                for name in set(names.values())
            },
            policy_mapping_fn=lambda agent_id, *given, **named: names[agent_id],
            policies_to_train=None,
        )
        .resources(num_gpus=args.num_gpus, num_cpus_for_main_process=args.num_cpus_for_main_process)
        .learners(
            num_learners=args.num_learners,
            num_cpus_per_learner=args.num_cpus_per_learner,
            num_gpus_per_learner=args.num_gpus_per_learner,
        )
        .training(
            lr=args.learning_rate,
            lambda_=0.95,
            gamma=0.99,
            sgd_minibatch_size=args.mini_batch_size,
            train_batch_size=args.n_steps,
            num_sgd_iter=5,
            clip_param=0.2,
            model={
                "fcnet_hiddens": args.fcnet_hiddens,
                "fcnet_activation": torch.nn.ReLU,
                "free_log_std": False,
            },
        )
    )
    try:
        results = tune.run(
            "PPO",
            config=config,
            stop={"timesteps_total": args.timesteps},
            checkpoint_config=air.CheckpointConfig(
                checkpoint_frequency=args.save_freq if args.enable_checkpoints else 0,
                checkpoint_at_end=args.save_final_policy,
            ),
            restore=args.resume_from,
            verbose=1,
            storage_path=args.checkpoint_dir,
        )

        print(
            f"Training complete: {args.timesteps} steps, Ray {ray.__version__}, "
            f"{args.checkpoint_dir}"
        )
    finally:
        ray.shutdown()

    return results
