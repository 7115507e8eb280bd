"""A job made of another tool's files: a job.yaml, and files that it needs."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.errors import RequestError
from trainyard.spec.load import JOB_FILE_NAME, load_job
from trainyard.spec.show import written

PROGRAM = "isaac_task.py"
# Keys of a task that trains: its outputs are kept, and a second attempt continues from them.
TRAINING = {"outputs": ["logs/"], "retries": 1}
# The smoke test must find GPUs, because Isaac Lab uses only nodes with GPUs.
ON_GPUS = {"gpus": True}
_SCRIPT = r"(?:reinforcement_learning|rl_games|rsl_rl|skrl|sb3)/train\.py"
_TRAINS = re.compile(rf"(?:\S*/)?{_SCRIPT}")
_IN_LINE = re.compile(rf"(?<![^\s/'\"=;&|(]){_SCRIPT}(?![^\s'\";&|<>)])")
_ELSEWHERE = re.compile(r"(?<![^\s;&|('\"{])(?:cd|pushd)\s")


@dataclass(frozen=True)
class Options:
    """The flags of Isaac Lab's tuner that matter here.

    `python` is the command that runs Isaac Lab's scripts.
    """

    cfg_class: str = ""
    workflow: str = ""
    rl_library: str = ""
    progress_reporter: str = ""
    stopper: str = ""
    num_samples: int = 100
    repeat_run_count: int = 3
    num_workers_per_node: int = 1
    metric: str = "rewards/time"
    mode: str = "max"
    process_response_timeout: float = 200.0
    python: str = "/workspace/isaaclab/isaaclab.sh -p"


@dataclass(frozen=True)
class Imported:
    """A job: its name, the content of its job file, and its other files.

    `files` maps paths in the job's directory to sources. `notes` say what
    differs from the other tool.
    """

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
        """Write the job to `directory`, by default jobs/NAME.

        Returns [the directory]. Raises RequestError if the directory exists, if
        a file would be outside of it or replace the job file, and if the result
        is no valid job. After an error, nothing new is left.
        """
        directory = directory or Path("jobs", self.name)
        if directory.exists():
            raise RequestError(
                f"{directory} exists", hint="Name another directory: --output DIRECTORY"
            )

        targets = {_target(directory, name): source for name, source in self.files.items()}
        try:
            for target, source in targets.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
            directory.mkdir(parents=True, exist_ok=True)
            (directory / JOB_FILE_NAME).write_text(self.text)
            load_job(directory)
        except RequestError:
            shutil.rmtree(directory)
            raise
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise RequestError(f"cannot copy {error.filename}: {error.strerror}") from error

        return [directory]


def refuse_unreadable(file: Path) -> None:
    """Raise RequestError unless the file is regular: a pipe could block."""
    try:
        kind = file.stat().st_mode
    except FileNotFoundError as error:
        raise RequestError(f"no such file: {file}") from error
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RequestError(f"cannot read {file}: {error}") from error
    if not stat.S_ISREG(kind):
        raise RequestError(f"{file} is no regular file")


def _target(directory: Path, name: str) -> Path:
    """Return the path of a file in a job's directory.

    Raises RequestError for a path outside of the directory, and for the job
    file's path.
    """
    relative = Path(os.path.normpath(name))
    if relative.is_absolute() or ".." in relative.parts:
        raise RequestError(f"{name} lies outside of the job's directory, and is not copied")
    if relative == Path(JOB_FILE_NAME):
        raise RequestError(
            f"{name} would take the place of the job file, which has that name",
            hint="Rename that file, and each mention of its name.",
        )
    return directory / relative


def share_of_a_node(workers: int) -> dict[str, Any]:
    return {"share": 1 if workers == 1 else f"1/{workers}"}


def program() -> Path:
    return paths.shipped("jobs") / "isaac" / PROGRAM


def training(command: Sequence[str]) -> tuple[list[str], dict[str, Any], dict[str, Path]]:
    """Return a task's command, further keys and files.

    A training of Isaac Lab is run by isaac_task.py, which continues from the
    newest checkpoint. In any command, braces are escaped.
    """
    # Doubled braces are literal ones in a job file.
    words = [word.replace("{", "{{").replace("}", "}}") for word in command]
    if any(_TRAINS.fullmatch(word) for word in command):
        return ["python", PROGRAM, "resume", "--", *words], TRAINING, {PROGRAM: program()}
    return words, {"outputs": TRAINING["outputs"]} if _trains_here(command) else {}, {}


def note_of_training(name: str, command: Sequence[str]) -> str | None:
    """Return a note if a shell starts the training; else None."""
    if PROGRAM in command or not any(_IN_LINE.search(word) for word in command):
        return None
    if _trains_here(command):
        return (
            f"{name} trains in a shell: logs/ comes home, and an attempt that failed is not "
            "tried again."
        )
    return (
        f"{name} trains in another directory (cd): the logs/ that it writes there does not come "
        "home, and it is not "
        "tried again. Let it train without cd, which brings logs/ home, or copy what it wrote to "
        "`outputs:`."
    )


def _trains_here(command: Sequence[str]) -> bool:
    """Say whether a shell's line trains in the task's directory (no `cd`)."""
    return any(_IN_LINE.search(word) and not _ELSEWHERE.search(word) for word in command)
