"""Build an image on a pulled base, with a content hash and an alias as tags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path

from trainyard import versions
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images import content
from trainyard.images.build_output import BuildProgress
from trainyard.images.catalog import Image
from trainyard.registry.access import registry_at, registry_of
from trainyard.seams import git
from trainyard.seams.docker import cli, transfer
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.seams.registry.login import login
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import YES, Answer, Step, no

# The ids of two steps.
_BASE = "base"
BUILD = "build"
# A callback for the progress of a step, with the step's title and a text.
Report = Callable[[str, str], None]


@dataclass(frozen=True)
class Building:
    """The inputs of a build; the cluster file may have a `build:` section."""

    image: Image
    engine: Engine
    spec: ClusterSpec

    @cached_property
    def source(self) -> str:
        return content.source_hash(
            self.image, self.engine.environ, platform=self.spec.build.platform
        )

    @property
    def content(self) -> str:
        """Return the tag of a build on the engine's current base."""
        base = docker_images.inspect(self.engine, self.image.base)
        return content.tag(self.source, base=base.id if base else self.image.base)

    @property
    def reference(self) -> str:
        return f"{self.image.repository}:{self.content}"

    @property
    def alias(self) -> str:
        return f"{self.image.repository}:{self.image.alias}"


@dataclass(frozen=True)
class Built:
    """A built image on an engine.

    `content` is its tag, a hash of its files and base; `source` is the hash of
    its files alone.
    """

    name: str
    reference_local: str
    alias_local: str
    content: str
    source: str
    image_id: str
    platform: str = ""
    size: int = 0


def steps(
    building: Building, report: Report = lambda title, text: None, *, no_cache: bool = False
) -> list[Step]:
    """Return the steps: pull the base, build the image, add a readable tag."""
    image = building.image
    engine = building.engine
    base = f"Get the base {image.base}"
    title = f"Build image {image.name}"
    made: list[str] = []

    def is_built() -> Answer:
        if no_cache and not made:
            return no("to be built again")
        reference = building.reference
        if docker_images.inspect(engine, reference):
            return YES
        return no(f"{reference} is not there")

    def build() -> None:
        _build(building, lambda stage: report(title, stage), no_cache=no_cache)
        made.append(title)

    def is_tagged() -> Answer:
        names = building.reference, building.alias
        built, tagged = (docker_images.inspect(engine, name) for name in names)
        if built and tagged and built.id == tagged.id:
            return YES
        return no(f"{building.alias} is not this image")

    def tag() -> None:
        docker_images.tag(engine, building.reference, as_=building.alias)

    return [
        Step(
            _BASE,
            base,
            done=lambda: _has_base(building),
            do=lambda: _get_base(building, lambda text: report(base, text)),
        ),
        Step(BUILD, title, done=is_built, do=build, after=_BASE),
        Step("tag-built", f"Tag it {image.alias}", done=is_tagged, do=tag, after=BUILD),
    ]


def built(building: Building) -> Built:
    """Return the build of the current files. Raises PrerequisiteError."""
    found = facts(building)
    return Built(
        name=building.image.name,
        reference_local=building.reference,
        alias_local=building.alias,
        content=building.content,
        source=building.source,
        image_id=found.id,
        platform=found.platform,
        size=found.size,
    )


def facts(building: Building) -> ImageFacts:
    """Inspect the image of the current files. Raises PrerequisiteError."""
    image = building.image
    reference = building.reference
    found = docker_images.inspect(building.engine, reference)
    if found is None:
        raise PrerequisiteError(
            f"image {image.name} was not built from the current files in {image.directory}",
            where=f"Docker engine {building.engine.host}: there is no {reference}",
            hint=f"Build it: trainyard image.build {image.name}",
        )
    return found


def _has_base(building: Building) -> Answer:
    base = docker_images.inspect(building.engine, building.image.base)
    if base is None:
        return no("it is not on this engine")
    # Without `build.platform` the base must be for the engine's platform: the last build's base may
    # be for another.
    platform = building.spec.build.platform or building.engine.platform
    if f"{base.platform}/".startswith(f"{platform}/"):
        return YES
    return no(f"it is for {base.platform}, not {platform}")


def _get_base(building: Building, on_progress: Callable[[str], None]) -> None:
    """Pull the base first: the image's tag depends on the base's id."""
    base = building.image.base
    engine = building.engine
    spec = building.spec
    as_login = login(registry_at(docker_images.registry_of(base), spec), engine.environ)
    try:
        transfer.pull(
            engine, base, login=as_login, platform=spec.build.platform, on_progress=on_progress
        )
    except OutsideError as error:
        raise OutsideError(
            f"the base of image {building.image.name} cannot be pulled: {base}",
            where=error.where or error.what,
            hint="Name another one (--base, or build: {base: ...} in the cluster file), log in "
            "(docker login HOST), "
            "or bring it here: docker load -i FILE",
        ) from error


def _build(building: Building, on_stage: Callable[[str], None], *, no_cache: bool) -> None:
    """Run `docker buildx`.

    Raises OutsideError, or RequestError for a wrong Dockerfile.
    """
    image = building.image
    engine = building.engine
    settings = building.spec.build
    files = {"ca_bundle": settings.ca_bundle, "pip_config": settings.pip_config}
    cli.require(engine, "buildx", hint=cli.BUILDX)

    command = cli.build_command(
        engine.environ,
        building.reference,
        arguments=image.arguments,
        labels=_labels(building),
        secrets={name: Path(path).expanduser().resolve() for name, path in files.items() if path},
        cached=None if no_cache else _cached(building),
        platform=settings.platform,
        network=settings.network,
    )

    progress = BuildProgress()

    def read(line: str) -> None:
        if stage := progress.read(line):
            on_stage(stage)

    if cli.build(engine, command, context=partial(content.write, image), on_line=read).code != 0:
        raise progress.error(image.name)


def _cached(building: Building) -> str:
    """Return the last build's image, whose layers the next build reuses.

    The image is on the engine, else in the registry. BuildKit's own cache is
    pruned at times, and a CI machine starts without one. A layer that is built
    again gets another digest and is pushed again, even if nothing changed.
    BuildKit ignores a registry that lacks the image, or does not answer.
    """
    if docker_images.inspect(building.engine, building.alias):
        return building.alias
    registry = registry_of(building.spec)
    image = building.image
    return f"{registry.address}/{registry.repository(image.name)}:{image.alias}"


def _labels(building: Building) -> dict[str, str]:
    image = building.image
    tag = building.content
    commit = git.revision(image.directory)

    found = {
        f"{docker_images.OCI}.title": image.name,
        f"{docker_images.OCI}.version": tag,
        f"{docker_images.OCI}.created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        f"{docker_images.OCI}.revision": f"{commit['revision']}{'-dirty' if commit['dirty'] else ''}"
        if commit
        else "",
        f"{docker_images.OCI}.base.name": image.base,
        docker_images.IMAGE_LABEL: image.name,
        docker_images.CONTENT_LABEL: tag,
        "io.trainyard.source": building.source,
        "io.trainyard.ray": versions.RAY,
    }

    return {name: value for name, value in found.items() if value}
