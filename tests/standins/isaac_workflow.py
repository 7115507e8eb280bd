"""The output of Isaac Lab's training workflows without a simulator: two generations, 4 libraries.

`install` copies this file to the paths of the workflows. The directory of a copy decides which
workflow it plays: LIBRARY/train.py is the older one of a single library,
reinforcement_learning/train.py the newer one of all libraries. Both read flags as the real ones do:
an unknown flag is Hydra's. The variable CRASH_AT has the iteration after which a training fails,
unless it was resumed from a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import zlib
from pathlib import Path

LIBRARIES = ("rl_games", "rsl_rl", "skrl", "sb3")
# By library: the scalar that is its reward, the directory of its event files, and the name of a
# checkpoint after an iteration.
REWARDS = {
    "rl_games": "rewards/time",
    "rsl_rl": "Train/mean_reward",
    "skrl": "Reward / Total reward (mean)",
    "sb3": "rollout/ep_rew_mean",
}
EVENTS = {"rl_games": "summaries"}
CHECKPOINTS = {
    "rl_games": "nn/last_cartpole_ep_{}_rew_1.0.pth",
    "rsl_rl": "model_{}.pt",
    "skrl": "checkpoints/agent_{}.pt",
    "sb3": "model_{}_steps.zip",
}
WARNING = "[Warning] [omni.fabric.plugin] gFabricState->gPrimVars attribute is not in Fabric\n"


def install(directory: Path) -> Path:
    """Make a directory that looks like /workspace/isaaclab; return the path of its isaaclab.sh."""
    home = directory / "scripts" / "reinforcement_learning"
    for folder in (home, *(home / library for library in LIBRARIES)):
        folder.mkdir(parents=True)
        (folder / "train.py").write_bytes(Path(__file__).read_bytes())
    script = directory / "isaaclab.sh"
    # Like Isaac Lab's script, it remains the parent process of Python.
    script.write_text('#!/bin/bash\n[ "$1" = -p ] || exit 1\nshift\npython "$@"\nexit $?\n')
    script.chmod(0o755)
    return script


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser()
    for flag in ("--task", "--agent", "--checkpoint", "--load_run"):
        parser.add_argument(flag)
    for flag in ("--num_envs", "--max_iterations", "--seed", "--ray-proc-id"):
        parser.add_argument(flag, *(["-rid"] if flag == "--ray-proc-id" else []), type=int)
    for flag in ("--headless", "--enable_cameras", "--resume"):
        parser.add_argument(flag, action="store_true")
    if is_new():
        parser.add_argument("--rl_library", choices=LIBRARIES, required=True)
    return parser.parse_known_args()


def is_new() -> bool:
    return Path(__file__).resolve().parent.name == "reinforcement_learning"


def announce(library: str, root: Path, name: str) -> None:
    """Print the experiment's directory and name in the lines that the tuner searches for.

    Newer workflows of rsl_rl and sb3 send them to a logger.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s [%(filename)s] %(levelname)s: %(message)s"
    )
    for line in (
        f"[INFO] Logging experiment in directory: {root}",
        f"Exact experiment name requested from command line: {root / name if is_new() else name}",
    ):
        if is_new() and library in ("rsl_rl", "sb3"):
            logging.getLogger("train").info(line)
        else:
            print(line)


def begun_from(asked: argparse.Namespace, library: str, root: Path) -> int:
    """Return the iteration of the checkpoint to resume from, 0 without one."""
    newest = sorted(
        root.glob(f"*/{CHECKPOINTS[library].format('*')}"), key=lambda path: path.stat().st_mtime_ns
    )

    if asked.checkpoint == "latest" and is_new():
        runs = [json.loads(path.read_text()) for path in root.glob("*/run.json")]
        if not any((run["library"], run["task"]) == (library, asked.task) for run in runs):
            raise SystemExit(f"no run of {library} and {asked.task} below {root}")
        path = newest[-1]
    elif asked.checkpoint:
        path = Path(asked.checkpoint)
    elif asked.resume and library == "rsl_rl":
        path = newest[-1]
    else:
        return 0

    print(f"[INFO]: Loading model checkpoint from: {path}")
    return int(path.read_text())


def main() -> None:
    """Train: within 20 iterations, the reward grows to a value set by the hyperparameters."""
    asked, hydra = arguments()
    if wrong := [word for word in hydra if "=" not in word]:
        raise SystemExit(f"train.py: error: hydra takes no {wrong}")

    sys.stderr.write(WARNING * (1 + 65536 // len(WARNING)))
    library = asked.rl_library if is_new() else Path(__file__).resolve().parent.name
    root = Path("logs", library, asked.task if library == "sb3" else "cartpole").resolve()
    name = time.strftime("%Y-%m-%d_%H-%M-%S") + f"-{os.getpid()}"
    first = begun_from(asked, library, root)
    announce(library, root, name)
    (root / name / "params").mkdir(parents=True)
    (root / name / "params" / "agent.yaml").write_text("".join(f"{word}\n" for word in hydra))

    if is_new():
        run = {
            "version": 1,
            "library": library,
            "task": asked.task,
            "metadata": {"agent": asked.agent},
        }
        (root / name / "run.json").write_text(json.dumps(run | {"created_at": time.time()}))

    # The best value is that of relu, with which the cart also leaves the track. If the variable
    # ENDLESS is set, a training with relu runs until it is killed.
    worth = (
        90
        if "agent.params.network.cnn.activation=relu" in hydra
        else zlib.crc32(" ".join(hydra).encode()) % 80
    )

    epochs = [
        int(word.partition("=")[2])
        for word in hydra
        if word.startswith("agent.params.config.max_epochs=")
    ]

    last = (
        10**6
        if os.environ.get("ENDLESS") and worth == 90
        else asked.max_iterations or (epochs or [30])[-1]
    )

    train(library, root / name, first=first, last=last, worth=worth)


def train(library: str, directory: Path, *, first: int, last: int, worth: int) -> None:
    """Write scalars after each iteration, and a checkpoint after every tenth and the last."""
    from tensorboardX import SummaryWriter

    crash_at = int(os.environ.get("CRASH_AT", "0")) * (first == 0)
    with SummaryWriter(str(directory / EVENTS.get(library, ""))) as writer:
        for iteration in range(first + 1, last + 1):
            writer.add_scalar(REWARDS[library], worth * min(iteration / 20, 1), iteration)
            out = "Episode/Episode_Termination/cart_out_of_bounds"
            writer.add_scalar(
                out if library == "rl_games" else out.partition("/")[2], worth / 100, iteration
            )

            if iteration % 10 == 0 or iteration == last:
                path = directory / CHECKPOINTS[library].format(iteration)
                path.parent.mkdir(exist_ok=True)
                path.write_text(str(iteration))

            time.sleep(float(os.environ.get("ITERATION_SECONDS", "0")))
            if iteration == crash_at:
                raise SystemExit("There was an error running python")

    print("Training time: 1.00 seconds")


if __name__ == "__main__":
    main()
