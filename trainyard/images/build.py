"""Build an image: its base, the image under the hash of its content, a name that people can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from trainyard import versions
from trainyard.errors import OutsideError
from trainyard.images import build_secrets, catalog, content, context, digests
from trainyard.images.builders import run_buildx, run_classic
from trainyard.images.dockerfile import without_mounts
from trainyard.images.stages import Stage
from trainyard.images.types import LABEL_CONTENT, LABEL_IMAGE, LABEL_RAY, LABEL_SOURCE, Built, Image
from trainyard.seams import docker_build, docker_images, git
from trainyard.seams.docker_build import BuildRequest
from trainyard.seams.docker_engine import Engine
from trainyard.spec.docker import BuildSection
from trainyard.steps import YES, Answer, Step, no

OCI = "org.opencontainers.image"
LABEL_BASE = f"{OCI}.base.name"
# Told how far a step is: its title, and a text.
Saw = Callable[[str, str], None]
# What the engine wants to know to pull from a registry; None: what `docker login` keeps.
BaseLogin = Callable[[str], Mapping[str, str] | None]


def dockers_own(registry: str) -> Mapping[str, str] | None:
    """Leave the login to Docker's own configuration."""
    return None


def unseen(title: str, seen: str) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Building:
    """An image, the engine that is to have it, and how it is built.

    `source` is its content.source_hash; `layers` says which images' layers may be used again; `login` is asked for the
    login at the base's registry.
    """

    image: Image
    engine: Engine
    settings: BuildSection
    source: str
    no_cache: bool = False
    saw: Saw = unseen
    layers: Callable[[], tuple[str, ...]] = tuple
    login: BaseLogin = dockers_own

    @property
    def reference(self) -> str:
        """Return the name that the image has once it is built; the engine is asked for the base that it has now."""
        base = docker_images.inspect(self.engine, self.image.base)
        return f"{self.image.repository}:{content.tag(self.source, base=base.id if base else self.image.base)}"

    @property
    def alias(self) -> str:
        """Return the name that people read; the last build has it."""
        return f"{self.image.repository}:{self.image.alias}"


def building(
    image: Image,
    engine: Engine,
    settings: BuildSection,
    *,
    no_cache: bool = False,
    saw: Saw = unseen,
    layers: Callable[[], tuple[str, ...]] = tuple,
    login: BaseLogin = dockers_own,
) -> Building:
    """Return what is to be built. `saw` is told how far a step is; `layers` and `login` are asked only when needed."""
    digest = digests.remembered(engine.environ)
    source = content.source_hash(image, platform=settings.platform, digest=digest)
    return Building(image, engine, settings, source, no_cache, saw, layers, login)


def steps(what: Building) -> list[Step]:
    """Return the steps after which the engine has the image under both of its names."""
    base = f"Get the base {what.image.base}"
    title = f"Build image {what.image.name}"
    made: list[str] = []

    def is_built() -> Answer:
        if what.no_cache and not made:
            return no("to be built anew")
        reference = what.reference
        return YES if docker_images.inspect(what.engine, reference) else no(f"{reference} is not there")

    def build() -> None:
        made.append(_build(what, title))

    return [
        Step(base, done=lambda: _has_base(what), do=lambda: _get_base(what, base)),
        Step(title, done=is_built, do=build, after=base),
        Step(
            f"Tag it {what.image.alias}",
            done=lambda: _is_tagged(what),
            do=lambda: docker_images.tag(what.engine, what.reference, as_=what.alias),
            after=title,
        ),
    ]


def built(what: Building) -> Built | None:
    """Return the image as the engine has it, or None if it was not built from what is here now."""
    reference = what.reference
    found = docker_images.inspect(what.engine, reference)
    if found is None:
        return None
    tag = reference.rpartition(":")[2]
    return Built(what.image.name, reference, what.alias, tag, found.id, what.settings.platform)


def labels(
    what: Building, *, content_tag: str, now: datetime, revision: str | None, origin: str | None
) -> dict[str, str]:
    """Return what the image says about itself (OCI image specification, annotations; and ours)."""
    found = {
        f"{OCI}.title": what.image.name,
        f"{OCI}.version": content_tag,
        f"{OCI}.created": now.isoformat(timespec="seconds"),
        LABEL_BASE: what.image.base,
        f"{OCI}.revision": revision,
        f"{OCI}.source": origin,
        LABEL_IMAGE: what.image.name,
        LABEL_CONTENT: content_tag,
        LABEL_SOURCE: what.source,
        LABEL_RAY: versions.RAY,
    }
    return {name: value for name, value in found.items() if value}


def _has_base(what: Building) -> Answer:
    found = docker_images.inspect(what.engine, what.image.base)
    if found is None:
        return no("it is not on this engine")
    # Without a platform it is the engine's own: the last build may have been one for other machines.
    wanted = what.settings.platform or what.engine.platform
    if not f"{found.platform}/".startswith(f"{wanted}/"):
        return no(f"it is for {found.platform}, not {wanted}")
    return YES


def _get_base(what: Building, title: str) -> None:
    """Pull the base first, by itself: both builders then see the same one, and the hash can tell which."""
    try:
        docker_images.pull(
            what.engine,
            what.image.base,
            auth=what.login(docker_images.registry_of(what.image.base)),
            platform=what.settings.platform,
            on_progress=lambda text: what.saw(title, text),
        )
    except OutsideError as error:
        wanted = f" for {what.settings.platform}" if what.settings.platform else ""
        raise OutsideError(
            f"the base of image {what.image.name} cannot be had{wanted}: {what.image.base}",
            where=error.where or error.what,
            hint="Name another one (--base, or build: {base: ...} in the cluster file), log in (docker login HOST), "
            "or bring it here: docker load -i FILE",
        ) from error


def _build(what: Building, title: str) -> str:
    reference = what.reference
    text = context.dockerfile(what.image)
    secrets = build_secrets.files(what.settings)
    with_buildkit = docker_build.has_buildx(what.engine)
    if not with_buildkit:
        build_secrets.refuse(secrets)
        text = without_mounts(text)
    request = BuildRequest(
        reference=reference,
        write=lambda target: context.write(what.image, text, target),
        arguments=catalog.arguments(what.image),
        labels=labels(
            what,
            content_tag=reference.rpartition(":")[2],
            now=datetime.now(timezone.utc),
            revision=_revision(what.image.directory),
            origin=git.origin(what.image.directory),
        ),
        platform=what.settings.platform,
        network=what.settings.network,
        no_cache=what.no_cache,
        secrets=secrets,
        layers=what.layers() if with_buildkit and not what.no_cache else (),
    )
    run = run_buildx if with_buildkit else run_classic

    def on_stage(stage: Stage) -> None:
        if stage.text():
            what.saw(title, stage.text())

    run(what.engine, request, name=what.image.name, on_stage=on_stage)
    return reference


def _revision(directory: Path) -> str | None:
    """Return the commit of an image's directory, marked if it was changed since."""
    found = git.revision(directory)
    return f"{found['revision']}{'-dirty' if found['dirty'] else ''}" if found else None


def _is_tagged(what: Building) -> Answer:
    image, alias = (docker_images.inspect(what.engine, name) for name in (what.reference, what.alias))
    if alias is None:
        return no(f"there is no {what.alias}")
    return YES if image and image.id == alias.id else no(f"{what.alias} is another image")
