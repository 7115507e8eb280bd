"""Which exact image a cluster runs: a digest that a registry holds, or an image id of one Docker engine.

Names and tags move, digests do not. The engine that will run the image is asked, since its way to the registry and its
trust are what count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trainyard import labels
from trainyard.errors import PrerequisiteError
from trainyard.images import catalog
from trainyard.images.access import access
from trainyard.images.build import Building
from trainyard.images.others import of_others
from trainyard.images.types import PinnedImage
from trainyard.registry.settings import DEFAULT, place
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_login import login
from trainyard.seams.registry_refusals import GoneError, MissingError, RegistryError
from trainyard.spec import ClusterSpec
from trainyard.spec.docker import Registry

__all__ = ["PinnedImage", "pinned"]


def pinned(spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, *, directory: Path) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/, or a reference to an image of others.

    `engine` is the one that is to run it. Raises OutsideError when
    the registry does not hold the image, PrerequisiteError when there is no registry and the image was never built.
    """
    asked = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(asked, directory=directory):
        return of_others(asked, spec.registry, environ, engine)
    image = catalog.find(asked, directory=directory, base=spec.build.base)
    what = Building(image, engine, spec.build)
    if spec.registry is None:
        return _without_registry(what, environ)
    return _in_registry(what, spec.registry, environ)


def _in_registry(what: Building, registry: Registry, environ: Mapping[str, str]) -> PinnedImage:
    """Return the digest of what was pushed from these very files."""
    name, tag = what.image.name, what.reference.rpartition(":")[2]
    repository = f"{registry.address}/{registry.repository(name)}"
    who = login(registry, environ)
    try:
        digest = docker_push.digest_there(what.engine, f"{repository}:{tag}", login=who)
        digest = digest or _digest_by_source(what, registry, environ)
    except GoneError:
        # What this host pulled from there before, it can run without asking again: a digest never changes.
        digest = _digest_here(what.engine, what.reference, repository)
        if digest is None:
            raise
    if digest is None:
        raise MissingError(
            f"registry {registry.address} does not hold image {name} as it is now",
            where=f"{repository}:{tag}",
            hint=f"Its files changed since it was pushed, or its tag was removed. Push it: invoke image.push {name}",
        )
    return PinnedImage(name, f"{repository}@{digest}", digest, who)


def _digest_by_source(what: Building, registry: Registry, environ: Mapping[str, str]) -> str | None:
    """Return the digest under the readable tag, if it was built from the same files.

    A host without the image's base cannot tell which base the tag of the content stands for.
    """
    repository = registry.repository(what.image.name)
    if place(registry).is_loopback and not what.engine.is_here:
        # Ours is another loopback than the engine's.
        return None
    try:
        with access(registry, environ) as way:
            found = way.api.manifest(repository, what.image.alias)
            config = json.loads(way.api.config(repository, found.config.digest)) if found and found.config else {}
    except GoneError:
        # The registry may be reachable from the Docker host only, and that one has answered.
        return None
    found_labels = config.get("config", {}).get("Labels") or {}
    return found.digest if found and found_labels.get(labels.SOURCE) == what.source else None


def _without_registry(what: Building, environ: Mapping[str, str]) -> PinnedImage:
    """Return what the registry on the engine's loopback holds, else what the engine itself has.

    Nobody named that registry: where it refuses, what is here does as well.
    """
    name = what.image.name
    here = docker_images.inspect(what.engine, what.reference)
    if here is not None:
        who, digest = _in_default(what, here, environ)
        repository = _default_repository(what)
        return PinnedImage(name, f"{repository}@{digest}" if digest else here.id, digest, who)
    try:
        return _in_registry(what, DEFAULT, environ)
    except GoneError as error:
        raise PrerequisiteError(
            f"image {name} is not on the Docker engine ({what.engine.host}) as it is now",
            where=f"{what.reference}; the cluster file names no registry",
            hint=f"Build it: invoke image.build {name}",
        ) from error


def _in_default(what: Building, here: ImageFacts, environ: Mapping[str, str]) -> tuple[Login | None, str | None]:
    """Return the digest under which the registry on loopback holds an image of the engine, or held it when pushed."""
    repository, tag = _default_repository(what), what.reference.rpartition(":")[2]
    try:
        who = login(DEFAULT, environ)
        digest = docker_push.digest_there(what.engine, f"{repository}:{tag}", login=who)
    except (RegistryError, PrerequisiteError):
        return None, here.digest_in(repository)
    return who, digest or here.digest_in(repository)


def _default_repository(what: Building) -> str:
    return f"{DEFAULT.address}/{DEFAULT.repository(what.image.name)}"


def _digest_here(engine: Engine, reference: str, repository: str) -> str | None:
    found = docker_images.inspect(engine, reference)
    return found.digest_in(repository) if found else None
