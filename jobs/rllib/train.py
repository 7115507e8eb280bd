"""PPO on CartPole-v1 with RLlib, its environment runners spread over the cluster; this task is the learner.

Learning curves are TensorBoard files in TRAINYARD_OUTPUT. A later attempt goes on from TRAINYARD_CHECKPOINT.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from pathlib import Path
from typing import Any

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from tensorboardX import SummaryWriter

ENVIRONMENT = "CartPole-v1"


def main() -> None:
    """Train until the return is good enough, or the iterations are used up."""
    options = parse()
    checkpoints = Path(os.environ.get("TRAINYARD_CHECKPOINT", "checkpoint")).resolve()
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    algorithm = (
        PPOConfig()
        .environment(ENVIRONMENT)
        .env_runners(num_env_runners=options.env_runners)
        .learners(num_learners=0, num_gpus_per_learner=1 if options.gpu else 0)
        .training(lr=options.lr)
        .debugging(seed=options.seed)
        .build_algo()
    )
    if saved := sorted(checkpoints.glob("iteration-*[0-9]")):
        algorithm.restore_from_path(str(saved[-1]))
        print(f"continues after iteration {algorithm.iteration}", flush=True)
    mean = 0.0
    with SummaryWriter(os.environ.get("TRAINYARD_OUTPUT", "output")) as writer:
        while algorithm.iteration < options.iterations and mean < options.enough:
            mean = step(algorithm, writer)
            save(algorithm, checkpoints)
    algorithm.stop()
    print(f"{'solved' if mean >= options.enough else 'not solved'}: mean return {mean:.1f}", flush=True)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env-runners", type=int, default=2, help="processes that play, one CPU each (default: 2)")
    parser.add_argument("--iterations", type=int, default=60, help="at most so many (default: 60)")
    parser.add_argument("--enough", type=float, default=450.0, help="mean return at which it ends (default: 450)")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", action="store_true", help="learn on the task's GPU")
    return parser.parse_args()


def step(algorithm: Any, writer: SummaryWriter) -> float:
    """Train one iteration, write what is worth plotting, and return the mean return of recent episodes."""
    result = algorithm.train()
    steps = int(result["num_env_steps_sampled_lifetime"])
    mean = float(result["env_runners"]["episode_return_mean"])
    writer.add_scalar("rollout/return", mean, steps)
    for name, value in result["learners"]["default_policy"].items():
        if isinstance(value, float) and math.isfinite(value):
            writer.add_scalar(f"train/{name}", value, steps)
    writer.flush()
    print(f"iteration {algorithm.iteration:3d}   {steps:9,d} steps   return {mean:5.1f}", flush=True)
    return mean


def save(algorithm: Any, directory: Path) -> None:
    """Write a checkpoint under its name once it is whole, and remove the one before it."""
    before = list(directory.glob("iteration-*"))
    part = directory / "part"
    shutil.rmtree(part, ignore_errors=True)
    algorithm.save_to_path(str(part))
    part.rename(directory / f"iteration-{algorithm.iteration:05d}")
    for old in before:
        shutil.rmtree(old)


if __name__ == "__main__":
    main()
