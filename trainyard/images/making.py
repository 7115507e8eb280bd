"""The life of an image: built, checked, pushed; which steps, in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainyard import paths, steps, versions
from trainyard.errors import PrerequisiteError, RequestError
from trainyard.images import build, catalog, lint
from trainyard.images.access import access
from trainyard.images.lint import LintReport
from trainyard.images.push import Pushing
from trainyard.images.types import LABEL_IMAGE, Built, Image, Pushed
from trainyard.images.workbench import Workbench
from trainyard.registry.settings import registry_of
from trainyard.seams import docker_images
from trainyard.seams.docker_images import ImageFacts
from trainyard.spec.docker import Registry
from trainyard.steps import YES, PlannedStep, Progress, Step, StepResult, no


@dataclass(frozen=True)
class Made:
    """An image that was built, and what it took."""

    built: Built
    facts: ImageFacts
    results: list[StepResult]


@dataclass(frozen=True)
class Sent:
    """An image that was pushed, and what it took."""

    built: Built
    pushed: Pushed
    results: list[StepResult]


@dataclass(frozen=True)
class Listed:
    """An image that can be built here. `versions` are those that the engine has, the newest first.

    `problem` says what is wrong with its files; `image` is then None.
    """

    name: str
    image: Image | None
    current: str | None
    versions: tuple[ImageFacts, ...]
    problem: RequestError | None = None


def make(bench: Workbench, progress: Progress, *, no_cache: bool = False) -> Made:
    """Build the image; quick where nothing changed."""
    what = bench.building(no_cache=no_cache, saw=progress.saw)
    results = steps.run(build.steps(what), progress)
    built, facts = _built(what)
    return Made(built, facts, results)


def plan_make(bench: Workbench, *, no_cache: bool = False) -> list[PlannedStep]:
    """Say what building would do."""
    return steps.plan(build.steps(bench.building(no_cache=no_cache)))


def check(bench: Workbench, *, on_progress: Callable[[str], None]) -> LintReport:
    """Look at the image as it was built, or at one that others built. Raises PrerequisiteError if it is not here."""
    reference = bench.reference or _built(bench.building())[0].reference_local
    return lint.check(bench.image, reference, bench.engine, ray_version=versions.RAY, on_progress=on_progress)


def send(bench: Workbench, progress: Progress, *, skip_lint: bool = False) -> Sent:
    """Build the image if it changed, check it, push it."""
    with access(_registry(bench), bench.engine.environ) as registry:
        # Before anything is built: a login or a registry that is not there is told at once.
        registry.api.check()
        what = bench.building(saw=progress.saw)
        results = steps.run(build.steps(what), progress)
        built, _ = _built(what)
        if not skip_lint:
            results += steps.run([_lint_step(bench, built, progress)], progress)
        title = f"Push {registry.name(built.name, built.content)}"
        pushing = Pushing(built, registry, bench.engine, report=lambda text: progress.saw(title, text))
        results += steps.run(pushing.steps(), progress)
        return Sent(built, pushing.result(), results)


def plan_send(bench: Workbench, *, skip_lint: bool = False) -> list[PlannedStep]:
    """Say what pushing would do; of an image that is not built, only that it would be pushed."""
    what = bench.building()
    plan = steps.plan(build.steps(what))
    built = build.built(what)
    registry = _registry(bench)
    if built is None:
        after = f"after: Build image {what.image.name}"
        titles = [] if skip_lint else [f"Check image {what.image.name}"]
        titles.append(f"Push it to {registry.address}")
        return [*plan, *(PlannedStep(title, "after", after) for title in titles)]
    checks = [] if skip_lint else [PlannedStep(f"Check image {built.name}", "would", "it is run once")]
    with access(registry, bench.engine.environ) as way:
        way.api.check()
        return [*plan, *checks, *steps.plan(Pushing(built, way, bench.engine).steps())]


def listed(bench: Workbench) -> list[Listed]:
    """Return every image that can be built here, with what the engine has of it."""
    found = docker_images.references(bench.engine, label=LABEL_IMAGE)
    return [_listed(bench, name, found) for name in paths.image_names(bench.directory)]


def _registry(bench: Workbench) -> Registry:
    """Return where to push to. Raises RequestError where the default one is another for Docker than for us.

    Who names a registry on loopback may have forwarded its port.
    """
    registry = registry_of(bench.spec)
    if bench.spec.registry is None and not bench.engine.is_here:
        raise RequestError(
            f"registry {registry.address} is one of {bench.engine.host} for Docker, and one of this machine for us",
            where=f"{bench.source} names no registry",
            hint="Without a push, a cluster there runs what was built there: invoke image.build. "
            "Or name a registry that both machines reach: registry.address",
        )
    return registry


def _listed(bench: Workbench, name: str, found: list[ImageFacts]) -> Listed:
    own = [facts for facts in found if facts.labels.get(LABEL_IMAGE) == name]
    own.sort(key=lambda facts: facts.created, reverse=True)
    try:
        image, current = _current(bench, name, own)
    except RequestError as error:
        # One image that cannot be read does not hide the others.
        return Listed(name, None, None, tuple(own), error)
    return Listed(name, image, current, tuple(own))


def _current(bench: Workbench, name: str, own: list[ImageFacts]) -> tuple[Image, str | None]:
    """Return an image, and the id of what was built from its files as they are now."""
    # Built on another base than its file names (--base) is built, too.
    bases = [bench.spec.build.base, *(facts.labels.get(build.LABEL_BASE) for facts in own[:1])]
    images = [catalog.find(name, directory=bench.directory, base=base) for base in bases]
    for image in images:
        built = build.built(build.building(image, bench.engine, bench.spec.build))
        if built:
            return image, built.image_id
    return images[0], None


def _lint_step(bench: Workbench, built: Built, progress: Progress) -> Step:
    title = f"Check image {built.name}"
    passed: list[LintReport] = []

    def look() -> None:
        report = lint.check(
            bench.image,
            built.reference_local,
            bench.engine,
            ray_version=versions.RAY,
            on_progress=lambda text: progress.saw(title, text),
        )
        report.check()
        passed.append(report)

    return Step(title, done=lambda: YES if passed else no("to be looked at"), do=look)


def _built(what: build.Building) -> tuple[Built, ImageFacts]:
    """Return the image as the engine has it. Raises PrerequisiteError if it has not."""
    built = build.built(what)
    facts = docker_images.inspect(what.engine, built.reference_local) if built else None
    if built is None or facts is None:
        raise PrerequisiteError(
            f"image {what.image.name} was not built from what is in {what.image.directory} now",
            where=f"Docker engine {what.engine.host}: there is no {what.reference}",
            hint=f"Build it: invoke image.build {what.image.name}",
        )
    return built, facts
