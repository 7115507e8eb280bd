"""Prove on every host of a cluster that it can pull the image and run it; which hosts those are, the backend knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainyard import paths
from trainyard.backends.contract import Tools
from trainyard.images import verify as of_engines
from trainyard.images.verify import Verified
from trainyard.images.workbench import Asked
from trainyard.spec import ClusterSpec
from trainyard.typed import Typed


def tools(spec: ClusterSpec, asked: Asked, environ: Mapping[str, str], *, source: Path, directory: Path) -> Tools:
    """Return what a backend needs besides the cluster file, from the flags of an image command."""
    typed = Typed(asked.file, tuple(asked.overrides), asked.backend or None)
    return Tools(paths.cluster_state(spec.name, environ), environ, source=source, typed=typed, directory=directory)


def verify(spec: ClusterSpec, tools: Tools, *, flag: str, tell: Callable[[str], None]) -> Verified:
    """Let every host pull the image by its digest, which asks the registry, and run it.

    `flag` is how the caller named the image's cluster. Raises RequestError for a cluster that runs no images.
    """
    if spec.backend == "kuberay":
        from trainyard.backends.kuberay.errands import verify as on_kubernetes

        return on_kubernetes.verify(spec, tools, tell=tell)
    return of_engines.verify(spec, tools.environ, directory=tools.directory, flag=flag, tell=tell)
