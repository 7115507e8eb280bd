"""Teach a small network to tell two spirals apart: numpy only, a few seconds on one CPU.

Three things make it a job of Trainyard: its arguments come from the matrix of job.yaml, files in
$TRAINYARD_OUTPUT come home, and files in $TRAINYARD_CHECKPOINT are there again in the next attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "output"))
CHECKPOINT = Path(os.environ.get("TRAINYARD_CHECKPOINT", "checkpoint")) / "network.npz"
LAYERS = (2, 32, 32, 1)
GOOD = 0.95


def spirals(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points on two spirals, each labelled with its spiral: 0 or 1."""
    label = random.integers(0, 2, count)
    turn = random.uniform(0.5, 3.0, count) * np.pi
    angle = turn + label * np.pi
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * turn[:, None] / (3 * np.pi)
    return points + random.normal(0, 0.05, points.shape), label[:, None].astype(float)


def forward(network: list[np.ndarray], points: np.ndarray) -> list[np.ndarray]:
    """Return the points and each layer's output; the last is the chance of the second spiral."""
    seen = [points]
    for weights, bias in zip(network[0::2], network[1::2], strict=True):
        seen.append(np.tanh(seen[-1] @ weights + bias))
    seen[-1] = (seen[-1] + 1) / 2
    return seen


def right(chance: np.ndarray, label: np.ndarray) -> float:
    """Return the share of points whose spiral is recognized."""
    return float(((chance > 0.5) == label).mean())


def gradients(
    network: list[np.ndarray], seen: list[np.ndarray], label: np.ndarray
) -> list[np.ndarray]:
    """Return the gradient of the mean squared error for each array of the network."""
    found: list[np.ndarray] = []
    slope = 2 * (seen[-1] - label) / len(label) * 2 * seen[-1] * (1 - seen[-1])
    for layer in range(len(network) - 2, -1, -2):
        before = seen[layer // 2]
        found = [before.T @ slope, slope.sum(axis=0), *found]
        slope = (slope @ network[layer].T) * (1 - before**2)
    return found


def save(step: int, **kinds: list[np.ndarray]) -> None:
    """Write a checkpoint atomically."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_name("part.npz")
    np.savez(
        part,
        step=step,
        **{f"{kind}{i}": array for kind in kinds for i, array in enumerate(kinds[kind])},
    )
    part.rename(CHECKPOINT)


def main() -> int:
    """Train; return exit code 0 if the accuracy is at least GOOD, else 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.001)
    parser.add_argument("--steps", type=int, default=600)
    asked = parser.parse_args()

    random = np.random.default_rng(asked.seed)
    network = []
    for size, next_size in pairwise(LAYERS):
        network.append(random.normal(0, 1 / np.sqrt(size), (size, next_size)) * 2)
        network.append(np.zeros(next_size))

    points, label = spirals(random, 600)
    mean = [np.zeros_like(array) for array in network]
    spread = [np.zeros_like(array) for array in network]
    first = 1

    if CHECKPOINT.exists():
        saved = np.load(CHECKPOINT)
        first = int(saved["step"]) + 1
        arrays = range(len(network))
        network = [saved[f"n{i}"] for i in arrays]
        mean = [saved[f"m{i}"] for i in arrays]
        spread = [saved[f"s{i}"] for i in arrays]
        print(f"continues after step {first - 1}", flush=True)

    curves = SummaryWriter(str(OUTPUT / "tensorboard"))
    for step in range(first, asked.steps + 1):
        seen = forward(network, points)
        # Adam (Kingma and Ba, 2015).
        for i, change in enumerate(gradients(network, seen, label)):
            mean[i] = 0.9 * mean[i] + 0.1 * change
            spread[i] = 0.999 * spread[i] + 0.001 * change**2
            network[i] -= (
                asked.rate
                * (mean[i] / (1 - 0.9**step))
                / (np.sqrt(spread[i] / (1 - 0.999**step)) + 1e-8)
            )

        if step % 20 == 0:
            curves.add_scalar("accuracy", right(seen[-1], label), step)
            curves.add_scalar("loss", float(((seen[-1] - label) ** 2).mean()), step)

        if step % 100 == 0:
            print(f"step {step:,}: {right(seen[-1], label):.1%} right", flush=True)
            save(step, n=network, m=mean, s=spread)

    curves.close()
    accuracy = right(forward(network, points)[-1], label)
    (OUTPUT / "result.json").write_text(
        json.dumps({"seed": asked.seed, "accuracy": accuracy}) + "\n"
    )

    return 0 if accuracy >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
