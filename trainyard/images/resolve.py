"""Which exact image a cluster runs: names and tags move, digests do not.

An image of ours is found by the tag of its sources' hash, which `image.push` sets and which can be told on a machine
without the image's base. The Docker engine that is to run the image is asked, as its way to the registry and its trust
count; where the nodes pull by themselves, the registry is asked through its own API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard import labels
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import catalog, content
from trainyard.images.build import Building
from trainyard.images.types import Image, PinnedImage
from trainyard.registry import access
from trainyard.registry.access import DEFAULT, host_port
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker import push as docker_push
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import HUB, ImageFacts
from trainyard.seams.registry.api import Manifest, RegistryApi
from trainyard.seams.registry.auth import Login
from trainyard.seams.registry.errors import (
    BusyError,
    CertificateError,
    GoneError,
    LoginError,
    MissingError,
    NoRegistryError,
    RegistryError,
)
from trainyard.seams.registry.login import docker_login, login, named_login
from trainyard.spec import ClusterSpec
from trainyard.spec.docker import Registry

_AWAY = (GoneError, BusyError)
# A registry that cannot be asked from here may well answer the nodes.
_OUT_OF_REACH = (*_AWAY, CertificateError, NoRegistryError)

Connect = Callable[[Registry, Mapping[str, str], Login | None], RegistryApi]


def for_engine(
    spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, *, directory: Path, running: str | None = None
) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/, or a reference to an image of others.

    `engine` is the one that is to run it; `running` is the reference that the cluster runs there: it stays where both
    mean the same image, as of one that was built, and pushed since. Raises RegistryError when the registry refuses or
    does not hold the image, PrerequisiteError when there is no registry and the image was never built.
    """
    found = _by_engine(spec, environ, engine, directory)
    if running is None or running == found.reference:
        return found
    before, now = (docker_images.inspect(engine, reference) for reference in (running, found.reference))
    return replace(found, reference=running) if before and now and before.id == now.id else found


def _by_engine(spec: ClusterSpec, environ: Mapping[str, str], engine: Engine, directory: Path) -> PinnedImage:
    name = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(name, directory=directory):
        return _of_others_by_engine(name, spec.registry, environ, engine)
    image = catalog.find(name, directory=directory, base=spec.build.base)
    building = Building(image, engine, spec)
    if spec.registry is not None:
        return _ours_by_engine(building, spec.registry, environ)
    built = docker_images.inspect(engine, building.reference)
    if built is None:
        try:
            return _ours_by_engine(building, DEFAULT, environ)
        except GoneError as error:
            raise PrerequisiteError(
                f"image {image.name} is not on the Docker engine ({engine.host}) as it is now",
                where=f"{building.reference}; the cluster file names no registry",
                hint=f"Build it: invoke image.build {image.name}",
            ) from error
    # Pushed to the registry on the engine's loopback, it runs by the digest that it has there.
    repository = f"{DEFAULT.address}/{DEFAULT.repository(image.name)}"
    digest = built.digest_in(repository)
    if digest is None:
        return PinnedImage(image.name, built.id, None)
    return PinnedImage(image.name, f"{repository}@{digest}", digest, login(DEFAULT, environ))


def for_nodes(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    loopback: bool = False,
    running: str | None = None,
    connect: Connect = access.connect,
) -> PinnedImage:
    """Return what the cluster's `image` means now, where each node pulls it; `login` is the one that they need.

    `loopback` says that the nodes are on this machine. `running` is the reference that the cluster runs: it stays while
    its registry does not answer. Raises RequestError without a registry that nodes can reach, MissingError for an image
    that was not pushed as it is now, another RegistryError when the registry refuses.
    """
    name = spec.image or catalog.DEFAULT_IMAGE
    asking = _Asking(environ, connect, loopback)
    if catalog.is_reference(name, directory=directory):
        found = asking.of_others(name, spec.registry)
        return (_kept(running, _split(name)[0], found.remark) if found.remark else None) or found
    image = catalog.find(name, directory=directory, base=spec.build.base)
    source = content.source_hash(image, environ, platform=spec.build.platform)
    registry = _reachable(spec, image.name, loopback=loopback)
    try:
        return asking.ours(image, registry, source)
    except _AWAY as error:
        kept = _kept(running, f"{registry.address}/{registry.repository(image.name)}", error.what)
        if kept is None:
            raise
        return kept


