"""A job that is made of somebody else's files: a job.yaml, and what it needs beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.errors import RequestError
from trainyard.spec.load import JOB_FILE_NAME, load_job
from trainyard.spec.show import written

PROGRAM = "isaac_task.py"
# What a training leaves, and goes on from in its next attempt.
TRAINING = {"outputs": ["logs/"], "retries": 1}
_TRAINS = re.compile(r"(?:^|/)(?:reinforcement_learning|rl_games|rsl_rl|skrl|sb3)/train\.py$")


@dataclass(frozen=True)
class Options:
    """The flags of Isaac Lab's tuner that mean something here, by their names there; `python` runs its scripts."""

    cfg_class: str = ""
    workflow: str = ""
    rl_library: str = ""
    progress_reporter: str = ""
    stopper: str = ""
    num_samples: int = 100
    repeat_run_count: int = 3
    metric: str = "rewards/time"
    mode: str = "max"
    process_response_timeout: float = 200.0
    python: str = "/workspace/isaaclab/isaaclab.sh -p"


@dataclass(frozen=True)
class Imported:
    """A job: its name, its job file, the files beside it by where they lie there, and what is different here."""

    name: str
    job: dict[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(f"# {note}\n" for note in self.notes) + written(self.job)

    @property
    def next(self) -> str:
        return f"trainyard {'tune' if 'tune' in self.job else 'train'}.dispatch"

    def write(self, directory: Path | None) -> list[Path]:
        """Write the job to jobs/NAME, or there; return the directory.

        Raises RequestError where something is already, or where what was written is no job: then nothing stays.
        """
        directory = directory or Path("jobs", self.name)
        if directory.exists():
            raise RequestError(f"{directory} exists", hint="Name another directory: --output DIRECTORY")
        for name, source in {JOB_FILE_NAME: None, **self.files}.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes() if source else self.text.encode())
        try:
            load_job(directory)
        except RequestError:
            shutil.rmtree(directory)
            raise
        return [directory]


def program() -> Path:
    """Return the program that runs one training of Isaac Lab on a node."""
    return paths.shipped("jobs") / "isaac" / PROGRAM


def training(command: Sequence[str]) -> tuple[list[str], dict[str, Any], dict[str, Path]]:
    """Return a task's command, more of its keys, and files: a training goes on from its newest checkpoint."""
    # Braces stand for themselves.
    words = [word.replace("{", "{{").replace("}", "}}") for word in command]
    if any(_TRAINS.search(word) for word in command):
        return ["python", PROGRAM, "resume", "--", *words], TRAINING, {PROGRAM: program()}
    return words, {}, {}
