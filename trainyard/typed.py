"""The flags that named a cluster, as the next command needs them: a hint that is typed must mean the same cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

# Before an override of `train.dispatch` that is for the cluster file; any other is for the job file.
CLUSTER_PREFIX = "cluster."


@dataclass(frozen=True)
class Typed:
    """What was typed. Each family of tasks takes the same flags in a form of its own."""

    file: str | None = None
    overrides: tuple[str, ...] = ()
    backend: str | None = None

    @property
    def cluster(self) -> str:
        """Return the flags for cluster.* and smoke.run: "" or " -f lab --set head.cpus=2"."""
        return self._flags("") + _flag("--backend", self.backend)

    @property
    def image(self) -> str:
        """Return the flags for image.* and registry.*, which have no --backend."""
        return self._flags("")

    @property
    def train(self) -> str:
        """Return the flags for train.dispatch."""
        return self._flags(CLUSTER_PREFIX) + _flag("--backend", self.backend)

    def _flags(self, prefix: str) -> str:
        return _flag("-f", self.file) + "".join(_flag("--set", f"{prefix}{one}") for one in self.overrides)


def _flag(name: str, value: str | None) -> str:
    return f" {name} {shlex.quote(value)}" if value else ""
