"""One wrong file or flag, and the whole message that a user gets for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from trainyard.spec.load import load_cluster, load_job

LAB = "name: lab\nbackend: local\n"
RUN = "command: [python, train.py]\n"
NAME = (
    "must be lower-case letters, digits and '-', start with a letter, not end with '-', at "
    "most 40 characters, got "
)
FEWER_CPUS = "; on Kubernetes, kuberay.requests asks the scheduler for less than whole CPUs"
SIZE = (
    "must be a size such as 4GiB or 500MB (units: KiB, MiB, GiB, TiB, KB, MB, GB, TB), at "
    "most 1000TiB, got "
)
DURATION = "must be a duration such as 90s, 5m, 2h or 1d (units: s, m, h, d), at most 3650d, got "
CLUSTER_FILE = "lab.yaml"
JOB_DIRECTORY = "train"


@dataclass(frozen=True)
class BadInput:
    """A directory with `lab.yaml` and `train/job.yaml` in it, one of which (or a flag over it) is
    wrong.

    `content` is the wrong one's, or makes what is not a file with a text.
    """

    title: str
    file: Literal["cluster", "job"]
    content: str | bytes | Callable[[Path], object]
    says: tuple[str, ...]
    flags: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Write both files."""
        job, cluster = directory / JOB_DIRECTORY / "job.yaml", directory / CLUSTER_FILE
        job.parent.mkdir()
        right, wrong = (job, cluster) if self.file == "cluster" else (cluster, job)
        right.write_text(LAB if right == cluster else RUN)
        if callable(self.content):
            self.content(wrong)
        else:
            wrong.write_bytes(
                self.content if isinstance(self.content, bytes) else self.content.encode()
            )

    def load(self) -> None:
        """Load the wrong file; the working directory is where it was written."""
        if self.file == "cluster":
            load_cluster(Path(CLUSTER_FILE), overrides=self.flags)
        else:
            load_job(Path(JOB_DIRECTORY), overrides=self.flags)

    @property
    def message(self) -> str:
        count = "1 problem" if len(self.says) == 1 else f"{len(self.says)} problems"
        return "\n".join(
            [f"the {self.file} file is wrong: {count}", *(f"  - {line}" for line in self.says)]
        )


def _case(
    file: Literal["cluster", "job"],
    beginning: str,
    title: str,
    content: str | bytes | Callable[[Path], object],
    *says: str,
    flags: tuple[str, ...] = (),
) -> BadInput:
    return BadInput(
        title, file, beginning + content if isinstance(content, str) else content, says, flags
    )


cluster, job = partial(_case, "cluster", ""), partial(_case, "job", "")
# Right as far as they begin.
lab, run = partial(_case, "cluster", LAB), partial(_case, "job", RUN)
