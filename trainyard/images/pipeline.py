"""The life of an image: built, checked, pushed; which steps, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trainyard import labels, paths, steps, versions
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import build, catalog, lint
from trainyard.images.build import Building
from trainyard.images.image_command import ImageCommand
from trainyard.images.lint import LintReport
from trainyard.images.push import Pushing
from trainyard.images.types import Built, Image, Pushed
from trainyard.registry.access import access, registry_of
from trainyard.seams.docker import images as docker_images
from trainyard.seams.docker.images import ImageFacts
from trainyard.steps import YES, PlannedStep, Progress, Stage, Step, StepResult, no

Report = Callable[[str, str], None]


@dataclass(frozen=True)
class ListedImage:
    """An image that can be built here. `versions` are those that the engine has, the newest first.

    `current` is the id of the one built from the files as they are. `problem` says what is wrong with these; `image`
    is then None.
    """

    name: str
    image: Image | None
    current: str | None
    versions: tuple[ImageFacts, ...]
    problem: RequestError | None = None


def run_build(command: ImageCommand, progress: Progress, *, no_cache: bool = False) -> tuple[Built, list[StepResult]]:
    building = command.building(no_cache=no_cache, report=progress.saw)
    results = steps.run(build.steps(building), progress)
    return _built(building), results


def plan_build(command: ImageCommand, *, no_cache: bool = False) -> list[PlannedStep]:
    return steps.plan(build.steps(command.building(no_cache=no_cache)))


def run_lint(command: ImageCommand, *, on_progress: Callable[[str], None]) -> LintReport:
    """Look at the image as it was built, or at one that others built. Raises PrerequisiteError if it is not here."""
    reference = _built(command.building()).reference_local if command.image else command.name
    return lint.check(command.image, reference, command.engine, ray_version=versions.RAY, on_progress=on_progress)


def run_push(command: ImageCommand, progress: Progress, *, skip_lint: bool = False) -> tuple[Pushed, list[StepResult]]:
    with _push(command, progress.saw, skip_lint=skip_lint) as (todo, pushing):
        results = steps.run(todo, progress)
        return pushing[-1].result(), results


def plan_push(command: ImageCommand, *, skip_lint: bool = False) -> list[PlannedStep]:
    with _push(command, lambda title, text: None, skip_lint=skip_lint) as (todo, _):
        return steps.plan(todo)


def listed(command: ImageCommand) -> list[ListedImage]:
    """Return every image that can be built here, with what the engine has of it."""
    engine, spec = command.engine, command.spec
    built_here = docker_images.references(engine, label=labels.IMAGE)
    newest_first = sorted(built_here, key=lambda facts: facts.created, reverse=True)
    images = []
    for name in paths.image_names(command.directory):
        own = tuple(facts for facts in newest_first if facts.labels.get(labels.IMAGE) == name)
        try:
            image = catalog.find(name, directory=command.directory, base=spec.build.base)
            current = build.built(Building(image, engine, spec))
            images.append(ListedImage(name, image, current.image_id if current else None, own))
        except RequestError as error:
            # One image that cannot be read does not hide the others.
            images.append(ListedImage(name, None, None, own, error))
    return images


@contextmanager
def _push(
    command: ImageCommand, report: Report, *, skip_lint: bool
) -> Iterator[tuple[list[Step | Stage], list[Pushing]]]:
    """Connect to the registry; give all steps, and the push itself once its steps are known."""
    with access(registry_of(command.spec), command.engine.environ) as registry:
        # Before anything is built: a registry that is away or refuses the login is reported at once.
        registry.api.check()
        building = command.building(report=report)
        pushing: list[Pushing] = []

        def expand() -> list[Step]:
            built = _built(building)
            title = f"Push {registry.name(built.name, built.content)}"
            pushing.append(Pushing(built, registry, command.engine, report=lambda text: report(title, text)))
            return pushing[-1].steps()

        *built_steps, tagged = build.steps(building)
        after = built_steps[-1].title
        lint_steps = [] if skip_lint else [_lint_step(command, building, report, after=after)]
        yield (
            [
                *(*built_steps, tagged, *lint_steps),
                Stage(f"Push it to {registry.registry.address}", expand, after=after),
            ],
            pushing,
        )


def _lint_step(command: ImageCommand, building: Building, report: Report, *, after: str) -> Step:
    title = f"Check image {building.image.name}"
    passed: list[LintReport] = []

    def check() -> None:
        found = run_lint(command, on_progress=lambda text: report(title, text))
        if found.error:
            raise found.error
        passed.append(found)

    return Step(title, done=lambda: YES if passed else no("it is run once"), do=check, after=after)


def _built(building: Building) -> Built:
    """Return the image as the engine has it. Raises PrerequisiteError if it has not."""
    built = build.built(building)
    if built is None:
        raise PrerequisiteError(
            f"image {building.image.name} was not built from what is in {building.image.directory} now",
            where=f"Docker engine {building.engine.host}: there is no {building.reference}",
            hint=f"Build it: invoke image.build {building.image.name}",
        )
    return built
