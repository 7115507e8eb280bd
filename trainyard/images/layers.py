"""Layers that were built before: on this engine, or in the registry where this machine has never built the image.

BuildKit forgets its cache sooner or later, and a CI machine starts without one. Built anew, a layer gets another digest
and is pushed again, however little has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images.access import access
from trainyard.images.types import Image
from trainyard.registry.settings import registry_of
from trainyard.seams import docker_images
from trainyard.seams.docker_engine import Engine
from trainyard.spec import ClusterSpec


def known(image: Image, engine: Engine, spec: ClusterSpec, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the references whose layers a build may use again: the last build's, here or in the registry."""
    local = f"{image.repository}:{image.alias}"
    if docker_images.inspect(engine, local):
        return (local,)
    try:
        with access(registry_of(spec), environ) as registry:
            there = registry.api.digest_of(registry.registry.repository(image.name), image.alias)
            return (registry.name(image.name, image.alias),) if there else ()
    except (OutsideError, PrerequisiteError):
        # A registry that cannot be asked costs time, not the build: what is wrong with it is said by the push.
        # OutsideError: AWS refuses keys that have expired.
        return ()
