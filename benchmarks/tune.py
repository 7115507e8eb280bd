"""Compare sweeps of Trainyard with Ray Tune and OptunaSearch, on the same space and command.

    python -m benchmarks.tune [SEEDS]       prints each seed's wall time and best, then the rows of `make bench`

Ray Tune needs pandas and pyarrow: uv makes an environment with them in
$XDG_CACHE_HOME/trainyard-bench. Both programs search by Optuna's TPE with the same seed, two
configurations at a time, on the same cluster. They are timed as commands: `invoke tune.dispatch`
with its gate and its report, and `ray job submit` of benchmarks/ray_tune.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import Measured, newest_events, output_of, write_tasks

ROOT = Path(__file__).parents[1]
TRAIN = ROOT / "jobs" / "cartpole" / "train.py"
RAY_TUNE = ROOT / "benchmarks" / "ray_tune.py"
SAMPLES = {"cartpole": 20, "noop": 30}
CLUSTER = "name: bench\nbackend: local\nhead: {cpus: 2}\n"
JOBS = {
    "cartpole": """\
command: [python, train.py, --iterations, "3", --episodes, "1", --learning-rate, "{rate}", --discount, "{discount}"]
tune:
  space: {rate: {loguniform: [0.01, 3]}, discount: {uniform: [0.5, 1.0]}}
  metric: rollout/return
  source: tensorboard
  samples: 20
  concurrency: 2
""",
    "noop": """\
command: [sh, -c, 'echo "{{\\"reward\\": $0}}"', "{x}"]
tune: {space: {x: {uniform: [0, 1]}}, metric: reward, source: stdout, samples: 30, concurrency: 2}
""",
}


@dataclass(frozen=True)
class Swept:
    """One sweep: its seconds, each trial's seconds beyond its own time, and the best value."""

    wall: float
    overhead: float
    best: float


class Bench:
    """A directory with a cluster file and jobs, and an environment for both programs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._bin = _environment()
        bins = f"{self._bin}:{os.environ['PATH']}"
        own = {
            "XDG_STATE_HOME": str(directory / "state"),
            "PATH": bins,
            "RAY_USAGE_STATS_ENABLED": "0",
        }

        self._env = {
            **os.environ,
            **own,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "runner"),
        }

        (directory / "cluster.yaml").write_text(CLUSTER)
        for name, text in JOBS.items():
            (directory / "jobs" / name).mkdir(parents=True)
            (directory / "jobs" / name / "job.yaml").write_text(text)

        shutil.copy(TRAIN, directory / "jobs" / "cartpole")
        write_tasks(directory)

    @contextmanager
    def cluster(self) -> Iterator[None]:
        self._invoke("cluster.up")
        try:
            yield
        finally:
            self._invoke("cluster.down", "--end-runs")

    def both(self, job: str, seed: int) -> tuple[Swept, Swept]:
        """Run a sweep of one seed by Trainyard and by Ray Tune; print and return both."""
        pair = ours, theirs = self.ours(job, seed), self.theirs(job, seed)
        walls = (
            f"{ours.wall:.1f} s, best {ours.best:g}; Ray Tune {theirs.wall:.1f} s, best "
            f"{theirs.best:g}"
        )
        print(f"  {job}, seed {seed}: {walls}", flush=True)
        return pair

    def ours(self, job: str, seed: int) -> Swept:
        began = time.perf_counter()
        self._invoke("tune.dispatch", f"jobs/{job}", "--set", f"tune.seed={seed}")
        wall = time.perf_counter() - began
        events = newest_events(self._directory, job)
        own = sum(event["seconds"] for event in events if event["event"] == "attempt-ended")
        times = [
            event["time"] for event in events if event["event"] in ("trial-started", "trial-ended")
        ]
        overhead = (max(times) - min(times) - own / 2) / SAMPLES[job]

        return Swept(wall, overhead, events[-1]["sweep"]["best"]["value"])

    def theirs(self, job: str, seed: int) -> Swept:
        program = [str(TRAIN)] if job == "cartpole" else []
        words = [self._bin / "python", RAY_TUNE, SAMPLES[job], seed, *program]
        address = json.loads(self._invoke("cluster.status", "--json"))["address"]
        token = next((self._directory / "state").rglob("token"))
        env = {**self._env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        submit = [self._bin / "ray", "job", "submit", "--address", address, "--", *words]
        began = time.perf_counter()
        printed = output_of([str(word) for word in submit], env=env, cwd=self._directory)
        wall = time.perf_counter() - began
        said = json.loads(re.findall(r'^\{"wall".*\}$', printed, re.MULTILINE)[-1])
        return Swept(wall, (said["wall"] - said["own"] / 2) / SAMPLES[job], said["best"])

    def _invoke(self, *words: str) -> str:
        command = [str(self._bin / "invoke"), *words, "-f", "cluster.yaml"]
        return output_of(command, env=self._env, cwd=self._directory)


def measure(directory: Path, *, seeds: int = 3) -> Iterator[Measured]:
    """Print each seed's result as soon as it ends; then yield the measurements."""
    bench = Bench(directory)
    with bench.cluster():
        empty = [bench.both("noop", 0)]
        swept = [bench.both("cartpole", seed) for seed in range(seeds)]

    for title, pairs, name, bar in (
        ("a no-op trial, beyond its own time / by Ray Tune", empty, "overhead", "<= 0.05 s"),
        ("30 of them, whole command / by Ray Tune", empty, "wall", "<= 0.7x"),
        ("a CartPole trial, beyond its own time / by Ray Tune", swept, "overhead", "<= 0.05 s"),
        ("20 of them, whole command / by Ray Tune", swept, "wall", "<= 0.7x"),
        ("the best value that they find / by Ray Tune", swept, "best", ">= 1x"),
    ):
        ours, theirs = (
            statistics.median(getattr(pair[side], name) for pair in pairs) for side in (0, 1)
        )
        yield Measured(title, ours, theirs, bar)


def _environment() -> Path:
    """Make or update the environment for both programs; return its directory of programs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "trainyard-bench" / f"ray-tune-{version('ray')}"
    uv = str(Path(sys.executable).with_name("uv"))
    parts = ["-e", f"{ROOT}[local,tune,cartpole]", f"ray[tune]=={version('ray')}"]
    output_of(
        [uv, "venv", "-q", "--allow-existing", "--python", sys.executable, str(home)],
        env=os.environ,
        cwd=ROOT,
    )

    output_of(
        [
            uv,
            "pip",
            "install",
            "-q",
            "--compile-bytecode",
            "--python",
            str(home / "bin" / "python"),
            *parts,
        ],
        env=os.environ,
        cwd=ROOT,
    )

    return home / "bin"


def main() -> None:
    # SIGTERM acts like Ctrl-C, so that the cluster is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="tyb-", dir="/tmp") as directory:
        for measured in measure(Path(directory), seeds=int(sys.argv[1]) if sys.argv[1:] else 5):
            print(measured.line(), flush=True)


if __name__ == "__main__":
    main()
