"""One wrong file or flag, and the whole message that a user gets for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainyard.spec.load import load_cluster, load_job

LAB = "name: lab\nbackend: local\n"
RUN = "command: [python, train.py]\n"
NAME = "must be lower-case letters, digits and '-', start with a letter, not end with '-', at most 40 characters, got "
SIZE = "must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, GB, TB), at most 1000TiB, got "
DURATION = "must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), at most 3650d, got "
CLUSTER_FILE = "lab.yaml"
JOB_DIRECTORY = "train"


@dataclass(frozen=True)
class BadInput:
    """A directory with `lab.yaml` and `train/job.yaml` in it, one of which (or a flag over it) is wrong."""

    title: str
    file: Literal["cluster", "job"]
    text: str | bytes
    says: tuple[str, ...]
    flags: tuple[str, ...] = ()
    make: Callable[[Path], None] | None = None

    def write(self, directory: Path) -> None:
        """Make both files; `make` gets the path of the wrong one, for what is not a file with a text."""
        job = directory / JOB_DIRECTORY / "job.yaml"
        job.parent.mkdir()
        job.write_text(RUN, encoding="utf-8")
        cluster = directory / CLUSTER_FILE
        cluster.write_text(LAB, encoding="utf-8")
        wrong = cluster if self.file == "cluster" else job
        if self.make is not None:
            wrong.unlink()
            self.make(wrong)
        else:
            wrong.write_bytes(self.text if isinstance(self.text, bytes) else self.text.encode())

    def load(self) -> None:
        """Load the wrong file; the working directory is where it was written."""
        if self.file == "cluster":
            load_cluster(Path(CLUSTER_FILE), overrides=self.flags)
        else:
            load_job(Path(JOB_DIRECTORY), overrides=self.flags)

    @property
    def message(self) -> str:
        """The whole text of the error."""
        count = "1 problem" if len(self.says) == 1 else f"{len(self.says)} problems"
        return "\n".join([f"the {self.file} file is wrong: {count}", *(f"  - {line}" for line in self.says)])


def cluster(title: str, text: str | bytes, *says: str, flags: tuple[str, ...] = ()) -> BadInput:
    """Return a wrong cluster file, given as a whole."""
    return BadInput(title, "cluster", text, says, flags)


def lab(title: str, rest: str, *says: str, flags: tuple[str, ...] = ()) -> BadInput:
    """Return a cluster file that is right up to its second line."""
    return BadInput(title, "cluster", LAB + rest, says, flags)


def job(title: str, text: str | bytes, *says: str, flags: tuple[str, ...] = ()) -> BadInput:
    """Return a wrong job file, given as a whole."""
    return BadInput(title, "job", text, says, flags)


def run(title: str, rest: str, *says: str, flags: tuple[str, ...] = ()) -> BadInput:
    """Return a job file that is right in its first line."""
    return BadInput(title, "job", RUN + rest, says, flags)


def not_text(title: str, file: Literal["cluster", "job"], make: Callable[[Path], None], *says: str) -> BadInput:
    """Return something that is not a file with a text."""
    return BadInput(title, file, "", says, make=make)
