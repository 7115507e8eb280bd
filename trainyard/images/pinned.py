"""Which exact image a cluster runs: a digest that a registry holds, or an image id of one Docker engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.seams.docker_engine import Engine
from trainyard.spec import ClusterSpec


@dataclass(frozen=True)
class PinnedImage:
    """What to run. `digest` is None where no registry holds the image: `reference` is then an image id."""

    name: str
    reference: str
    digest: str | None


def pinned(spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, *, directory: Path) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/ or a full reference.

    Raises OutsideError when the registry does not hold what was pushed, PrerequisiteError when nothing was ever built.
    """
    raise NotImplementedError(engine.address, environ, directory, spec.image)
