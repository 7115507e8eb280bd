"""schola-train: the launcher of the Schola that this image has, by that Schola's own words.

| Schola | its launcher | here |
|---|---|---|
| 1.0.0 | schola.scripts.ray.launch, PPO alone | in the words of this Ray: schola_train.py |
| 1.1 and later | the same module; PPO, APPO or IMPALA behind the flags | as it is, on the task's
node |
| 2 | a command of its own: schola rllib train ppo ... | as it is |
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from types import SimpleNamespace
from typing import Any

import schola_place

ALGORITHMS = ("PPO", "APPO", "IMPALA")
CHECK = "--check"


def main() -> None:
    """Train, or check that it could begin."""
    words = sys.argv[1:]
    try:
        launch = importlib.import_module("schola.scripts.ray.launch")
    except ModuleNotFoundError as error:
        # Schola 2 has no such module; whatever else is missing is an error.
        if error.name not in ("schola.scripts.ray", "schola.scripts.ray.launch"):
            raise
        run_command(words)

    if hasattr(launch, "RLlibArgs"):
        schola_train = importlib.import_module("schola_train")
        schola_train.main()
        return

    checks = CHECK in words
    launch.make_parser = with_defaults(launch.make_parser)
    if checks:
        words = [word for word in words if word != CHECK]
        words += [] if any(word in ALGORITHMS for word in words) else [ALGORITHMS[0]]
        launch.main = checked
    else:
        launch.tune = SimpleNamespace(run=on_the_tasks_node(launch.tune.run))

    sys.argv[1:] = words
    launch.main_from_cli()


def with_defaults(make_parser: Any) -> Any:
    """Return Schola's parser with what is right on a cluster where a flag does not say
    otherwise.
    """

    def make() -> Any:
        parser = make_parser()
        parser.prog = "schola-train"
        # Without it, the launcher starts a Ray of its own; the learner's CPUs are the task's.
        parser.set_defaults(using_cluster=True, num_cpus_for_main_process=0)
        if checkpoints := schola_place.checkpoints():
            parser.set_defaults(checkpoint_dir=checkpoints)
        return parser

    return make


def on_the_tasks_node(run: Any) -> Any:
    """Return `tune.run` with the learner on this node: its checkpoints must be found by this
    process.
    """

    def run_here(algorithm: str, *, config: Any, **how: Any) -> Any:
        config.resources(custom_resources_for_main_process=schola_place.this_node())
        return run(algorithm, config=config, **how)

    return run_here


def checked(asked: Any) -> None:
    """Make RLlib's configuration of the algorithm, and end."""
    settings = asked.algorithm_settings
    settings.rllib_config()
    print(f"schola-train: would train {settings.name}, by the launcher of this Schola")


def run_command(words: list[str]) -> None:
    """Run the command of Schola 2 in the place of this process."""
    program = shutil.which("schola")
    if program is None:
        sys.exit(
            "schola-train: this Schola has no launcher for RLlib (schola.scripts.ray.launch, or "
            "`schola rllib`)"
        )

    given = {word.partition("=")[0] for word in words}
    if "--using-cluster" in given:
        more = []
    else:
        more = ["--using-cluster"]

    checkpoints = schola_place.checkpoints()
    if checkpoints and "--checkpoint-dir" not in given:
        more += ["--checkpoint-dir", checkpoints]

    asked = ["--help"] if CHECK in given else [*words, *more]
    os.execv(program, [program, "rllib", "train", *asked])  # noqa: S606


if __name__ == "__main__":
    main()
