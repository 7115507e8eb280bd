"""Classify points on spirals with PyTorch Lightning, on all nodes on which torchrun started it.

The network and the points are those of jobs/torch-ddp. Curves and results are written to
TRAINYARD_OUTPUT; the next attempt continues from the checkpoint in TRAINYARD_CHECKPOINT.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lightning
import spirals
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "output"))
CHECKPOINT = Path(os.environ.get("TRAINYARD_CHECKPOINT", "output")) / "last.ckpt"


class Spirals(lightning.LightningModule):
    """Classifies points by the arm of the spiral on which they are."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.network = spirals.network()

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        places, arms = batch
        loss = nn.functional.cross_entropy(self.network(places), arms)
        self.log("train/loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        places, arms = batch
        right = (self.network(places).argmax(dim=1) == arms).float().mean()
        self.log("eval/accuracy", right, sync_dist=True)

    def on_train_epoch_end(self) -> None:
        """Print the loss and accuracy of the epoch, in the first process only."""
        metrics = self.trainer.callback_metrics
        if self.trainer.is_global_zero:
            say(
                f"epoch {self.current_epoch + 1:3d}   loss {metrics['train/loss']:.3f}   "
                f"{metrics['eval/accuracy']:6.1%} right"
            )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=self.lr)


def main() -> None:
    """Train, or continue from a checkpoint; only the first process writes results."""
    options = parse()
    lightning.seed_everything(options.seed)
    trainer = make_trainer(options)
    module = Spirals(options.lr)
    train = DataLoader(spirals.points(options.seed), batch_size=options.batch, shuffle=True)
    test = DataLoader(spirals.points(spirals.TEST_SEED, 3_000), batch_size=1_000)

    trainer.fit(module, train, test, ckpt_path=checkpoint(trainer))

    accuracy = float(trainer.validate(module, test, verbose=False)[0]["eval/accuracy"])

    if trainer.is_global_zero:
        result = {
            "accuracy": accuracy,
            "epochs": options.epochs,
            "device": str(trainer.strategy.root_device),
        }
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


def make_trainer(options: argparse.Namespace) -> lightning.Trainer:
    """Make a trainer for torchrun's processes: NCCL on GPUs, Gloo on CPUs."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    saving = ModelCheckpoint(CHECKPOINT.parent, CHECKPOINT.stem, enable_version_counter=False)
    return lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        num_nodes=world // here,
        devices=here,
        max_epochs=options.epochs,
        # flush_secs: a killed task must not lose its curves.
        logger=TensorBoardLogger(OUTPUT, name="", version="", flush_secs=5),
        callbacks=[saving],
        log_every_n_steps=10,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def checkpoint(trainer: lightning.Trainer) -> str | None:
    """Return the path of the checkpoint, if any; other processes get a copy.

    Only the node of the first process has the checkpoint: it is broadcast.
    """
    # Connect the processes, for the broadcast; `fit` does not connect them again.
    trainer.strategy.setup_environment()
    is_first = trainer.is_global_zero
    content: Any = CHECKPOINT.read_bytes() if is_first and CHECKPOINT.exists() else None
    content = trainer.strategy.broadcast(content)
    if content is None or is_first:
        return str(CHECKPOINT) if content else None

    copy = Path(tempfile.mkdtemp(), CHECKPOINT.name)
    copy.write_bytes(content)
    return str(copy)


def say(line: str) -> None:
    """Print a line and flush: into a pipe, Python would buffer it."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
