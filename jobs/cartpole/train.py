"""Solve CartPole-v1 by policy gradients, with numpy only.

The policy has four weights: the chance of a push to the right is the logistic function of their
product with the observation. REINFORCE (Williams 1992) plays episodes, and then makes those actions
more likely that were followed by more reward than the mean.

    python train.py --seed 0        writes to ./runs/seed-0

Under Trainyard, results are written to TRAINYARD_OUTPUT, and checkpoints to TRAINYARD_CHECKPOINT,
where the next attempt finds them. An interrupted training continues with the same random numbers
and the same curve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from tensorboardX import SummaryWriter

Floats = np.ndarray[Any, np.dtype[np.float64]]

ENVIRONMENT = "CartPole-v1"
SOLVED = 475.0  # gymnasium's reward threshold: the mean return of 100 episodes, each at most 500
# Divides observations (cart, its speed, angle, its speed): angles are about a tenth of the rest.
SCALE = np.array([1.0, 1.0, 0.1, 1.0])

EPISODES = 16  # played side by side in an iteration
LEARNING_RATE = 2.0
DISCOUNT = 0.99
EVALUATE_EVERY = 5  # iterations
# Training stops when three evaluations in a row reach this: one alone may be lucky.
ENOUGH = 490.0
EVALUATION_SEED = 1_000_000  # seeds of training are smaller: evaluations have other starts


@dataclass
class State:
    """The whole state of a training, as in a checkpoint."""

    rng: np.random.Generator
    weights: Floats
    iteration: int = 0
    steps: int = 0  # of the environment
    seconds: float = 0.0
    # One row per iteration: time, step and scalars.
    curve: list[dict[str, float]] = field(default_factory=list)


def main() -> None:
    """Train, or continue from a checkpoint; then evaluate the policy."""
    options = parse()
    output = Path(os.environ.get("TRAINYARD_OUTPUT", f"runs/seed-{options.seed}"))
    checkpoint = Path(os.environ.get("TRAINYARD_CHECKPOINT", output / "checkpoint")) / "state.json"
    for directory in (output, checkpoint.parent):
        directory.mkdir(parents=True, exist_ok=True)

    state = load(checkpoint) or beginning(options.seed)
    if state.iteration:
        say(f"continues after iteration {state.iteration} ({state.steps:,} steps)")

    with SummaryWriter(str(output)) as writer:
        # All former rows again: a lost attempt's event file may end before its checkpoint.
        for row in state.curve:
            write_scalars(writer, row)
        train(state, options, writer, checkpoint)

    report(state, options, output)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--learning-rate", type=float, default=LEARNING_RATE, help="default: %(default)s"
    )
    parser.add_argument("--discount", type=float, default=DISCOUNT, help="default: %(default)s")
    parser.add_argument(
        "--iterations", type=int, default=600, help="at most so many (default: 600)"
    )
    parser.add_argument(
        "--episodes", type=int, default=100, help="of the evaluation at the end (default: 100)"
    )
    parser.add_argument(
        "--keep-going", action="store_true", help="use all iterations, even if solved before"
    )
    parser.add_argument(
        "--checkpoint-every", type=float, default=2.0, metavar="SECONDS", help="default: 2"
    )

    return parser.parse_args()


def beginning(seed: int) -> State:
    """Return the state before the first iteration, with random weights."""
    rng = np.random.default_rng(seed)
    return State(rng, weights=rng.standard_normal(4))


def train(
    state: State, options: argparse.Namespace, writer: SummaryWriter, checkpoint: Path
) -> None:
    """Improve the policy until it solves the task, or the iterations are used up."""
    environments = gymnasium.make_vec(
        ENVIRONMENT, num_envs=EPISODES, vectorization_mode="vector_entry_point"
    )
    saved = time.monotonic()

    while state.iteration < options.iterations and (options.keep_going or not solved(state)):
        began = time.monotonic()
        row = improve(state, environments, rate=options.learning_rate, discount=options.discount)
        if state.iteration % EVALUATE_EVERY == 0:
            row["eval/mean_return"] = evaluate(state.weights, episodes=10)

        state.seconds += time.monotonic() - began
        state.curve.append({"time": time.time(), "step": state.steps, **row})
        write_scalars(writer, state.curve[-1])

        if state.iteration % (2 * EVALUATE_EVERY) == 0:
            say(progress(state))

        if time.monotonic() - saved >= options.checkpoint_every:
            save(state, checkpoint)
            saved = time.monotonic()

    save(state, checkpoint)
    environments.close()


def solved(state: State) -> bool:
    """Say whether the last three evaluations were good enough."""
    evaluations = []
    for row in state.curve[-3 * EVALUATE_EVERY :]:
        if "eval/mean_return" in row:
            evaluations.append(row["eval/mean_return"])
    return len(evaluations) >= 3 and min(evaluations) >= ENOUGH


def improve(
    state: State, environments: gymnasium.vector.VectorEnv, *, rate: float, discount: float
) -> dict[str, float]:
    """Play one batch of episodes and follow its policy gradient; return scalars."""
    observations, surprises, playing = play(state, environments)
    to_come = np.zeros_like(playing)  # the discounted reward after each step
    later = np.zeros(EPISODES)

    for step in reversed(range(len(playing))):
        later = playing[step] * (1.0 + discount * later)
        to_come[step] = later

    advantages = (to_come - to_come.sum() / playing.sum()) * playing
    advantages /= advantages[playing > 0].std() + 1e-8
    # The gradient of the logarithm of the chance of an action: (action - chance) x observation.
    gradient = np.einsum("te,te,teo->o", advantages, surprises, observations) / playing.sum()

    state.weights = state.weights + rate * gradient
    state.iteration += 1
    state.steps += int(playing.sum())
    returns = playing.sum(axis=0)

    return {
        "rollout/return": float(returns.mean()),
        "rollout/longest": float(returns.max()),
        "train/gradient_norm": float(np.linalg.norm(gradient)),
    }


def play(state: State, environments: gymnasium.vector.VectorEnv) -> tuple[Floats, Floats, Floats]:
    """Play one episode in each environment, side by side.

    Returns three arrays: observations (steps, environments, 4); actions minus the chance of action
    1 (steps, environments); and 1 while an episode lasts, 0 after its end (steps, environments).
    """
    observed, _ = environments.reset(seed=int(state.rng.integers(EVALUATION_SEED)))
    going = np.ones(EPISODES, dtype=bool)
    observations = []
    surprises = []
    playing = []

    while going.any():
        chances = 1.0 / (1.0 + np.exp(-(observed / SCALE) @ state.weights))
        actions = (state.rng.random(EPISODES) < chances).astype(np.int64)
        observations.append(observed / SCALE)
        surprises.append(actions - chances)
        playing.append(going.astype(np.float64))
        observed, _, fallen, timed_out, _ = environments.step(actions)
        going &= ~(fallen | timed_out)

    return np.array(observations), np.array(surprises), np.array(playing)


def evaluate(weights: Floats, *, episodes: int) -> float:
    """Return the mean return if the more likely action is always taken."""
    environment = gymnasium.make(ENVIRONMENT)
    total = 0.0
    for episode in range(episodes):
        observation, _ = environment.reset(seed=EVALUATION_SEED + episode)
        over = False
        while not over:
            observation, reward, fallen, timed_out, _ = environment.step(
                int((observation / SCALE) @ weights > 0)
            )
            total += float(reward)
            over = fallen or timed_out
    environment.close()
    return total / episodes


def report(state: State, options: argparse.Namespace, output: Path) -> None:
    """Evaluate the policy, write result.json, and print whether the task is solved."""
    score = evaluate(state.weights, episodes=options.episodes)
    result = {
        "seed": options.seed,
        "solved": score >= SOLVED,
        "mean_return": score,
        "episodes": options.episodes,
        "iterations": state.iteration,
        "steps": state.steps,
        "seconds": round(state.seconds, 3),
        "weights": state.weights.tolist(),
    }

    write_whole(output / "result.json", json.dumps(result, indent=2) + "\n")
    verdict = "solved" if result["solved"] else "not solved"
    say(
        f"{verdict}: mean return {score:.1f} over {options.episodes} episodes, after "
        f"{state.steps:,} steps"
    )


def write_scalars(writer: SummaryWriter, row: dict[str, float]) -> None:
    """Write one row of the curve for TensorBoard, and flush: the task may be killed at any time."""
    for tag in row.keys() - {"time", "step"}:
        writer.add_scalar(tag, row[tag], int(row["step"]), walltime=row["time"])
    writer.flush()


def save(state: State, path: Path) -> None:
    kept = {**vars(state), "weights": state.weights.tolist(), "rng": state.rng.bit_generator.state}
    write_whole(path, json.dumps(kept))


def load(path: Path) -> State | None:
    """Return the state in a checkpoint; None if the file does not exist."""
    if not path.exists():
        return None
    kept = json.loads(path.read_text())
    rng = np.random.default_rng()
    rng.bit_generator.state = kept["rng"]
    return State(**{**kept, "weights": np.array(kept["weights"]), "rng": rng})


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically: a reader finds the old or the new content, never a part."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def progress(state: State) -> str:
    """Return a line about the last iteration, for the log."""
    last = state.curve[-1]
    return (
        f"iteration {state.iteration:3d}   {state.steps:9,d} steps   {state.seconds:5.1f} s   "
        f"return {last['rollout/return']:5.1f}   evaluation "
        f"{last.get('eval/mean_return', math.nan):5.1f}"
    )


def say(line: str) -> None:
    """Print a line and flush: into a pipe, Python would buffer it."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
