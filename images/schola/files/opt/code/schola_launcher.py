"""schola-train: run the launcher of the Schola that this image has, with that launcher's flags.

| Schola | its launcher | here |
|---|---|---|
| 1.0.0 | schola.scripts.ray.launch, only PPO | translated for this Ray: schola_train.py |
| 1.1 and later | the same; PPO, APPO or IMPALA after the flags | unchanged, on the task's node |
| 2 | a command of its own: schola rllib train ppo ... | unchanged |
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
    """Train; with --check, only check that a training could begin."""
    words = sys.argv[1:]
    try:
        launch = importlib.import_module("schola.scripts.ray.launch")
    except ModuleNotFoundError as error:
        # Schola 2 has no such module; any other missing module is an error.
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
    """Wrap `make_parser`: its parser gets defaults that are right on a cluster."""

    def make() -> Any:
        parser = make_parser()
        parser.prog = "schola-train"
        # Without `using_cluster`, the launcher starts a Ray of its own. The learner uses the task's
        # CPUs.
        parser.set_defaults(using_cluster=True, num_cpus_for_main_process=0)
        if checkpoints := schola_place.checkpoints():
            parser.set_defaults(checkpoint_dir=checkpoints)
        return parser

    return make


def on_the_tasks_node(run: Any) -> Any:
    """Wrap `tune.run`: the learner runs on this node, where this process finds its checkpoints."""

    def run_here(algorithm: str, *, config: Any, **how: Any) -> Any:
        config.resources(custom_resources_for_main_process=schola_place.this_node())
        return run(algorithm, config=config, **how)

    return run_here


def checked(asked: Any) -> None:
    """Only make RLlib's configuration of the algorithm; train nothing."""
    settings = asked.algorithm_settings
    settings.rllib_config()
    print(f"schola-train: would train {settings.name}, by the launcher of this Schola")


def run_command(words: list[str]) -> None:
    """Replace this process by the command of Schola 2."""
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
