"""Resolve a cluster's image to a digest, since a tag may move.

A pushed image is found by a tag, the hash of its files. `image.push` sets this
tag, and a machine without the image's base can compute it. The registry is
asked which digest a tag has now. A Docker engine may also run an image that is
in no registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.errors import RequestError, TrainyardError, in_a_line
from trainyard.images import build, catalog, content
from trainyard.images.build import Building
from trainyard.images.catalog import Image
from trainyard.registry import access
from trainyard.registry.access import DEFAULT
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import HUB
from trainyard.seams.registry.api import Manifest, RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import GoneError, LoginError, MissingError, RegistryError
from trainyard.seams.registry.login import docker_login, login, named_login
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.docker import Registry
from trainyard.steps import YES, Answer, Step, no

HEAD = "head"
Connect = Callable[[Registry, Mapping[str, str], Login | None], RegistryApi]


@dataclass(frozen=True)
class PinnedImage:
    """The exact image to run.

    If no registry has the image, `digest` is None and `reference` is an image
    id. If the registry could not be asked, `digest` is None and `remark` says
    why. If the registry did not answer and the cluster keeps the reference that
    it already runs, `is_kept` is true.
    """

    name: str
    reference: str
    digest: str | None
    login: Login | None = None
    remark: str = ""
    is_kept: bool = False


def step(spec: ClusterSpec, environ: Mapping[str, str], *, directory: Path) -> Step:
    """Return the step that resolves all images: missing images fail early.

    A plan shows the error as the step's detail.
    """

    def ask() -> None:
        pinned(spec, environ, directory=directory)
        of_groups(spec, environ, directory=directory)

    def done() -> Answer:
        try:
            ask()
        except TrainyardError as error:
            return no(in_a_line(error))
        return YES

    return Step("ask-image", "Ask the registry for the image", done, ask)


def pinned(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    engine: Engine | None = None,
    running: str | None = None,
    connect: Connect = access.connect,
) -> PinnedImage:
    """Resolve the head's `image`, a directory of images/ or a reference.

    `engine` will run the image; it is None if each node pulls it. `running` is
    the reference that the cluster runs now. If the registry does not answer, or
    if both references name one image on the engine, `running` is kept: a push
    changes the reference of a built image, but must not restart nodes.

    Raises RegistryError if the registry rejects the request or lacks the image.
    Without a registry, raises RequestError if nodes pull the image,
    PrerequisiteError if the engine lacks it.
    """
    name = spec.image_of(HEAD) or catalog.DEFAULT_IMAGE
    registries = _Registries(spec, environ, connect, running)
    if catalog.is_reference(name, directory=directory):
        image = (_made_here(name, engine) if engine else None) or registries.of_others(
            name, for_engine=bool(engine)
        )
    else:
        ours = catalog.find(name, directory=directory, base=spec.build.base)
        if spec.registry:
            image = registries.ours(ours, spec.registry)
        elif engine:
            image = _built_here(Building(ours, engine, spec), environ)
        else:
            raise no_registry(spec)

    if engine is None or running is None or running == image.reference:
        return image

    before, now = (
        docker_images.inspect(engine, reference) for reference in (running, image.reference)
    )
    if before and now and before.id == now.id:
        return replace(image, reference=running)

    return image


def of_groups(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    engine: Engine | None = None,
    running: Mapping[str, str] | None = None,
    connect: Connect = access.connect,
) -> dict[str, PinnedImage]:
    """Resolve group images that differ from the head's.

    `running` has references by group. Raises the same errors as `pinned`.
    """
    known: dict[str, PinnedImage] = {}
    found: dict[str, PinnedImage] = {}
    for group in spec.groups():
        name = spec.image_of(group)
        if name is None or name == spec.image_of(HEAD):
            continue

        if name not in known:
            known[name] = pinned(
                spec.with_image(name),
                environ,
                directory=directory,
                engine=engine,
                running=(running or {}).get(group) or None,
                connect=connect,
            )

        found[group] = known[name]

    return found


def distinct(image: PinnedImage, others: Mapping[str, PinnedImage]) -> list[PinnedImage]:
    """Return a cluster's different images, the head's first."""
    return list({each.reference: each for each in (image, *others.values())}.values())


def no_registry(spec: ClusterSpec, *, where: str = "the cluster file") -> RequestError:
    """Return the error that nodes pull images, but `registry:` is missing."""
    return RequestError(
        f"the nodes of cluster {spec.name} pull images from a registry, and the cluster file "
        "names none",
        where=where,
        hint="Write `registry: {address: HOST:PORT}` with an address that the nodes reach too, "
        "then "
        "`trainyard registry.up` if it is to run here; or name an image that is in a registry "
        "already: "
        "`image: REGISTRY/NAME:TAG`.",
    )


def pulled_bytes(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    connect: Connect = access.connect,
) -> int:
    """Return the bytes of a pull of the largest image; 0 if unknown."""
    try:
        image = pinned(spec, environ, directory=directory, connect=connect)
        others = of_groups(spec, environ, directory=directory, connect=connect)
        return max(_pulled_bytes(spec, environ, each, connect) for each in distinct(image, others))
    except TrainyardError:
        return 0


def _pulled_bytes(
    spec: ClusterSpec, environ: Mapping[str, str], image: PinnedImage, connect: Connect
) -> int:
    registry = access.registry_at(docker_images.registry_of(image.reference), spec)
    with connect(registry, environ, image.login) as api:
        return _bytes(api, _path(image.reference, registry.address), image.digest or "latest")


def _bytes(api: RegistryApi, path: str, digest: str) -> int:
    """Return the compressed layers' bytes, for the image's largest platform."""
    manifest = api.manifest(path, digest)
    if manifest is None:
        return 0
    return sum(layer.size for layer in manifest.layers) + max(
        (_bytes(api, path, each) for each in manifest.platforms), default=0
    )


def _built_here(building: Building, environ: Mapping[str, str]) -> PinnedImage:
    name = building.image.name
    facts = build.facts(building)
    # If the image was pushed to the default registry, on the engine's loopback, use that digest.
    repository = f"{DEFAULT.address}/{DEFAULT.repository(name)}"
    digest = facts.digest_in(repository)
    if digest is None:
        return PinnedImage(name, facts.id, None)
    return PinnedImage(name, f"{repository}@{digest}", digest, login(DEFAULT, environ))


def _made_here(name: str, engine: Engine) -> PinnedImage | None:
    """Return a built or loaded image; None if a registry must be asked.

    A pulled image has the repository's digest, so the registry is asked. With
    containerd's image store, a built image has a digest, too: its id. With that
    store, the engine's own copy of a Docker Hub image is used, even if it was
    pulled.
    """
    repository, _, digest = _split(name)
    image = None
    if not digest:
        image = docker_images.inspect(engine, name)
    if image is None:
        return None
    noted = image.digest_in(repository)
    if noted is None:
        return PinnedImage(name, image.id, None)
    is_of_hub = docker_images.registry_of(name) == HUB
    if is_of_hub and noted == image.id:
        return PinnedImage(name, f"{repository}@{noted}", noted)
    return None


@dataclass(frozen=True)
class _Registries:
    """Asks registries for an image; `running` is the current reference."""

    spec: ClusterSpec
    environ: Mapping[str, str]
    connect: Connect
    running: str | None

    def ours(self, image: Image, registry: Registry) -> PinnedImage:
        """Return the image that was pushed from exactly these files.

        If the registry does not answer, return the image that the cluster runs,
        provided it is from the same repository. Raises RegistryError.
        """
        source = content.source_hash(image, self.environ, platform=self.spec.build.platform)
        tag = content.source_tag(source)
        path = registry.repository(image.name)
        repository = f"{registry.address}/{path}"

        try:
            manifest, used = self._ask(registry, path, tag)
        except GoneError as error:
            if kept := self._kept(repository, error.what):
                return kept
            raise

        if manifest is None:
            raise MissingError(
                f"registry {registry.address} does not have the current version of image "
                f"{image.name}",
                where=f"{repository}:{tag}",
                hint="It was never pushed, its files changed since, or its tag was removed. "
                f"Push it: trainyard image.push {image.name}",
            )

        return PinnedImage(image.name, f"{repository}@{manifest.digest}", manifest.digest, used)

    def of_others(self, name: str, *, for_engine: bool) -> PinnedImage:
        """Resolve a reference to a digest.

        If nodes pull the image, an error of the registry only becomes a remark:
        nodes may have access that this machine lacks. For an engine, which may
        already have the image, only a registry that does not answer becomes a
        remark.
        """
        host = docker_images.registry_of(name)
        registry = access.registry_at(host, self.spec)
        repository, tag, digest = _split(name)
        path = _path(repository, host)
        try:
            manifest, used = self._ask(registry, path, digest or tag)
        except RegistryError as error:
            if for_engine and not isinstance(error, GoneError):
                raise
            known = login(registry, self.environ)
            if digest:
                return PinnedImage(name, name, digest, known)
            remark = f"image {name} is used as it is, without a digest: {error.what}"
            return self._kept(repository, remark) or PinnedImage(name, name, None, known, remark)

        if manifest is None:
            raise MissingError(
                f"image {name} is not in its registry, {host}",
                hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
            )

        return PinnedImage(name, f"{repository}@{manifest.digest}", manifest.digest, used)

    def _ask(
        self, registry: Registry, repository: str, reference: str
    ) -> tuple[Manifest | None, Login | None]:
        """Return a reference's manifest or None, and the login that was used.

        The cluster file's login is used. Without one, the first request is
        anonymous, so that nodes get no login that they do not need. Registries
        may hide private images from anonymous requests, so Docker's own login,
        if any, is tried next.
        """

        def asked_as(user: Login | None) -> Manifest | None:
            with self.connect(registry, self.environ, user) as api:
                return api.manifest(repository, reference)

        named = named_login(registry, self.environ)
        refusal = None
        try:
            if manifest := asked_as(named):
                return manifest, named
        except LoginError as error:
            refusal = error

        kept_by_docker = None
        if not named:
            kept_by_docker = docker_login(registry.address, self.environ)

        if kept_by_docker:
            return asked_as(kept_by_docker), kept_by_docker
        if refusal:
            raise refusal

        return None, named

    def _kept(self, repository: str, why: str) -> PinnedImage | None:
        """Return the cluster's image if it is a digest of this repository."""
        before, _, digest = (self.running or "").partition("@")
        if self.running is None or not digest or before != repository:
            return None
        remark = f"the cluster keeps the image that it runs: {why}"
        return PinnedImage(self.running, self.running, digest, remark=remark, is_kept=True)


def _path(name: str, host: str) -> str:
    """Return a repository's path in its registry."""
    path = _split(name)[0].removeprefix(f"{host}/")
    if host == HUB and "/" not in path:
        return f"library/{path}"
    return path


def _split(name: str) -> tuple[str, str, str]:
    """Split a reference into repository, tag and digest (or "")."""
    name, _, digest = name.partition("@")
    return (*docker_images.split_tag(name), digest)
