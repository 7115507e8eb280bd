"""Classify points on spirals with Ray Train's TorchTrainer.

Its workers run on any nodes, this script on one. The network and the points are those of
jobs/torch-ddp. Ray Train keeps checkpoints and its own records in TRAINYARD_CHECKPOINT, from which
the next attempt continues. Curves and results are written to TRAINYARD_OUTPUT.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import home
import ray
import ray.train
import ray.train.torch
import spirals
import torch
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from tensorboardX import SummaryWriter
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "output")).resolve()
CHECKPOINTS = Path(os.environ.get("TRAINYARD_CHECKPOINT", "checkpoints")).resolve()
STATE = "state.pt"


def main() -> None:
    """Start the workers, wait for them, and write and print the accuracy."""
    options = parse()
    for directory in (OUTPUT, CHECKPOINTS):
        directory.mkdir(parents=True, exist_ok=True)

    ray.init()

    trainer = TorchTrainer(
        train,
        train_loop_config=vars(options),
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(
            # Ray Train continues a training of this name that it finds in the storage.
            name="spirals",
            storage_path=str(CHECKPOINTS),
            storage_filesystem=home.filesystem(),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            # After the loss of a worker, Ray Train repeats the epoch; the attempt continues.
            failure_config=FailureConfig(max_failures=3),
            callbacks=[Curves(str(OUTPUT))],
        ),
    )

    result = trainer.fit()

    metrics = result.metrics or {}
    (OUTPUT / "result.json").write_text(json.dumps(metrics) + "\n")
    say(f"trained: {metrics.get('eval/accuracy', 0.0):.1%} right")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="one CPU or GPU each (default: 2)")
    parser.add_argument("--gpu", action="store_true", help="each worker has a GPU")
    parser.add_argument("--epochs", type=int, default=30, help="default: 30")
    parser.add_argument("--batch", type=int, default=128, help="of each worker (default: 128)")
    parser.add_argument("--lr", type=float, default=3e-3, help="default: 0.003")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint-every", type=float, default=5.0, metavar="SECONDS", help="default: 5"
    )
    return parser.parse_args()


class Curves(ray.train.UserCallback):
    """Writes the first worker's metrics as curves; Ray Train calls this on the script's node."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._writer: SummaryWriter | None = None

    def after_report(
        self,
        run_context: Any,
        metrics: list[dict[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """Write a row of the curves, and flush: the task may be killed at any time."""
        first = metrics[0]
        if self._writer is None:
            self._writer = SummaryWriter(self._directory, purge_step=first["epoch"])

        for name in ("train/loss", "eval/accuracy"):
            self._writer.add_scalar(name, first[name], first["epoch"])
        self._writer.flush()


def train(options: dict[str, Any]) -> None:
    """Train; every worker runs this function."""
    torch.manual_seed(options["seed"])
    data = spirals.points(options["seed"])
    context = ray.train.get_context()
    shard: DistributedSampler[Any] = DistributedSampler(
        data, context.get_world_size(), context.get_world_rank(), seed=options["seed"]
    )
    batches = DataLoader(data, batch_size=options["batch"], sampler=shard)
    test = spirals.points(spirals.TEST_SEED, 3_000).tensors

    device = ray.train.torch.get_device()
    model = spirals.network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options["lr"])
    done = load(model, optimizer)
    parallel = ray.train.torch.prepare_model(model)
    say(
        f"worker {context.get_world_rank()} of {context.get_world_size()} computes on {device}, "
        f"after epoch {done}"
    )

    saved = time.monotonic()

    for epoch in range(done + 1, options["epochs"] + 1):
        shard.set_epoch(epoch)
        loss = improve(parallel, batches, optimizer, device)
        metrics = {
            "epoch": epoch,
            "train/loss": loss,
            "eval/accuracy": evaluate(model, test, device),
        }

        # Not after every epoch: Trainyard copies a checkpoint only after its files have not changed
        # for a moment.
        if epoch < options["epochs"] and time.monotonic() - saved < options["checkpoint_every"]:
            ray.train.report(metrics)
        else:
            report(metrics, model, optimizer)
            saved = time.monotonic()


def improve(
    parallel: nn.Module,
    batches: DataLoader[Any],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """Train one epoch on this worker's share of the points; return its mean loss."""
    total = torch.zeros(1, device=device)
    for places, arms in batches:
        loss = nn.functional.cross_entropy(parallel(places.to(device)), arms.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()

    return float(total) / len(batches)


@torch.no_grad()
def evaluate(model: nn.Module, test: tuple[torch.Tensor, ...], device: torch.device) -> float:
    places, arms = test
    guessed = model(places.to(device)).argmax(dim=1).cpu()
    return float((guessed == arms).float().mean())


def report(metrics: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Report the metrics of an epoch to Ray Train; only the first worker adds a checkpoint."""
    if ray.train.get_context().get_world_rank() > 0:
        ray.train.report(metrics)
        return

    with tempfile.TemporaryDirectory() as directory:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": metrics["epoch"]}, Path(directory, STATE))
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))
    say(
        f"epoch {metrics['epoch']:3d}   loss {metrics['train/loss']:.3f}   "
        f"{metrics['eval/accuracy']:6.1%} right"
    )


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint; return its number of epochs, 0 without one."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0

    with checkpoint.as_directory() as directory:
        kept = torch.load(Path(directory, STATE), map_location="cpu", weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["epoch"])


def say(line: str) -> None:
    """Print a line and flush: into a pipe, Python would buffer it."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
