"""The way to one Kubernetes API server, in the words of a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Access:
    """A context: its server, namespace and user. No files and no context: the cluster that we are a pod of.

    `plugin` is the program that logs in, if the user has one; `proxy` the one that the kubeconfig names.
    """

    context: str
    server: str
    namespace: str
    user: str
    files: tuple[Path, ...] = ()
    plugin: str | None = None
    proxy: str | None = None

    def __str__(self) -> str:
        return f"{self.server} (context {self.context})" if self.context else self.server

    @property
    def place(self) -> str:
        """Return what messages call it: a pod of it knows no context."""
        return f"context {self.context}" if self.context else self.server

    @property
    def source(self) -> str:
        """Return where it was read."""
        return ", ".join(map(str, self.files)) or "the service account of this pod"
