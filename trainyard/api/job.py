"""A job for Python, from a directory with a job.yaml, or from keywords."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard import paths
from trainyard.spec.job import JobSpec
from trainyard.spec.load import job_of, load_job

Overrides = Mapping[str, object] | Sequence[str] | str


def as_overrides(set: Overrides) -> list[str]:
    """Return overrides as values of `--set`, PATH=VALUE.

    >>> as_overrides({"workers.0.count": 2, "head.memory": "2GiB"})
    ['workers.0.count=2', 'head.memory="2GiB"']
    """
    if isinstance(set, Mapping):
        return [f"{path}={json.dumps(value, default=str)}" for path, value in set.items()]
    return [set] if isinstance(set, str) else list(set)


class Job:
    """A job: `spec` is its job file with defaults, and `directory` is sent.

    The keywords are the keys of a job file (docs/jobs.md). Without a directory,
    only files, wheels and modules of `runtime_env` are sent; their paths are
    relative to the current directory. Raises RequestError with every problem.

    >>> command = ["python", "-c", "print({seed})"]
    >>> job = Job(command=command, matrix={"seed": [0, 1]}, timeout="10m")
    >>> job.spec.name, job.spec.timeout
    ('job', 600.0)
    >>> Job(command=["true"], retry=2)
    Traceback (most recent call last):
    trainyard.errors.RequestError: the job is wrong: 1 problem
      - Job: retry: is not a known key; did you mean 'retries'?
    """

    spec: JobSpec
    directory: Path
    overrides: tuple[str, ...] = ()

    def __init__(
        self, *, name: str = "job", directory: str | Path | None = None, **keys: Any
    ) -> None:
        if directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="trainyard-job-"))
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
            keys = _from_here(keys)
            files = Path.cwd()
        else:
            self.directory = Path(directory).resolve()
            files = self.directory
        self.spec = job_of({**keys, "name": name}, directory=files)

    @classmethod
    def from_directory(cls, directory: str | Path, *, set: Overrides = ()) -> Job:
        """Load the job of a directory, or of a name under jobs/; apply `set`.

        >>> job = Job.from_directory("cartpole", set={"matrix.seed": [7]})
        >>> job.spec.matrix["seed"]
        (7,)
        """
        job = cls.__new__(cls)
        job.directory = paths.job_directory(str(directory), directory=Path.cwd())
        job.overrides = tuple(as_overrides(set))
        job.spec = load_job(job.directory, overrides=job.overrides)
        return job

    def __repr__(self) -> str:
        return f"<job {self.spec.name} of {self.directory}>"


def _from_here(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Make relative paths absolute, from the current directory."""
    runtime_env = keys.get("runtime_env")
    if not isinstance(runtime_env, Mapping):
        return dict(keys)

    resolved = dict(runtime_env)
    for key in ("files", "wheels"):
        if runtime_env.get(key):
            resolved[key] = [str(Path(file).resolve()) for file in runtime_env[key]]
    if runtime_env.get("py_modules"):
        resolved["py_modules"] = [_module(name) for name in runtime_env["py_modules"]]
    return {**keys, "runtime_env": resolved}


def _module(name: str) -> str:
    return name if "://" in name else str(Path(name).resolve())
