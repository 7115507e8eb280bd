"""The steps that make a registry of one's own run at its address, as its settings say."""

from __future__ import annotations

from trainyard.errors import OutsideError
from trainyard.registry import certificates, checks, container
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers, images, volumes
from trainyard.seams.registry.errors import BusyError, GoneError
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run

# The step that holds and may have something to warn of.
CHECK = "Check address, port and disk"
START_SECONDS = 20.0


def up(target: Target, progress: Progress) -> list[StepResult]:
    """Run the registry; safe to repeat."""
    checks.check_request(target)
    with target.alone(progress):
        return run(up_steps(target, progress), progress)


def plan_up(target: Target) -> list[PlannedStep]:
    """Say what `up` would change; change nothing."""
    checks.check_request(target)
    return plan(up_steps(target, None))


def up_steps(target: Target, progress: Progress | None) -> list[Step]:
    """Return the steps; `progress` hears how far the pull is."""
    image, start, ca = f"Get the image {target.registry.image}", f"Run {target.name}", "Make its CA"
    tls = not target.registry.insecure
    steps = [
        Step(CHECK, lambda: _can_run(target), _nothing),
        Step(image, lambda: _has_image(target), lambda: _pull(target, progress, image)),
        Step(ca, lambda: _has_ca(target), lambda: certificates.keep_ca(target, _known_ca(target))),
        Step("Make its volume", lambda: _has_volume(target), lambda: _make_volume(target)),
        Step(
            start,
            lambda: container.is_started(target),
            lambda: container.start(target),
            deadline=START_SECONDS,
            after=ca if tls else None,
        ),
        Step(f"It answers at {target.address}", lambda: _answers(target), _nothing, after=start),
    ]
    return [step for step in steps if tls or step.title != ca]


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _can_run(target: Target) -> Answer:
    address = target.bind_address
    found = target.container
    if found is None or not found.is_running:
        checks.check_port(target, address)
    warnings = checks.disk_warnings(checks.disk_free(target, found))
    return Answer(True, "; ".join([*warnings, *checks.address_warnings(target, address)]))


def _has_image(target: Target) -> Answer:
    return YES if images.inspect(target.engine, target.registry.image) else no("the engine does not have it")


def _pull(target: Target, progress: Progress | None, title: str) -> None:
    report = (lambda detail: progress.saw(title, detail)) if progress else None
    try:
        images.pull(target.engine, target.registry.image, on_progress=report)
    except OutsideError as error:
        raise OutsideError(
            f"the registry's own image {target.registry.image} cannot be pulled",
            where=error.where,
            hint="Without the internet: bring it with `docker save` and `docker load`, or name one that you have: "
            "registry.image",
        ) from error


def _has_ca(target: Target) -> Answer:
    return YES if (target.state / "ca.pem").exists() else no("there is none")


def _known_ca(target: Target) -> bytes | None:
    found = target.container
    return containers.read_file(target.engine, found.id, container.CA) if found else None


def _has_volume(target: Target) -> Answer:
    return YES if volumes.volume(target.engine, target.name) else no("there is none")


def _make_volume(target: Target) -> None:
    volumes.create_volume(target.engine, target.name, labels={LABEL: target.address})


def _answers(target: Target) -> Answer:
    """Ask the registry. Raises OutsideError, with its last words, when it ends or is started again and again."""
    found = target.container
    anew = "To make it anew, over the same images: invoke registry.down, then invoke registry.up"
    if found is None:
        raise OutsideError(f"the container {target.name} is gone", hint=anew)
    if not found.is_running:
        raise OutsideError(
            f"the registry ends as soon as it is started, with exit code {found.exit_code}",
            where=" | ".join([found.name, *containers.tail(target.engine, found.id, lines=5)]),
            hint=f"All that it printed: docker logs {found.name}. {anew}",
        )
    try:
        with target.api() as api:
            api.check()
    except (GoneError, BusyError) as error:
        return no(error.where or error.what)
    return YES
