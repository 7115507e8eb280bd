"""Which exact image a cluster runs: a digest that a registry holds, or an image id of one Docker engine.

Names and tags move, digests do not. The engine that will run the image is asked, since its way to the registry and its
trust are what count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images import build, catalog
from trainyard.images.access import access
from trainyard.images.build import Building
from trainyard.images.types import LABEL_SOURCE
from trainyard.registry.settings import DEFAULT
from trainyard.seams import docker_images, docker_push
from trainyard.seams.docker_engine import Engine
from trainyard.seams.docker_images import ImageFacts
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_login import docker_login, login
from trainyard.seams.registry_refusals import GoneError, MissingError, RegistryError
from trainyard.spec import ClusterSpec
from trainyard.spec.hosts import Registry


@dataclass(frozen=True)
class PinnedImage:
    """What to run. `digest` is None where no registry holds the image: `reference` is then an image id."""

    name: str
    reference: str
    digest: str | None
    login: Login | None = None


def pinned(
    spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, *, directory: Path, flag: str = ""
) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/, or a reference to an image of others.

    `engine` is the one that is to run it; `flag` is how the caller named the cluster file. Raises OutsideError when
    the registry does not hold the image, PrerequisiteError when there is no registry and the image was never built.
    """
    asked = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(asked, directory=directory):
        return _of_others(asked, spec.registry, environ, engine)
    image = catalog.find(asked, directory=directory, base=spec.build.base)
    what = build.building(image, engine, spec.build)
    if spec.registry is None:
        return _without_registry(what, environ, flag)
    return _in_registry(what, spec.registry, environ, flag)


def _in_registry(what: Building, registry: Registry, environ: Mapping[str, str], flag: str) -> PinnedImage:
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
            hint=f"Its files changed since it was pushed, or its tag was removed. Push it: invoke image.push{flag}",
        )
    return PinnedImage(name, f"{repository}@{digest}", digest, who)


def _digest_by_source(what: Building, registry: Registry, environ: Mapping[str, str]) -> str | None:
    """Return the digest under the readable tag, if it was built from the same files.

    A host without the image's base cannot tell which base the tag of the content stands for.
    """
    repository = registry.repository(what.image.name)
    try:
        with access(registry, environ) as way:
            found = way.api.manifest(repository, what.image.alias)
            config = json.loads(way.api.config(repository, found.config.digest)) if found and found.config else {}
    except GoneError:
        # The registry may be reachable from the Docker host only, and that one has answered.
        return None
    labels = config.get("config", {}).get("Labels") or {}
    return found.digest if found and labels.get(LABEL_SOURCE) == what.source else None


def _without_registry(what: Building, environ: Mapping[str, str], flag: str) -> PinnedImage:
    """Return what the engine itself has, else what the registry on its loopback has."""
    name = what.image.name
    found = docker_images.inspect(what.engine, what.reference)
    if found is not None:
        return PinnedImage(name, found.id, None)
    try:
        return _in_registry(what, DEFAULT, environ, flag)
    except OutsideError as error:
        raise PrerequisiteError(
            f"image {name} is not on the Docker engine ({what.engine.host}) as it is now",
            where=f"{what.reference}; the cluster file names no registry",
            hint=f"Build it: invoke image.build{flag}",
        ) from error


def _of_others(asked: str, registry: Registry | None, environ: Mapping[str, str], engine: Engine) -> PinnedImage:
    """Return the digest that a reference means now; what only this engine has is pinned by its id."""
    repository, digest = _split_digest(asked)
    if digest:
        return PinnedImage(asked, f"{repository}@{digest}", digest, _login_of(asked, registry, environ))
    here = docker_images.inspect(engine, asked)
    if here is not None and _was_made_here(asked, here):
        return PinnedImage(asked, here.id, None)
    who = _login_of(asked, registry, environ)
    try:
        digest = docker_push.digest_there(engine, asked, login=who)
    except RegistryError:
        if here is None:
            raise
    digest = digest or _digest_in(here, repository)
    if digest:
        return PinnedImage(asked, f"{repository}@{digest}", digest, who)
    if here is not None:
        return PinnedImage(asked, here.id, None)
    raise MissingError(
        f"there is no image {asked}: not in its registry, and not on the Docker engine ({engine.host})",
        hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
    )


def _login_of(asked: str, registry: Registry | None, environ: Mapping[str, str]) -> Login | None:
    host = docker_images.registry_of(asked)
    return login(registry, environ) if registry and registry.address == host else docker_login(host, environ)


def _was_made_here(asked: str, here: ImageFacts) -> bool:
    """Say whether an image was built or loaded here: its name has no registry, and it came from none."""
    return not here.digests and docker_images.registry_of(asked) == "docker.io" and not asked.startswith("docker.io/")


def _split_digest(asked: str) -> tuple[str, str | None]:
    """Return the repository without a tag, and the digest if one is given."""
    name, at, digest = asked.partition("@")
    return docker_images.split_tag(name)[0], digest if at else None


def _digest_here(engine: Engine, reference: str, repository: str) -> str | None:
    return _digest_in(docker_images.inspect(engine, reference), repository)


def _digest_in(found: ImageFacts | None, repository: str) -> str | None:
    """Return the digest that an image of the engine has in a repository."""
    names = (one.partition("@") for one in found.digests) if found else ()
    return next((digest for name, _, digest in names if name == repository), None)
