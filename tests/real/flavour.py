"""A second image with the same Ray, for a group of nodes that runs another image than the head."""

from __future__ import annotations

from tests.bed.engine import BedEngine
from tests.real.kube import RAY_IMAGE

FLAVOUR = "trainyard-bed/flavour:1"


def make(engine: BedEngine) -> str:
    """Make the image, in which $FLAVOUR is `workers`; return its name."""
    engine.docker("create", "--name", "flavour", RAY_IMAGE)
    engine.docker("commit", "--change", "ENV FLAVOUR=workers", "flavour", FLAVOUR)
    engine.docker("rm", "flavour")
    return FLAVOUR
