"""Train with any algorithm of RLlib: this task learns, environment runners are on any nodes.

    python train.py --run PPO --env CartPole-v1 --config '{"num_env_runners": 2}' --stop '{"training_iteration": 100}'

Learning curves are TensorBoard files in TRAINYARD_OUTPUT. The next attempt continues from
TRAINYARD_CHECKPOINT.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import options
import ray
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.registry import ALGORITHMS
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import get_trainable_cls
from tensorboardX import SummaryWriter


def main() -> None:
    """Train until a goal of --stop is reached."""
    given = options.parse()
    config = configure(given)
    ray.init(log_to_driver=False)
    say(f"{given.run} starts {wanted(config)}: resources.actors leaves them room")
    train(given, config, Path(os.environ.get("TRAINYARD_CHECKPOINT", "checkpoint")).resolve())


def configure(given: argparse.Namespace) -> AlgorithmConfig:
    """Return RLlib's configuration; exit with one message for wrong names or values."""
    problems = options.wrong("algorithm", [given.run], ALGORITHMS)
    if problems:
        refuse(f"{problems[0]}; it has {', '.join(sorted(ALGORITHMS))}")

    config = get_trainable_cls(given.run).get_default_config()
    keys = dict(given.config)
    model = keys.pop("model", {})

    problems = [
        *options.wrong(
            "key", keys, {*config.to_dict(), *vars(config), *properties(config), "num_workers"}
        ),
        *options.wrong(
            "key of model", model, {field.name for field in dataclasses.fields(DefaultModelConfig)}
        ),
    ]
    if problems:
        refuse("; ".join(problems))

    config.environment(environment(given.env))
    config.update_from_dict(keys)
    if model:
        config.rl_module(model_config=model)

    try:
        config.validate()
    except (ValueError, TypeError) as error:
        refuse(str(error))

    return config


def properties(config: AlgorithmConfig) -> set[str]:
    """Return the keys that are properties with a setter, such as train_batch_size_per_learner."""
    found = inspect.getmembers(
        type(config), lambda value: isinstance(value, property) and value.fset is not None
    )
    return {name for name, _ in found}


def environment(name: str | None) -> str | type | None:
    """Return the environment for RLlib: the class of `module.Class`, or a name of Gymnasium.

    The module is a file of the job; env runners import it on their nodes. Exits with one message if
    there is no such environment.
    """
    if name is None:
        return None

    module, _, attribute = name.rpartition(".")
    try:
        if module and all(part.isidentifier() for part in name.split(".")):
            found: type = getattr(importlib.import_module(module), attribute)
            return found
        gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError, AttributeError) as error:
        refuse(f"--env={name}: {error}")
    return name


def refuse(message: str) -> NoReturn:
    print(f"train.py: error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def wanted(config: AlgorithmConfig) -> str:
    """Say how many actors RLlib starts, and their CPUs and GPUs together."""
    others = config.algo_class.default_resource_request(config.copy(copy_frozen=False)).bundles[1:]
    cpus, gpus = (sum(bundle.get(kind, 0) for bundle in others) for kind in ("CPU", "GPU"))
    return f"{len(others)} actors with {cpus:g} CPUs and {gpus:g} GPUs"


def train(given: argparse.Namespace, config: AlgorithmConfig, checkpoints: Path) -> None:
    """Train until a goal of --stop is reached, from the newest checkpoint or --restore."""
    algorithm = config.build_algo()
    if saved := sorted(checkpoints.glob("iteration-*[0-9]")):
        algorithm.restore_from_path(str(saved[-1]))
        say(f"continues after iteration {algorithm.iteration}")
    elif given.restore:
        algorithm.restore_from_path(str(Path(given.restore).resolve()))
        say(f"begins with {given.restore}, after iteration {algorithm.iteration}")

    end = None
    with SummaryWriter(os.environ.get("TRAINYARD_OUTPUT", "output")) as writer:
        while end is None:
            result = step(algorithm, writer)
            try:
                end = options.reached(given.stop, result)
            except KeyError as error:
                refuse(
                    f"no result is called {error.args[0]}; results have {', '.join(sorted(result))}"
                )
            if end or algorithm.iteration % given.checkpoint_freq == 0:
                save(algorithm, checkpoints)

    algorithm.stop()
    say(f"ends: {end}")


def step(algorithm: Any, writer: SummaryWriter) -> dict[str, Any]:
    """Train one iteration, write its curves, print a line, and return RLlib's result."""
    result: dict[str, Any] = algorithm.train()
    steps = int(result.get(options.STEPS, 0))
    for name, value in options.curves(result):
        writer.add_scalar(name, value, steps)
    writer.flush()

    mean = options.value_of(result, options.RETURN)
    if mean is None:
        shown = "no episode has ended"
    else:
        shown = f"return {mean:.1f}"
    say(f"iteration {algorithm.iteration:3d}   {steps:9,d} steps   {shown}")
    return result


def save(algorithm: Any, directory: Path) -> None:
    """Write a checkpoint, rename it once it is complete, and remove the former one."""
    before = list(directory.glob("iteration-*"))
    part = directory / "part"
    shutil.rmtree(part, ignore_errors=True)
    algorithm.save_to_path(str(part))
    part.rename(directory / f"iteration-{algorithm.iteration:05d}")
    for old in before:
        shutil.rmtree(old)


def say(line: str) -> None:
    """Print a line and flush: into a pipe, Python would buffer it."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
