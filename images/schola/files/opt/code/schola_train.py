"""Run Schola 1.0.0's own launcher for RLlib on the Ray of this image; see schola_launcher.py.

The launcher was written for Ray 2.35. This module translates the names and calls that newer Rays
changed, and changes nothing of Schola. RLlib and Schola are installed on every node; the classes
and functions of this module reach the nodes' processes by cloudpickle.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from ray import tune
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from schola.core.unreal_connections import StandaloneUnrealConnection
from schola.scripts.ray import launch
from schola_place import checkpoints, this_node

# Names that Ray 2.40 removed or warns of, and their present names.
NEW_NAMES = {"sgd_minibatch_size": "minibatch_size", "num_sgd_iter": "num_epochs"}

OWN_RAY = "--num-cpus starts a Ray of its own and fails on a cluster; use resources: in job.yaml"
NO_LEARNERS = (
    "--num-learners does nothing: RLlib has separate learners only for its newer kind of "
    "environments, and Schola's are of the older kind. --num-env-runners plays in several processes"
)
ONE_PORT = "several env runners have a game each, and cannot share a port; leave --port out"

# A packaged game is a script that starts the game; killing the script does not end the game.
# Therefore both are one process group, which is killed when the process that plays ($0) has ended.
WITH_ITS_PLAYER = """
game=$$
{
    while kill -0 "$0" && kill -0 "$game"; do sleep 1; done
    kill -KILL -- "-$game"
} > /dev/null 2>&1 &
exec "$@"
"""


def main() -> None:
    """Train; with --check, only check that a training could begin."""
    given = vars(parser().parse_args())
    env_runners = given.pop("num_env_runners")
    checks = given.pop("check")

    if wrong := refusal(given, env_runners):
        print(f"schola-train: {wrong}", file=sys.stderr)
        sys.exit(2)

    if given["num_learners"]:
        print(f"schola-train: {NO_LEARNERS}", file=sys.stderr)

    asked = Arguments(**given)
    launch.PPOConfig = lambda: Configuration(env_runners, room=dict if checks else on_this_node)
    launch.tune = SimpleNamespace(run=checked if checks else trained)

    if checks:
        asked.make_unreal_connection = lambda: None
        launch.ScholaEnv = NoGame
        launch.ray = SimpleNamespace(init=lambda **how: None, shutdown=lambda: None)

    launch.main(asked)


def parser() -> argparse.ArgumentParser:
    """Return the launcher's parser, with this program's own flags."""
    made = launch.make_parser()
    made.prog = "schola-train"
    ours = made.add_argument_group("Trainyard")

    ours.add_argument(
        "--num-env-runners",
        type=int,
        default=0,
        help="processes that play, each a game of its own (default: the learner plays)",
    )

    ours.add_argument(
        "--check",
        action="store_true",
        help="only check that a training could begin, without a game and a cluster",
    )

    if directory := checkpoints():
        made.set_defaults(checkpoint_dir=directory)

    return made


def refusal(given: dict[str, Any], env_runners: int) -> str:
    """Return why the flags cannot work on a cluster; "" if they can."""
    if given["num_cpus"]:
        return OWN_RAY
    if given["port"] and env_runners > 1:
        return ONE_PORT
    return ""


class Configuration:
    """Takes the place of PPOConfig in the launcher; passes calls on with this Ray's names."""

    def __init__(self, env_runners: int, *, room: Callable[[], dict[str, Any]]) -> None:
        # Schola's environment is a BaseEnv of RLlib, which RLlib's newer API rejects.
        older = {"enable_rl_module_and_learner": False, "enable_env_runner_and_connector_v2": False}
        self.made = PPOConfig().api_stack(**older)
        # Ray gives only one thread to a process without CPUs of its own.
        if threads := int(os.environ.get("OMP_NUM_THREADS", "0")):
            self.made.callbacks(threaded(threads))
        self._env_runners = env_runners
        self._room = room

    def __getattr__(self, method: str) -> Callable[..., Configuration]:
        def call(*given: Any, **named: Any) -> Configuration:
            # The launcher passes None for flags that are not given; RLlib would compare None with
            # numbers.
            asked = {key: value for key, value in named.items() if value is not None}
            renamed = {NEW_NAMES.get(key, key): value for key, value in asked.items()}
            getattr(self.made, method)(*given, **renamed)
            return self

        return call

    def env_runners(self, **named: Any) -> Configuration:
        """Play in as many processes as were asked for; each plays its part of a batch."""
        self.made.env_runners(**named)
        if self._env_runners:
            self.made.env_runners(num_env_runners=self._env_runners, rollout_fragment_length="auto")
        return self

    def resources(self, **named: Any) -> Configuration:
        """Put the learner on this node, from which its results come home."""
        asked = {key: value for key, value in named.items() if value is not None}
        self.made.resources(**{**self._room(), **asked})
        return self


def threaded(threads: int) -> type[RLlibCallback]:
    """Return a callback that gives the learner its threads once it exists."""

    class Threads(RLlibCallback):
        def on_algorithm_init(self, **given: Any) -> None:
            torch.set_num_threads(threads)

    return Threads


def on_this_node() -> dict[str, Any]:
    """Return the resources that keep the learner on the task's node, within the task's CPUs.

    This process must find the learner's checkpoints, and nodes need not share a disk.
    """
    return {"num_cpus_for_main_process": 0, "custom_resources_for_main_process": this_node()}


def trained(algorithm: str, *, config: Configuration, **how: Any) -> Any:
    return tune.run(algorithm, config=config.made, **how)


def checked(algorithm: str, *, config: Configuration, **how: Any) -> None:
    """Let RLlib validate the configuration, instead of a training; then exit."""
    request = PPO.default_resource_request(config.made)
    print("schola-train: would train, with", request.bundles)
    sys.exit(0)


class NoGame:
    """Takes the place of a game for --check: the launcher first asks a game for its agents."""

    obs_defns = ({0: None},)
    agent_display_names = ({0: "agent"},)

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def close(self) -> None:
        pass


class Arguments(launch.RLlibArgs):
    """The launcher's options, from which each process that plays makes its game."""

    def make_unreal_connection(self) -> Any:
        """Return the connection to a game, and start the game if `launch_unreal` is set."""
        if not self.launch_unreal:
            return super().make_unreal_connection()
        return Game(
            "localhost",
            self.unreal_path,
            self.headless,
            # Schola looks for a free port on ::1, which many containers do not have.
            port=self.port or free_port(),
            map=self.map,
            set_fps=self.fps,
            disable_script=self.disable_script,
        )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Game(StandaloneUnrealConnection):
    """A game that ends with all that its script started."""

    def make_args(self) -> list[str]:
        player = str(os.getpid())
        return ["setsid", "bash", "-c", WITH_ITS_PLAYER, player, *super().make_args()]

    def close(self) -> None:
        """End the game; safe to repeat."""
        game = self.env_process
        super().close()
        if game is not None:
            self.env_process = None
            with suppress(ProcessLookupError):
                os.killpg(game.pid, signal.SIGKILL)
            game.wait()


if __name__ == "__main__":
    main()
