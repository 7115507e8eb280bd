"""Read a cluster file or a job directory; the one place that says who wins: defaults < file < --set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.job import JobSpec

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class LoadedCluster:
    """A cluster file as resolved: the spec, where it came from, and which values nobody wrote."""

    spec: ClusterSpec
    source: Path
    defaults: frozenset[KeyPath]


def load_cluster(path: Path, *, overrides: Sequence[str] = (), backend: str | None = None) -> LoadedCluster:
    """Return the cluster that a file describes. Raises RequestError with every problem at once."""
    raise NotImplementedError


def load_job(directory: Path, *, overrides: Sequence[str] = ()) -> JobSpec:
    """Return the job of a directory that holds a job.yaml. Raises RequestError with every problem at once."""
    raise NotImplementedError
