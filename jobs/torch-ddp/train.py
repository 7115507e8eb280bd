"""Classify points on spirals with DistributedDataParallel: NCCL on GPUs, Gloo on CPUs.

    torchrun --nproc-per-node=2 train.py        two processes of this machine, results in ./output

It is an ordinary program for torchrun. Trainyard adds two directories: curves and results are
written to TRAINYARD_OUTPUT; checkpoints in TRAINYARD_CHECKPOINT are there for the next attempt, on
any node.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import spirals
import torch
import torch.distributed as dist
from tensorboardX import SummaryWriter
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "output"))
CHECKPOINT = Path(os.environ.get("TRAINYARD_CHECKPOINT", "output")) / "checkpoint.pt"


def main() -> None:
    """Train, or continue from a checkpoint; only the first process writes results."""
    options = parse()
    device = join()
    try:
        accuracy = train(options, device)
    finally:
        dist.destroy_process_group()

    if int(os.environ["RANK"]) == 0:
        result = {"accuracy": accuracy, "epochs": options.epochs, "device": str(device)}
        (OUTPUT / "result.json").write_text(json.dumps(result) + "\n")
        say(f"trained: {accuracy:.1%} right")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="default: 30")
    parser.add_argument("--batch", type=int, default=128, help="of each process (default: 128)")
    parser.add_argument("--lr", type=float, default=3e-3, help="default: 0.003")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def join() -> torch.device:
    """Connect to the other processes; return the device of this one."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    say(f"process {dist.get_rank()} of {dist.get_world_size()} computes on {device}")
    return device


def train(options: argparse.Namespace, device: torch.device) -> float:
    """Train until the last epoch; return the accuracy on points that were held out."""
    torch.manual_seed(options.seed)
    data = spirals.points(options.seed)
    shard: DistributedSampler[Any] = DistributedSampler(data, seed=options.seed)
    batches = DataLoader(data, batch_size=options.batch, sampler=shard)
    test = spirals.points(spirals.TEST_SEED, 3_000).tensors

    model = spirals.network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    done = load(model, optimizer)
    parallel = DistributedDataParallel(model)
    accuracy = evaluate(model, test, device)
    is_first = dist.get_rank() == 0
    # purge_step: the former attempt's curve may continue after its last checkpoint.
    writer = None

    if is_first:
        writer = SummaryWriter(str(OUTPUT), purge_step=done + 1 if done else None)

    for epoch in range(done + 1, options.epochs + 1):
        began = time.monotonic()
        shard.set_epoch(epoch)
        loss = improve(parallel, batches, optimizer, device)
        accuracy = evaluate(model, test, device)
        if writer:
            row = {"train/loss": loss, "eval/accuracy": accuracy}
            write_scalars(writer, {**row, "time/epoch": time.monotonic() - began}, epoch)
            save(model, optimizer, epoch)
            say(f"epoch {epoch:3d}   loss {loss:.3f}   {accuracy:6.1%} right")

    if writer:
        writer.close()

    return accuracy


def improve(
    parallel: nn.Module,
    batches: DataLoader[Any],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """Train one epoch on this process's share of the points; return the mean loss of all."""
    total = torch.zeros(1, device=device)
    for places, arms in batches:
        loss = nn.functional.cross_entropy(parallel(places.to(device)), arms.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()

    dist.all_reduce(total)
    return float(total) / len(batches) / dist.get_world_size()


@torch.no_grad()
def evaluate(model: nn.Module, test: tuple[torch.Tensor, ...], device: torch.device) -> float:
    """Return the accuracy on the test points, which is the same in every process."""
    places, arms = test
    guessed = model(places.to(device)).argmax(dim=1).cpu()
    return float((guessed == arms).float().mean())


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Replace the checkpoint atomically."""
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    part = CHECKPOINT.with_name("part")
    torch.save(kept, part)
    part.replace(CHECKPOINT)


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint; return its number of epochs, 0 without one.

    Only the node of the first process has the checkpoint: it is broadcast.
    """
    kept: list[Any] = [None]
    if dist.get_rank() == 0:
        for directory in (OUTPUT, CHECKPOINT.parent):
            directory.mkdir(parents=True, exist_ok=True)
        if CHECKPOINT.exists():
            kept = [torch.load(CHECKPOINT, map_location="cpu", weights_only=True)]

    dist.broadcast_object_list(kept)
    if kept[0] is None:
        return 0

    model.load_state_dict(kept[0]["model"])
    optimizer.load_state_dict(kept[0]["optimizer"])
    if dist.get_rank() == 0:
        say(f"continues after epoch {kept[0]['epoch']}")

    return int(kept[0]["epoch"])


def write_scalars(writer: SummaryWriter, row: dict[str, float], epoch: int) -> None:
    """Write one row of the curves, and flush: the task may be killed at any time."""
    for name, value in row.items():
        writer.add_scalar(name, value, epoch)
    writer.flush()


def say(line: str) -> None:
    """Print a line and flush: into a pipe, Python would buffer it."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