def _kept(running: str | None, repository: str, why: str) -> PinnedImage | None:
    """Return what a cluster runs, if that is of the same repository and by its digest."""
    before, _, digest = (running or "").partition("@")
    if running is None or not digest or before != repository:
        return None
    return PinnedImage(
        running, running, digest, remark=f"the cluster keeps the image that it runs: {why}", is_kept=True
    )


def _ours_by_engine(building: Building, registry: Registry, environ: Mapping[str, str]) -> PinnedImage:
    """Return the digest of what was pushed from these very files."""
    repository = f"{registry.address}/{registry.repository(building.image.name)}"
    tag = content.source_tag(building.source)
    used = login(registry, environ)
    try:
        digest = docker_push.registry_digest(building.engine, f"{repository}:{tag}", login=used)
    except _AWAY:
        # What the engine has from there, it can run without asking again: a digest never changes.
        held = docker_images.references(building.engine, label=f"{labels.SOURCE}={building.source}")
        digest = next(filter(None, (facts.digest_in(repository) for facts in held)), None)
        if digest is None:
            raise
    if digest is None:
        raise _not_pushed(building.image, registry, tag)
    return PinnedImage(building.image.name, f"{repository}@{digest}", digest, used)


def _not_pushed(image: Image, registry: Registry, tag: str) -> MissingError:
    return MissingError(
        f"registry {registry.address} does not hold image {image.name} as it is now",
        where=f"{registry.address}/{registry.repository(image.name)}:{tag}",
        hint="Its files changed since it was pushed, it never was, or its tag was removed. "
        f"Push it: invoke image.push {image.name}",
    )


def _of_others_by_engine(
    name: str, registry: Registry | None, environ: Mapping[str, str], engine: Engine
) -> PinnedImage:
    """Return the digest that a reference means now; what only this engine has is pinned by its id."""
    host = docker_images.registry_of(name)
    repository, _, digest = _split(name)
    here = None if digest else docker_images.inspect(engine, name)
    if here is not None and _was_made_here(name, here, engine, environ):
        return PinnedImage(name, here.id, None)
    used = login(registry, environ) if registry and registry.address == host else docker_login(host, environ)
    try:
        digest = digest or docker_push.registry_digest(engine, name, login=used)
    except _AWAY:
        # What was pulled before can be run; a refusal is told, lest an old image runs for ever.
        if here is None:
            raise
    digest = digest or (here.digest_in(repository) if here else None)
    if digest:
        return PinnedImage(name, f"{repository}@{digest}", digest, used)
    if here is not None:
        return PinnedImage(name, here.id, None)
    raise _no_such_image(name, f"not in its registry, and not on the Docker engine ({engine.host})")


def _was_made_here(name: str, here: ImageFacts, engine: Engine, environ: Mapping[str, str]) -> bool:
    """Say whether an image was built or loaded here: its name has no registry's host, and it was never pulled.

    An engine notes a digest in the image's repository when it pulls. Engines with containerd's image store note one
    for every image, the image's id: there, only Docker Hub can say whether it has this image. It does not tell a
    missing repository from a private one, so that every refusal means no.
    """
    if docker_images.registry_of(name) != HUB or name.startswith(f"{HUB}/"):
        return False
    noted = here.digest_in(_split(name)[0])
    if noted != here.id:
        return noted is None
    try:
        return docker_push.registry_digest(engine, name, login=docker_login(HUB, environ)) != noted
    except (RegistryError, PrerequisiteError):
        return True


def _no_such_image(name: str, where: str) -> MissingError:
    return MissingError(
        f"there is no image {name}: {where}",
        hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
    )


