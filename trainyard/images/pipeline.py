"""The use cases of images: build, lint and push an image, or list all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainyard import paths, steps
from trainyard.errors import Problem, RequestError
from trainyard.images import build, catalog, lint
from trainyard.images.build import Building, Built, Report
from trainyard.images.catalog import Image
from trainyard.images.lint import LintReport
from trainyard.images.push import Pushed, Pushing
from trainyard.registry.access import access, registry_of
from trainyard.seams.docker import engine as docker_engine
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.engine import Engine
from trainyard.seams.docker.images import ImageFacts
from trainyard.spec.cluster import ClusterSpec, LoadedCluster
from trainyard.steps import YES, PlannedStep, Progress, Stage, Step, StepResult, no


@dataclass(frozen=True)
class ImageCommand:
    """The cluster file and the Docker engine of an image command."""

    spec: ClusterSpec
    source: Path
    engine: Engine
    directory: Path

    @property
    def name(self) -> str:
        return self.spec.image or catalog.DEFAULT_IMAGE

    @cached_property
    def image(self) -> Image | None:
        """Return the image's directory; None for a finished image's reference.

        Raises RequestError if there is no such directory.
        """
        if catalog.is_reference(self.name, directory=self.directory):
            return None
        return catalog.find(self.name, directory=self.directory, base=self.spec.build.base)

    @cached_property
    def building(self) -> Building:
        """Return the image to build. Raises RequestError for a reference."""
        if self.image is None:
            raise RequestError(
                f"{self.name} is a finished image: there is nothing to build",
                problems=(Problem(str(self.source), f"image: {self.name} is a full reference"),),
                hint=f"Name a directory of images/: {', '.join(paths.image_names(self.directory))}",
            )
        return Building(self.image, self.engine, self.spec)


@dataclass(frozen=True)
class ListedImage:
    """A buildable image and its `versions` on the engine, the newest first.

    `current` is the id of the version built from the current files, or None.
    `problem` is the error if the files cannot be read; `image` is then None.
    """

    name: str
    image: Image | None
    current: str | None
    versions: tuple[ImageFacts, ...]
    problem: RequestError | None = None


@contextmanager
def connected(
    cluster: LoadedCluster, environ: Mapping[str, str], *, directory: Path
) -> Iterator[ImageCommand]:
    """Connect to the engine that builds.

    Raises PrerequisiteError without Docker. With a registry, the engine is this
    user's. Without one, it is the cluster's `docker_host`, which must have the
    image.
    """
    address = None
    if cluster.spec.registry is None:
        address = cluster.spec.docker_host
    with docker_engine.connect(environ, address) as engine:
        yield ImageCommand(cluster.spec, cluster.source, engine, directory)


def run_build(
    command: ImageCommand, progress: Progress, *, no_cache: bool = False
) -> tuple[Built, list[StepResult]]:
    results = steps.run(build.steps(command.building, progress.saw, no_cache=no_cache), progress)
    return build.built(command.building), results


def plan_build(command: ImageCommand, *, no_cache: bool = False) -> list[PlannedStep]:
    return steps.plan(build.steps(command.building, no_cache=no_cache))


def run_lint(command: ImageCommand, *, on_progress: Callable[[str], None]) -> LintReport:
    """Check the built or the referenced image. Raises PrerequisiteError."""
    if command.image:
        reference = build.built(command.building).reference_local
    else:
        reference = command.name
    return lint.check(command.image, reference, command.engine, on_progress=on_progress)


def run_push(
    command: ImageCommand, progress: Progress, *, skip_lint: bool = False
) -> tuple[Pushed, list[StepResult]]:
    with _push(command, progress.saw, skip_lint=skip_lint) as (todo, pushing):
        results = steps.run(todo, progress)
        return pushing[-1].result(), results


def plan_push(command: ImageCommand, *, skip_lint: bool = False) -> list[PlannedStep]:
    with _push(command, lambda title, text: None, skip_lint=skip_lint) as (todo, _):
        return steps.plan(todo)


def listed(command: ImageCommand) -> list[ListedImage]:
    """Return all buildable images, with their versions on the engine."""
    engine = command.engine
    spec = command.spec
    built_here = docker_images.ours(engine)
    newest_first = sorted(built_here, key=lambda facts: facts.created, reverse=True)
    images = []

    for name in paths.image_names(command.directory):
        own = tuple(
            facts for facts in newest_first if facts.labels.get(docker_images.IMAGE_LABEL) == name
        )

        try:
            # `build.base` of the cluster file counts only for the image that the cluster runs.
            base = spec.build.base if name == command.name else None
            image = catalog.find(name, directory=command.directory, base=base)
            current = docker_images.inspect(engine, Building(image, engine, spec).reference)
            images.append(ListedImage(name, image, current.id if current else None, own))
        except RequestError as error:
            images.append(ListedImage(name, None, None, own, error))

    return images


@contextmanager
def _push(
    command: ImageCommand, report: Report, *, skip_lint: bool
) -> Iterator[tuple[list[Step | Stage], list[Pushing]]]:
    """Connect to the registry; yield the steps, and a list for the Pushing."""
    with access(registry_of(command.spec), command.engine.environ) as registry:
        # Before anything is built: the registry may not answer, or may reject the login.
        registry.api.check()
        pushing: list[Pushing] = []

        def expand() -> list[Step]:
            pushing.append(Pushing(build.built(command.building), registry, command.engine, report))
            return pushing[-1].steps()

        todo: list[Step | Stage] = [*build.steps(command.building, report)]
        if not skip_lint:
            todo.append(_lint_step(command, report, after=build.BUILD))

        title = f"Ask the registry {registry.registry.address}"
        yield [*todo, Stage("ask-registry", title, expand, after=build.BUILD)], pushing


def _lint_step(command: ImageCommand, report: Report, *, after: str) -> Step:
    title = f"Check image {command.building.image.name}"
    passed: list[LintReport] = []

    def check() -> None:
        found = run_lint(command, on_progress=lambda text: report(title, text))
        if found.error:
            raise found.error
        passed.append(found)

    return Step(
        "lint", title, done=lambda: YES if passed else no("not checked yet"), do=check, after=after
    )
