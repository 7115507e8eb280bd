"""Points on three spirals, and a network to classify them, for jobs/torch-* and jobs/lightning.

The points are computed, since nodes may not reach a hub of data sets. Every process gets the same
points from the same seed.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.data import TensorDataset

ARMS = 3
POINTS = 12_000
TEST_SEED = 1_000_000  # trainings use smaller seeds


def points(seed: int, count: int = POINTS) -> TensorDataset:
    """Return points of the plane, each with the number of its spiral arm."""
    chance = torch.Generator().manual_seed(seed)
    arm = torch.randint(ARMS, (count,), generator=chance)
    turn = 0.5 + 3.5 * torch.rand(count, generator=chance)
    angle = math.pi * turn + arm * (2 * math.pi / ARMS)

    places = torch.stack([angle.cos(), angle.sin()], dim=1) * turn[:, None] / 4
    return TensorDataset(places + 0.02 * torch.randn(places.shape, generator=chance), arm)


def network() -> nn.Module:
    """Return an untrained network; its input is a point, its output a score for each arm."""
    return nn.Sequential(
        nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ARMS)
    )
