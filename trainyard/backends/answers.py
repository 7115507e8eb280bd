"""What a backend answers, and what stands for an answer where it leaves the function out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.backends.contract import Backend, Discovered, Finding, Tools, Verified
from trainyard.errors import RequestError
from trainyard.spec.cluster import ClusterSpec


def documents(backend: Backend, spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
    """Return what an outside system would be given, without secrets; [] where no such system makes
    the cluster.
    """
    if backend.documents:
        return backend.documents(spec, tools)
    return []


def diagnose(backend: Backend, spec: ClusterSpec, tools: Tools) -> list[Finding]:
    """Return what will break below the nodes; [] where the backend knows nothing below them."""
    if backend.diagnose:
        return backend.diagnose(spec, tools)
    return []


def billed(backend: Backend, spec: ClusterSpec, tools: Tools) -> list[str]:
    """Return what costs money as long as it runs; [] where machines are there anyway."""
    if backend.billed:
        return backend.billed(spec, tools)
    return []


def discover(
    backend: Backend,
    clusters: Sequence[tuple[ClusterSpec, Tools]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Find clusters of ours; none where only what is written down here leads to them."""
    if backend.discover is None:
        return Discovered()
    return backend.discover(clusters, states, environ, region=region)


def shell(
    backend: Backend, spec: ClusterSpec, tools: Tools, *, node: str, command: str, terminal: bool
) -> list[str]:
    """Return the program that is a shell on a node. Raises RequestError where nodes are no machines
    or containers.
    """
    if backend.shell is None:
        raise RequestError(
            f"cluster {spec.name} ({tools.backend}) has no nodes on which a shell could be started",
            hint="They are processes of this machine, or somebody else's: use a shell there, and "
            "their ports as they "
            "are.",
        )
    return backend.shell(spec, tools, node=node, command=command, terminal=terminal)


def verify(
    backend: Backend, spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]
) -> Verified:
    """Let every host pull and run the image. Raises RequestError where nodes run no images."""
    if backend.verify is None:
        raise RequestError(
            f"cluster {spec.name} ({tools.backend}) runs no images: there is nothing to verify",
            hint="Its nodes are not containers that Trainyard made. Name a cluster whose backend "
            "is compose or "
            "kuberay: trainyard image.verify --backend compose",
        )
    return backend.verify(spec, tools, report=report)
