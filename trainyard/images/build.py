"""Build an image: its base, the image under the hash of its content, a name that people can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from trainyard import labels, versions
from trainyard.errors import OutsideError, PrerequisiteError
from trainyard.images import catalog, content
from trainyard.images.build_output import BuildProgress, build_error
from trainyard.images.types import Built, Image
from trainyard.registry.access import access, registry_of
from trainyard.seams import git
from trainyard.seams.docker import build as docker_build
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.build import BuildRequest
from trainyard.seams.docker.engine import Engine
from trainyard.seams.registry.login import login
from trainyard.spec import BuildSection, ClusterSpec
from trainyard.steps import YES, Answer, Step, no


@dataclass(frozen=True)
class Building:
    """An image, the engine that is to have it, and the cluster file that says how it is built and where it is kept.

    `report` gets how far a step is: its title, and a text.
    """

    image: Image
    engine: Engine
    spec: ClusterSpec
    no_cache: bool = False
    report: Callable[[str, str], None] = lambda title, text: None

    @cached_property
    def source(self) -> str:
        return content.source_hash(self.image, self.engine.environ, platform=self.spec.build.platform)

    @property
    def reference(self) -> str:
        """Return the name that the image has once it is built, with the base that the engine has now."""
        base = docker_images.inspect(self.engine, self.image.base)
        return f"{self.image.repository}:{content.tag(self.source, base=base.id if base else self.image.base)}"

    @property
    def alias(self) -> str:
        return f"{self.image.repository}:{self.image.alias}"


def steps(building: Building) -> list[Step]:
    """Return the steps after which the engine has the image under both of its names."""
    image, engine = building.image, building.engine
    base, title = f"Get the base {image.base}", f"Build image {image.name}"
    made: list[str] = []

    def is_built() -> Answer:
        if building.no_cache and not made:
            return no("to be built anew")
        reference = building.reference
        return YES if docker_images.inspect(engine, reference) else no(f"{reference} is not there")

    def build() -> None:
        _build(building, title)
        made.append(title)

    def tag() -> None:
        docker_images.tag(engine, building.reference, as_=building.alias)

    return [
        Step(base, done=lambda: _has_base(building), do=lambda: _get_base(building, base)),
        Step(title, done=is_built, do=build, after=base),
        Step(f"Tag it {image.alias}", done=lambda: _is_tagged(building), do=tag, after=title),
    ]


def built(building: Building) -> Built | None:
    """Return the image as the engine has it, or None if it was not built from what is here now."""
    reference = building.reference
    facts = docker_images.inspect(building.engine, reference)
    if facts is None:
        return None
    tag = reference.rpartition(":")[2]
    name, platform = building.image.name, building.spec.build.platform
    return Built(name, reference, building.alias, tag, building.source, facts.id, platform)


def image_labels(
    building: Building, *, tag: str, now: datetime, revision: str | None, origin: str | None
) -> dict[str, str]:
    """Return what the image says about itself (OCI image specification, annotations; and ours)."""
    image = building.image
    found = {
        f"{labels.OCI}.title": image.name,
        f"{labels.OCI}.version": tag,
        f"{labels.OCI}.created": now.isoformat(timespec="seconds"),
        f"{labels.OCI}.revision": revision,
        f"{labels.OCI}.source": origin,
        labels.BASE: image.base,
        labels.IMAGE: image.name,
        labels.CONTENT: tag,
        labels.SOURCE: building.source,
        labels.RAY: versions.RAY,
    }
    return {name: value for name, value in found.items() if value}


def _has_base(building: Building) -> Answer:
    base = docker_images.inspect(building.engine, building.image.base)
    if base is None:
        return no("it is not on this engine")
    # Without a platform it is the engine's own: the last build may have been one for other machines.
    platform = building.spec.build.platform or building.engine.platform
    return YES if f"{base.platform}/".startswith(f"{platform}/") else no(f"it is for {base.platform}, not {platform}")


def _get_base(building: Building, title: str) -> None:
    """Pull the base first, by itself: the hash depends on which one the engine has."""
    base, platform = building.image.base, building.spec.build.platform
    try:
        docker_images.pull(
            building.engine,
            base,
            auth=_base_login(building),
            platform=platform,
            on_progress=lambda text: building.report(title, text),
        )
    except OutsideError as error:
        target = f" for {platform}" if platform else ""
        raise OutsideError(
            f"the base of image {building.image.name} cannot be had{target}: {base}",
            where=error.where or error.what,
            hint="Name another one (--base, or build: {base: ...} in the cluster file), log in (docker login HOST), "
            "or bring it here: docker load -i FILE",
        ) from error


def _build(building: Building, title: str) -> None:
    """Run `docker buildx`. Raises BuildError, or RequestError for a wrong Dockerfile."""
    request, progress = _request(building), BuildProgress()
    docker_build.require(building.engine)

    def read(line: str) -> None:
        stage = progress.read(line)
        if stage and stage.text():
            building.report(title, stage.text())

    if docker_build.build(building.engine, request, on_line=read).code != 0:
        raise build_error(building.image.name, progress.failure())


def _request(building: Building) -> BuildRequest:
    image, settings, reference = building.image, building.spec.build, building.reference
    secrets = _secrets(settings)
    commit = git.revision(image.directory)
    revision = f"{commit['revision']}{'-dirty' if commit['dirty'] else ''}" if commit else None
    return BuildRequest(
        reference=reference,
        write=lambda target: content.write(image, target),
        arguments=catalog.arguments(image),
        labels=image_labels(
            building,
            tag=reference.rpartition(":")[2],
            now=datetime.now(timezone.utc),
            revision=revision,
            origin=git.origin(image.directory),
        ),
        platform=settings.platform,
        network=settings.network,
        no_cache=building.no_cache,
        secrets=secrets,
        cached=() if building.no_cache else cached_layers(building),
    )


def cached_layers(building: Building) -> tuple[str, ...]:
    """Return the image whose layers a build may use again: the last one, here or in the registry.

    BuildKit forgets its cache sooner or later, and a CI machine starts without one. Built anew, a layer gets another
    digest and is pushed again, however little has changed.
    """
    if docker_images.inspect(building.engine, building.alias):
        return (building.alias,)
    name, tag = building.image.name, building.image.alias
    try:
        with access(registry_of(building.spec), building.engine.environ) as registry:
            found = registry.api.manifest(registry.registry.repository(name), tag)
            return (registry.name(name, tag),) if found else ()
    except (OutsideError, PrerequisiteError):
        # A registry that does not answer costs time, not the build: the push says what is wrong with it.
        # OutsideError: AWS refuses keys that have expired.
        return ()


def _base_login(building: Building) -> Mapping[str, str] | None:
    """Return the cluster file's login where the base lies in its registry; None: Docker's own."""
    named, registry = building.spec.registry, docker_images.registry_of(building.image.base)
    found = login(named, building.engine.environ) if named and named.address == registry else None
    return found.for_engine(registry) if found else None


def _secrets(settings: BuildSection) -> dict[str, Path]:
    """Return the files that stages may mount. Raises PrerequisiteError for one that does not exist."""
    named = {"ca_bundle": settings.ca_bundle, "pip_config": settings.pip_config}
    found = {name: Path(path).expanduser().resolve() for name, path in named.items() if path}
    for name, path in found.items():
        if not path.is_file():
            raise PrerequisiteError(f"build.{name} is not a file: {path}", hint="Put it there, or name another one.")
    return found


def _is_tagged(building: Building) -> Answer:
    image, alias = (docker_images.inspect(building.engine, name) for name in (building.reference, building.alias))
    if alias is None:
        return no(f"there is no {building.alias}")
    return YES if image and image.id == alias.id else no(f"{building.alias} is another image")
