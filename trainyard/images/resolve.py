"""Find the exact image that a cluster runs: names and tags move, digests do not.

A pushed image is found by the tag of its sources' hash, which `image.push` sets and which can be
told on a machine without the image's base. The registry is asked what a tag means now; a Docker
engine may also run what only it has.
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

    `digest` is None where no registry holds the image: `reference` is then an image id. `remark`
    says why `reference` has no digest although a registry may hold it, or why it `is_kept`: the
    registry did not answer from here, and the cluster runs that already.
    """

    name: str
    reference: str
    digest: str | None
    login: Login | None = None
    remark: str = ""
    is_kept: bool = False


def step(spec: ClusterSpec, environ: Mapping[str, str], *, directory: Path) -> Step:
    """Return the step that asks for the images before anything is made; a plan only mentions it."""

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
    """Return what the head's `image` means now: a directory of images/, or any reference.

    `engine` is the one that is to run it; None: each node pulls it by itself. `running` is the
    reference that the cluster runs: it stays while its registry does not answer, and where both
    mean the same image of the engine, as of one that was built, and pushed since. Raises
    RegistryError when the registry refuses or does not hold the image; without a registry
    RequestError for nodes, PrerequisiteError where the image was never built.
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
    """Return the same for each group whose image is not the head's; `running` is by group.

    Raises what `pinned` does.
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
    """Return the images of a cluster, each once, the head's first."""
    return list({each.reference: each for each in (image, *others.values())}.values())


def no_registry(spec: ClusterSpec, *, where: str = "the cluster file") -> RequestError:
    """Return the error for nodes that pull a built image, and no file says from where."""
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
    """Return the size of a pull of the largest image; 0 where the registry does not tell it."""
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
    """Return what the layers take as they are sent; of an image for several platforms, the most."""
    manifest = api.manifest(path, digest)
    if manifest is None:
        return 0
    return sum(layer.size for layer in manifest.layers) + max(
        (_bytes(api, path, each) for each in manifest.platforms), default=0
    )


def _built_here(building: Building, environ: Mapping[str, str]) -> PinnedImage:
    name = building.image.name
    facts = build.facts(building)
    # Pushed to the registry on the engine's loopback, it runs by the digest that it has there.
    repository = f"{DEFAULT.address}/{DEFAULT.repository(name)}"
    digest = facts.digest_in(repository)
    if digest is None:
        return PinnedImage(name, facts.id, None)
    return PinnedImage(name, f"{repository}@{digest}", digest, login(DEFAULT, environ))


def _made_here(name: str, engine: Engine) -> PinnedImage | None:
    """Return an image that was built or loaded here; one that was pulled has a digest noted.

    Those with containerd's image store note the image's own id of every image: there, one of Docker
    Hub stays as it was pulled.
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
    """Registries, asked about one cluster's image; the cluster runs the reference `running`."""

    spec: ClusterSpec
    environ: Mapping[str, str]
    connect: Connect
    running: str | None

    def ours(self, image: Image, registry: Registry) -> PinnedImage:
        """Return the digest of what was pushed from these very files."""
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
                f"registry {registry.address} does not hold image {image.name} as it is now",
                where=f"{repository}:{tag}",
                hint="Its files changed since it was pushed, it never was, or its tag was removed. "
                f"Push it: trainyard image.push {image.name}",
            )

        return PinnedImage(image.name, f"{repository}@{manifest.digest}", manifest.digest, used)

    def of_others(self, name: str, *, for_engine: bool) -> PinnedImage:
        """Return the digest of a reference; a registry may give nodes what it denies this machine."""
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
                f"there is no image {name}: not in its registry, {host}",
                hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
            )

        return PinnedImage(name, f"{repository}@{manifest.digest}", manifest.digest, used)

    def _ask(
        self, registry: Registry, repository: str, reference: str
    ) -> tuple[Manifest | None, Login | None]:
        """Ask with the cluster file's login; without one anonymously, then with Docker's login.

        A login that is not needed is not handed to the nodes. Registries may hide private images:
        "not there" counts only from a user who may see it.
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
        """Return what the cluster runs, if that is of the same repository and by its digest."""
        before, _, digest = (self.running or "").partition("@")
        if self.running is None or not digest or before != repository:
            return None
        remark = f"the cluster keeps the image that it runs: {why}"
        return PinnedImage(self.running, self.running, digest, remark=remark, is_kept=True)


def _path(name: str, host: str) -> str:
    """Return what a registry calls a repository: Docker Hub keeps one-word names in library/."""
    path = _split(name)[0].removeprefix(f"{host}/")
    if host == HUB and "/" not in path:
        return f"library/{path}"
    return path


def _split(name: str) -> tuple[str, str, str]:
    """Return the repository as it is written, the tag, and the digest if there is one."""
    name, _, digest = name.partition("@")
    return (*docker_images.split_tag(name), digest)
