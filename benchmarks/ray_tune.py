"""Run a sweep by Ray Tune with OptunaSearch, inside a Ray job; print one JSON line.

    python ray_tune.py SAMPLES SEED [TRAIN_PY]

Each trial runs the command of benchmarks/tune.py as a child process, as Isaac Lab's trainable does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import optuna
from ray import tune
from ray.tune.search.optuna import OptunaSearch

from trainyard.results.scalars import read_directory

METRIC = "rollout/return"


def trial(config: dict[str, Any]) -> None:
    """Run one configuration; report its metric and the seconds of its command."""
    began = time.perf_counter()
    if config["program"] is None:
        subprocess.run(["sh", "-c", 'echo "{\\"reward\\": $0}"', str(config["x"])], check=True)
        value = config["x"]
    else:
        flags = ["--learning-rate", str(config["rate"]), "--discount", str(config["discount"])]
        subprocess.run(
            [sys.executable, config["program"], "--iterations", "3", "--episodes", "1", *flags],
            check=True,
        )
        value = read_directory(Path("runs/seed-0"), points=100, tags=20)[""][METRIC].last
    tune.report({"value": value, "seconds": time.perf_counter() - began})


def main(samples: int, seed: int, program: str | None = None) -> None:
    """Search with Optuna's TPE, two trials at a time."""
    searched = {"rate": tune.loguniform(0.01, 3.0), "discount": tune.uniform(0.5, 1.0)}
    space = searched if program else {"x": tune.uniform(0.0, 1.0)}
    search = OptunaSearch(sampler=optuna.samplers.TPESampler(seed=seed))

    settings = {
        "num_samples": samples,
        "max_concurrent_trials": 2,
        "metric": "value",
        "mode": "max",
    }

    with tempfile.TemporaryDirectory(prefix="tyb-") as directory:
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={**space, "program": program},
            tune_config=tune.TuneConfig(search_alg=search, **settings),
            run_config=tune.RunConfig(storage_path=directory, verbose=0),
        )
        began = time.perf_counter()
        results = tuner.fit()
        wall = time.perf_counter() - began

    own = sum(result.metrics["seconds"] for result in results)
    best = results.get_best_result().metrics["value"]
    print(json.dumps({"wall": wall, "own": own, "best": best}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
