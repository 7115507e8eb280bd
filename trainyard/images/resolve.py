"""Which exact image a cluster runs: names and tags move, digests do not.

An image of ours is found by the tag of its sources' hash, which `image.push` sets and which can be told on a machine
without the image's base. The Docker engine that is to run the image is asked, as its way to the registry and its trust
count; where the nodes pull by themselves, the registry is asked through its own API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from trainyard import labels
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import catalog, content
from trainyard.images.build import Building
from trainyard.images.types import Image, PinnedImage
from trainyard.registry import access
from trainyard.registry.access import DEFAULT
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import HUB
from trainyard.seams.registry.api import Manifest, RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import BusyError, GoneError, LoginError, MissingError, RegistryError
from trainyard.seams.registry.login import docker_login, login, named_login
from trainyard.spec import ClusterSpec
from trainyard.spec.docker import Registry

_AWAY = (GoneError, BusyError)

Connect = Callable[[Registry, Mapping[str, str], Login | None], RegistryApi]


def for_engine(
    spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, *, directory: Path, running: str | None = None
) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/, or a reference to an image of others.

    `engine` is the one that is to run it; `running` is the reference that the cluster runs there: it stays where both
    mean the same image, as of one that was built, and pushed since. Raises RegistryError when the registry refuses or
    does not hold the image, PrerequisiteError when there is no registry and the image was never built.
    """
    name = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(name, directory=directory):
        pinned = _of_others_by_engine(name, spec.registry, environ, engine)
    else:
        image = catalog.find(name, directory=directory, base=spec.build.base)
        pinned = _ours_by_engine(Building(image, engine, spec), environ)
    if running is None or running == pinned.reference:
        return pinned
    before, now = (docker_images.inspect(engine, reference) for reference in (running, pinned.reference))
    return replace(pinned, reference=running) if before and now and before.id == now.id else pinned


def for_nodes(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    running: str | None = None,
    connect: Connect = access.connect,
) -> PinnedImage:
    """Return what the cluster's `image` means now, where each node pulls it; `login` is the one that they need.

    `running` is the reference that the cluster runs: it stays while its registry does not answer. Raises RequestError
    without a registry, MissingError for an image that was not pushed as it is now, another RegistryError when the
    registry refuses.
    """
    name = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(name, directory=directory):
        return _of_others_by_nodes(name, spec.registry, environ, connect, running)
    image = catalog.find(name, directory=directory, base=spec.build.base)
    if spec.registry is None:
        raise RequestError(
            f"image {image.name} is built here, and the nodes of cluster {spec.name} pull theirs from a registry",
            where="the cluster file, which names no registry",
            hint="Write `registry: {address: HOST:PORT}` with an address that the nodes reach too (one of our own: "
            "`invoke registry.up`), or name an image that is in a registry already: `image: REGISTRY/NAME:TAG`.",
        )
    tag = content.source_tag(content.source_hash(image, environ, platform=spec.build.platform))
    repository = spec.registry.repository(image.name)
    whole = f"{spec.registry.address}/{repository}"
    try:
        manifest, used = _ask(spec.registry, environ, connect, repository, tag)
    except _AWAY as error:
        kept = _kept(running, whole, error.what)
        if kept is None:
            raise
        return kept
    if manifest is None:
        raise _not_pushed(image, spec.registry, tag)
    return PinnedImage(image.name, f"{whole}@{manifest.digest}", manifest.digest, used)


def _ours_by_engine(building: Building, environ: Mapping[str, str]) -> PinnedImage:
    """Return the digest of what was pushed from these very files; without a registry, what was built from them."""
    image, engine, registry = building.image, building.engine, building.spec.registry
    if registry is None:
        return _built_here(building, environ)
    repository = f"{registry.address}/{registry.repository(image.name)}"
    tag = content.source_tag(building.source)
    used = login(registry, environ)
    try:
        digest = docker_push.registry_digest(engine, f"{repository}:{tag}", login=used)
    except _AWAY:
        # What the engine has from there, it can run without asking again: a digest never changes.
        held = docker_images.references(engine, label=f"{labels.SOURCE}={building.source}")
        digest = next(filter(None, (facts.digest_in(repository) for facts in held)), None)
        if digest is None:
            raise
    if digest is None:
        raise _not_pushed(image, registry, tag)
    return PinnedImage(image.name, f"{repository}@{digest}", digest, used)


def _built_here(building: Building, environ: Mapping[str, str]) -> PinnedImage:
    image, engine = building.image, building.engine
    built = docker_images.inspect(engine, building.reference)
    if built is None:
        raise PrerequisiteError(
            f"image {image.name} is not on the Docker engine ({engine.host}) as it is now",
            where=f"{building.reference}; the cluster file names no registry",
            hint=f"Build it: invoke image.build {image.name}",
        )
    # Pushed to the registry on the engine's loopback, it runs by the digest that it has there.
    repository = f"{DEFAULT.address}/{DEFAULT.repository(image.name)}"
    digest = built.digest_in(repository)
    if digest is None:
        return PinnedImage(image.name, built.id, None)
    return PinnedImage(image.name, f"{repository}@{digest}", digest, login(DEFAULT, environ))


