"""The command line of train.py, which is that of `rllib train`."""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from numbers import Real
from typing import Any

# Keys that Ray 2.60 rejects or ignores, and their present names. `num_workers` is not listed: RLlib
# still reads it as num_env_runners.
RENAMED = {
    "custom_resources_per_worker": "custom_resources_per_env_runner",
    "evaluation_num_episodes": "evaluation_duration",
    "evaluation_num_workers": "evaluation_num_env_runners",
    "ignore_worker_failures": "ignore_env_runner_failures",
    "lr_schedule": "lr, which takes [[0, 0.001], [100000, 0.0001]]",
    "entropy_coeff_schedule": "entropy_coeff, which takes [[0, 0.01], [100000, 0.0]]",
    "metrics_smoothing_episodes": "metrics_num_episodes_for_smoothing",
    "min_iter_time_s": "min_time_s_per_iteration",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_gpus": "num_gpus_per_learner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "num_learner_workers": "num_learners",
    "num_rollout_workers": "num_env_runners",
    "num_sgd_iter": "num_epochs",
    "recreate_failed_workers": "restart_failed_env_runners",
    "sgd_minibatch_size": "minibatch_size",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "vf_share_layers": "model: {vf_share_layers}",
}
# Former names of results, which a --stop may still have, and their present ones.
RETURN = "env_runners/episode_return_mean"
STEPS = "num_env_steps_sampled_lifetime"
OLD_RESULTS = {"episode_reward_mean": RETURN, "timesteps_total": STEPS}


# Flags of `rllib train` that have no meaning here, and what to use instead.
_ROOM = (
    "the cluster is there, and its file says how large it is; resources.actors of the job is "
    "what this training gets"
)
_PLACES = (
    "curves are in $TRAINYARD_OUTPUT and checkpoints in $TRAINYARD_CHECKPOINT, which come home"
)
_SEARCH = "trainyard tune.dispatch searches and prunes: jobs/cartpole-tune"
_FILE = (
    "write the run, env, stop and config of its experiment behind --run, --env, --stop and --config"
)
ELSEWHERE = {
    "--ray-address": _ROOM,
    "--ray-num-cpus": _ROOM,
    "--ray-num-gpus": _ROOM,
    "--ray-num-nodes": _ROOM,
    "--ray-memory": _ROOM,
    "--ray-object-store-memory": _ROOM,
    "--local-dir": _PLACES,
    "--storage-path": _PLACES,
    "--upload-dir": _PLACES,
    "--experiment-name": "the run has the job's name",
    "--num-samples": "matrix: {repeat: [1, 2, 3]} makes a task of each",
    "--scheduler": _SEARCH,
    "--scheduler-config": _SEARCH,
    "--resume": "trainyard train.resume continues a run, and a retry its task",
    "--config-file": _FILE,
    "-f": _FILE,
}


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; --config and --stop become dictionaries.

    Exits with code 2, and a reason for each wrong flag, also for flags of ELSEWHERE.
    """
    parser = argparse.ArgumentParser(
        prog="train.py", description="Train with an algorithm of RLlib.", allow_abbrev=False
    )
    parser.add_argument("--run", default="PPO", help="PPO, DQN, SAC, ... (default: PPO)")
    parser.add_argument("--env", help="an environment of Gymnasium, or module.Class of the job")
    parser.add_argument(
        "--config", type=_object, default={}, metavar="JSON", help='{"num_env_runners": 5}'
    )

    parser.add_argument(
        "--stop",
        type=_object,
        default={"training_iteration": 100},
        metavar="JSON",
        help='{"training_iteration": 100}: what is reached first ends the training (default: that)',
    )

    parser.add_argument("--checkpoint-freq", type=int, default=1, help="iterations (default: 1)")
    parser.add_argument(
        "--restore", metavar="PATH", help="a checkpoint to begin with, where this task has none yet"
    )
    # Accepted without effect: the last iteration always has a checkpoint, and torch is the only
    # framework.
    parser.add_argument("--checkpoint-at-end", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--framework", choices=["torch"], help=argparse.SUPPRESS)
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)

    given, unknown = parser.parse_known_args(words)
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    if unknown and not flags:
        flags = unknown

    if flags:
        parser.error(
            "; ".join(
                f"{flag}: {ELSEWHERE.get(flag, 'train.py does not know it')}" for flag in flags
            )
        )

    return given


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises argparse.ArgumentTypeError for any other text."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object, such as {{}}")
    return found


def wrong(what: str, names: Collection[str], known: Collection[str]) -> list[str]:
    """Return a message for each of `names` that is not in `known`; `what` is "key" or the like."""
    found = []
    for name in names:
        if what == "key" and name in RENAMED:
            found.append(f"RLlib has no {name} any more: use {RENAMED[name]}")
        elif name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            found.append(f"RLlib has no {what} {name}{meant}")
    return found


def goals(stop: Mapping[str, float]) -> dict[str, float]:
    """Return the goals of --stop by the present names of results."""
    return {OLD_RESULTS.get(name, name): value for name, value in stop.items()}


def reached(stop: Mapping[str, float], result: Mapping[str, Any]) -> str | None:
    """Return the first goal that this result reaches, as "NAME VALUE"; None if none is reached.

    Raises KeyError for a goal that results do not have: the training would never end.
    """
    for name, goal in goals(stop).items():
        value = value_of(result, name)
        # Results of episodes are missing until the first episode has ended.
        if value is None and not name.startswith(("env_runners/", "evaluation/")):
            raise KeyError(name)
        if value is not None and value >= goal:
            return f"{name} {value:g}"
    return None


def value_of(result: Mapping[str, Any], name: str) -> float | None:
    """Return the number at a path such as a/b/c; None without one, or for NaN."""
    found: Any = result
    for part in name.split("/"):
        if isinstance(found, Mapping):
            found = found.get(part)
        else:
            found = None
    if isinstance(found, Real) and not math.isnan(found):
        return float(found)
    return None


def curves(result: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield values for curves: return and length of episodes, and learners' numbers."""
    for section, title in (("env_runners", "rollout"), ("evaluation", "eval")):
        of_episodes = result.get(section, {})
        of_episodes = of_episodes.get("env_runners", of_episodes)
        for name in ("return", "len"):
            value = value_of(of_episodes, f"episode_{name}_mean")
            if value is not None:
                yield f"{title}/{name}", value

    for module, said in result.get("learners", {}).items():
        if module != "__all_modules__" and isinstance(said, Mapping):
            if module == "default_policy":
                title = "train"
            else:
                title = f"train/{module}"
            for name in said:
                value = value_of(said, name)
                if value is not None and math.isfinite(value):
                    yield f"{title}/{name}", value