def _reachable(spec: ClusterSpec, image: str, *, loopback: bool) -> Registry:
    """Return the registry that this machine and the nodes can both reach."""
    hint = "Write `registry: {address: HOST:PORT}` with an address that the nodes reach too (one of our own: "
    hint += "`invoke registry.up`), or name an image that is in a registry already: `image: REGISTRY/NAME:TAG`."
    if spec.registry is None:
        raise RequestError(
            f"image {image} is built here, and the nodes of cluster {spec.name} pull theirs from a registry",
            where="the cluster file, which names no registry",
            hint=hint,
        )
    if host_port(spec.registry).is_loopback and not loopback:
        raise RequestError(
            f"the nodes of cluster {spec.name} cannot pull from {spec.registry.address}: to them, it is their own "
            "loopback",
            where="registry.address",
            hint=hint,
        )
    return spec.registry


@dataclass(frozen=True)
class _Asking:
    """Registries that are asked through their own API."""

    environ: Mapping[str, str]
    connect: Connect
    loopback: bool

    def ours(self, image: Image, registry: Registry, source: str) -> PinnedImage:
        repository, tag = registry.repository(image.name), content.source_tag(source)
        found, used = self._ask(registry, repository, tag)
        if found is None:
            raise _not_pushed(image, registry, tag)
        return PinnedImage(image.name, f"{registry.address}/{repository}@{found.digest}", found.digest, used)

    def of_others(self, name: str, named: Registry | None) -> PinnedImage:
        """Return the digest that a reference means now; what cannot be asked from here is left to the nodes."""
        host = docker_images.registry_of(name)
        registry = named if named and named.address == host else Registry(address=host)
        repository, tag, digest = _split(name)
        # Docker Hub keeps one-word names in library/.
        path = repository.removeprefix(f"{host}/")
        path = f"library/{path}" if host == HUB and "/" not in path else path
        if host_port(registry).is_loopback and not self.loopback:
            why = f"{host} is the nodes' own loopback, not this machine's"
            return _as_it_is(name, login(registry, self.environ), why)
        try:
            found, used = self._ask(registry, path, digest or tag)
        except _OUT_OF_REACH as error:
            return _as_it_is(name, login(registry, self.environ), error.what)
        except LoginError as error:
            # Nodes may have a login of their own: an instance's role, a pull secret of their service account.
            if login(registry, self.environ) is not None:
                raise
            return _as_it_is(name, None, error.what)
        if found is None:
            raise _no_such_image(name, f"not in its registry, {host}")
        return PinnedImage(name, f"{repository}@{found.digest}", found.digest, used)

    def _ask(self, registry: Registry, repository: str, reference: str) -> tuple[Manifest | None, Login | None]:
        """Ask with the cluster file's login; without one as nobody, then with the login that Docker keeps.

        A login that is not needed is not handed to the nodes. Registries may hide what is private: "not there" counts
        only from somebody who may see it.
        """
        used = named_login(registry, self.environ)
        refusal: LoginError | None = None
        answer = None
        try:
            with self.connect(registry, self.environ, used) as api:
                answer = api.manifest(repository, reference)
        except LoginError as error:
            refusal = error
        second = docker_login(registry.address, self.environ) if answer is None and used is None else None
        if second:
            with self.connect(registry, self.environ, second) as api:
                return api.manifest(repository, reference), second
        if refusal:
            raise refusal
        return answer, used


def _as_it_is(name: str, used: Login | None, why: str) -> PinnedImage:
    digest = name.partition("@")[2] or None
    remark = "" if digest else f"image {name} is used as it is, without a digest: {why}"
    if "speaks plain HTTP" in remark:
        host = name.partition("/")[0]
        remark += f". If meant, say so before the cluster is made: registry: {{address: {host}, insecure: true}}"
    return PinnedImage(name, name, digest, used, remark)


def _split(name: str) -> tuple[str, str, str | None]:
    """Return the repository as it is written, the tag, and the digest if there is one; Docker's own tag is latest."""
    name, _, digest = name.partition("@")
    repository, tag = docker_images.split_tag(name)
    return repository, tag or "latest", digest or None