def _of_others_by_engine(
    name: str, registry: Registry | None, environ: Mapping[str, str], engine: Engine
) -> PinnedImage:
    """Return the digest that a reference means now; what only this engine has is pinned by its id."""
    host = docker_images.registry_of(name)
    repository, _, digest = _split(name)
    here = None if digest else docker_images.inspect(engine, name)
    noted = here.digest_in(repository) if here else None
    used = login(registry, environ) if registry and registry.address == host else docker_login(host, environ)
    # Engines note a digest where they pull. Those with containerd's image store note the image's own id of every image:
    # there, one of Docker Hub stays as it was pulled.
    is_made_here = here is not None and host == HUB and noted in (None, here.id)
    try:
        if digest is None and not is_made_here:
            digest = docker_push.registry_digest(engine, name, login=used)
    except _AWAY:
        # What was pulled before can be run; a refusal is told, lest an old image runs for ever.
        if here is None:
            raise
    digest = digest or noted
    if digest:
        return PinnedImage(name, f"{repository}@{digest}", digest, used)
    if here:
        return PinnedImage(name, here.id, None)
    raise _no_such_image(name, f"not in its registry, and not on the Docker engine ({engine.host})")


def _of_others_by_nodes(
    name: str, named: Registry | None, environ: Mapping[str, str], connect: Connect, running: str | None
) -> PinnedImage:
    """Return the digest that a reference means now; what a registry refuses to us, the nodes may still get."""
    host = docker_images.registry_of(name)
    registry = named if named and named.address == host else Registry(address=host)
    repository, tag, digest = _split(name)
    # Docker Hub keeps one-word names in library/.
    path = repository.removeprefix(f"{host}/")
    path = f"library/{path}" if host == HUB and "/" not in path else path
    try:
        manifest, used = _ask(registry, environ, connect, path, digest or tag)
    except RegistryError as error:
        if digest:
            return PinnedImage(name, name, digest, login(registry, environ))
        remark = f"image {name} is used as it is, without a digest: {error.what}"
        return _kept(running, repository, remark) or PinnedImage(name, name, None, login(registry, environ), remark)
    if manifest is None:
        raise _no_such_image(name, f"not in its registry, {host}")
    return PinnedImage(name, f"{repository}@{manifest.digest}", manifest.digest, used)


def _ask(
    registry: Registry, environ: Mapping[str, str], connect: Connect, repository: str, reference: str
) -> tuple[Manifest | None, Login | None]:
    """Ask with the cluster file's login; without one as nobody, then with the login that Docker keeps.

    A login that is not needed is not handed to the nodes. Registries may hide what is private: "not there" counts
    only from somebody who may see it.
    """

    def asked_as(who: Login | None) -> Manifest | None:
        with connect(registry, environ, who) as api:
            return api.manifest(repository, reference)

    used = named_login(registry, environ)
    refusal, manifest = None, None
    try:
        manifest = asked_as(used)
    except LoginError as error:
        refusal = error
    kept_by_docker = docker_login(registry.address, environ) if manifest is None and used is None else None
    if kept_by_docker:
        return asked_as(kept_by_docker), kept_by_docker
    if refusal:
        raise refusal
    return manifest, used


def _kept(running: str | None, repository: str, why: str) -> PinnedImage | None:
    """Return what a cluster runs, if that is of the same repository and by its digest."""
    before, _, digest = (running or "").partition("@")
    if running is None or not digest or before != repository:
        return None
    remark = f"the cluster keeps the image that it runs: {why}"
    return PinnedImage(running, running, digest, remark=remark, is_kept=True)


def _not_pushed(image: Image, registry: Registry, tag: str) -> MissingError:
    return MissingError(
        f"registry {registry.address} does not hold image {image.name} as it is now",
        where=f"{registry.address}/{registry.repository(image.name)}:{tag}",
        hint="Its files changed since it was pushed, it never was, or its tag was removed. "
        f"Push it: invoke image.push {image.name}",
    )


def _no_such_image(name: str, where: str) -> MissingError:
    return MissingError(
        f"there is no image {name}: {where}",
        hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
    )


def _split(name: str) -> tuple[str, str, str | None]:
    """Return the repository as it is written, the tag, and the digest if there is one; Docker's own tag is latest."""
    name, _, digest = name.partition("@")
    repository, tag = docker_images.split_tag(name)
    return repository, tag or "latest", digest or None
