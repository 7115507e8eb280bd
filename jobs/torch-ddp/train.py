"""Tell spirals apart with DistributedDataParallel: NCCL where there are GPUs, Gloo where there are
none.

    torchrun --nproc-per-node=2 train.py        two processes of this machine, results in ./output

A program for torchrun, as there are many. Trainyard adds two directories: curves and results go to
TRAINYARD_OUTPUT, and what is in TRAINYARD_CHECKPOINT is there again when the training is tried
again, on whatever nodes.
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
    """Train, or continue; the first process writes what is to stay."""
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
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30, help="default: 30")
    parser.add_argument("--batch", type=int, default=128, help="of each process (default: 128)")
    parser.add_argument("--lr", type=float, default=3e-3, help="default: 0.003")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def join() -> torch.device:
    """Meet the other processes; return where this one computes."""
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
    # The former attempt's curve may end after its checkpoint.
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
    """Train one epoch on this process's share of the points; return the mean loss of all
    processes.
    """
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
    """Return how much of the test points is right; every process has the same model, and finds the
    same.
    """
    places, arms = test
    guessed = model(places.to(device)).argmax(dim=1).cpu()
    return float((guessed == arms).float().mean())


def save(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Write the checkpoint, whole or not at all."""
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    part = CHECKPOINT.with_name("part")
    torch.save(kept, part)
    part.replace(CHECKPOINT)


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up the first process's checkpoint, which no other node has; return the epochs that it
    has, 0 for none.
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
    """Write one row of the curves, at once: a killed task leaves what it had."""
    for name, value in row.items():
        writer.add_scalar(name, value, epoch)
    writer.flush()


def say(line: str) -> None:
    """Print a line at once; a pipe would hold it back."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
