"""Prove on every host of a cluster that it can pull the image and run it; which hosts those are, the backend knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trainyard import paths
from trainyard.backends import BACKENDS
from trainyard.backends.contract import Tools
from trainyard.images.image_command import ImageFlags
from trainyard.images.verified import Verified
from trainyard.spec import ClusterSpec


def verify(
    spec: ClusterSpec,
    flags: ImageFlags,
    environ: Mapping[str, str],
    *,
    source: Path,
    directory: Path,
    report: Callable[[str], None],
) -> Verified:
    """Let every host of the cluster pull the image and run it; `source` is the cluster's file.

    Raises RequestError for a cluster that runs no images.
    """
    state, overrides = paths.cluster_state(spec.name, environ), tuple(flags.overrides)
    tools = Tools(state, environ, spec.backend, source=source, overrides=overrides, directory=directory)
    return BACKENDS[spec.backend].verify(spec, tools, report=report)
