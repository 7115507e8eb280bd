"""Search for the best learning rate and batch size with Ray Tune, to classify points on spirals.

Trials run on any nodes, this script on one. The network and the points are those of jobs/torch-ddp.
Ray Tune keeps checkpoints and its own records in TRAINYARD_CHECKPOINT, from which the next attempt
continues. The curves of each trial and the best values are written to TRAINYARD_OUTPUT.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import home
import ray
import spirals
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from tensorboardX import SummaryWriter
from torch import nn
from torch.utils.data import DataLoader

OUTPUT = Path(os.environ.get("TRAINYARD_OUTPUT", "output")).resolve()
CHECKPOINTS = Path(os.environ.get("TRAINYARD_CHECKPOINT", "checkpoints")).resolve()
SEARCH = "search"
STATE = "state.pt"


def main() -> None:
    """Search, or continue a search; write and print the best trial."""
    options = parse()
    for directory in (OUTPUT, CHECKPOINTS):
        directory.mkdir(parents=True, exist_ok=True)

    ray.init()

    results = tuner(options).fit()

    best = results.get_best_result()
    found = {
        "lr": best.config["lr"],
        "batch": best.config["batch"],
        "accuracy": best.metrics["accuracy"],
    }

    (OUTPUT / "result.json").write_text(json.dumps(found) + "\n")
    said = f"{found['accuracy']:.1%} right with lr {found['lr']:.4f}, batch {found['batch']}"
    say(f"best of {len(results)} trials: {said}")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=8, help="trials in all (default: 8)")
    parser.add_argument("--at-once", type=int, default=2, help="one CPU or GPU each (default: 2)")
    parser.add_argument("--gpu", action="store_true", help="each trial has a GPU")
    parser.add_argument("--epochs", type=int, default=20, help="of a trial at most (default: 20)")
    return parser.parse_args()


def tuner(options: argparse.Namespace) -> tune.Tuner:
    """Return a new search, or the one that an earlier attempt began."""
    files = home.filesystem()
    begun = str(CHECKPOINTS / SEARCH)
    trial = tune.with_resources(learn, {"gpu": 1} if options.gpu else {"cpu": 1})

    if tune.Tuner.can_restore(begun, storage_filesystem=files):
        say("continues the search")
        return tune.Tuner.restore(begun, trial, resume_errored=True, storage_filesystem=files)

    return tune.Tuner(
        trial,
        param_space={
            "lr": tune.loguniform(1e-4, 1e-1),
            "batch": tune.choice([64, 128, 256]),
            "epochs": options.epochs,
        },
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.samples,
            max_concurrent_trials=options.at_once,
            scheduler=ASHAScheduler(grace_period=3, max_t=options.epochs),
        ),
        run_config=tune.RunConfig(
            name=SEARCH,
            storage_path=str(CHECKPOINTS),
            storage_filesystem=files,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            # A trial on a lost node repeats its epoch; the search continues.
            failure_config=tune.FailureConfig(max_failures=3),
            callbacks=[Curves()],
        ),
    )


class Curves(tune.Callback):
    """Writes the curves of trials, each to its own directory; Ray Tune calls this in this script.

    Ray Tune saves this object with the search. The path of the outputs is read at each call, since
    a continued search runs in another attempt, with other outputs.
    """

    def __init__(self) -> None:
        self._writers: dict[str, SummaryWriter] = {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **_: Any
    ) -> None:
        """Write a row of a trial's curves, and flush: the task may be killed at any time."""
        name = trial.trial_id
        if name not in self._writers:
            directory = os.environ.get("TRAINYARD_OUTPUT", "output")
            self._writers[name] = SummaryWriter(f"{directory}/{name}")

        for key in ("loss", "accuracy"):
            self._writers[name].add_scalar(key, result[key], result["epoch"])
        self._writers[name].flush()
        say(
            f"trial {name} epoch {result['epoch']:3d}   loss {result['loss']:.3f}   "
            f"{result['accuracy']:6.1%} right"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that Ray Tune saves, without open files."""
        return {"_writers": {}}


def learn(config: dict[str, Any]) -> None:
    """Train one trial; Ray Tune runs each in an actor, on any node."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = DataLoader(spirals.points(0), batch_size=config["batch"], shuffle=True)
    places, arms = spirals.points(spirals.TEST_SEED, 3_000).tensors

    model = spirals.network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    done = load(model, optimizer)
    for epoch in range(done + 1, config["epochs"] + 1):
        loss = improve(model, batches, optimizer, device)
        with torch.no_grad():
            guessed = model(places.to(device)).argmax(dim=1).cpu()
        accuracy = float((guessed == arms).float().mean())
        report({"epoch": epoch, "loss": loss, "accuracy": accuracy}, model, optimizer)


def improve(
    model: nn.Module,
    batches: DataLoader[Any],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> float:
    """Train one epoch; return its mean loss."""
    total = 0.0
    for places, arms in batches:
        loss = nn.functional.cross_entropy(model(places.to(device)), arms.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss)

    return total / len(batches)


def report(metrics: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Report the metrics of an epoch to Ray Tune, with a checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**kept, "epoch": metrics["epoch"]}, Path(directory, STATE))
        tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(directory))


def load(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint of a trial; return its number of epochs, 0 without one."""
    checkpoint = tune.get_checkpoint()
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
