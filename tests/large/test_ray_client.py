"""Ray Train in a block, through Ray Client: a program of this machine, nodes in containers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.bed import images
from tests.bed.engine import BedEngine
from tests.real.yard import Yard

CLUSTER = """
name: {{name}}
backend: compose
image: {image}
head: {{{{cpus: 1, memory: 2GiB}}}}
"""
# Sematic's own example, with its imports changed, and a model that learns in a second.
PROGRAM = """
import tempfile
from pathlib import Path

from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from trainyard.sematic import RayCluster, RayNodeConfig, SimpleRayCluster

def learn(config):
    import ray.train, torch
    slope = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([slope], lr=0.1)
    places = torch.linspace(0, 1, 100)
    for step in range(200):
        loss = ((slope * places - config["slope"] * places) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rank = ray.train.get_context().get_world_rank()
    ray.train.report({"slope": float(slope), "rank": rank})

def pipeline():
    config = SimpleRayCluster(n_nodes=3, node_config=RayNodeConfig(cpu=1, memory_gb=2))
    with RayCluster(config=config, name="yard"):
        trainer = TorchTrainer(
            learn,
            train_loop_config={"slope": 3.0},
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path="/tmp/results"),
        )
        return trainer.fit().metrics

print("returned", round(pipeline()["slope"], 1))
"""
