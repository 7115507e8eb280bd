"""The steps that make a registry of one's own run at its address, as its settings say."""

from __future__ import annotations

from trainyard.errors import OutsideError
from trainyard.registry import authority, container, room
from trainyard.registry.site import LABEL, Site, alone
from trainyard.seams.docker import containers, images, volumes
from trainyard.seams.docker.once import run_once
from trainyard.seams.registry.errors import BusyError, GoneError
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run

CHECK = "Check address, port and disk"
DISK = "Check the disk of its host"
# Steps that may hold and have something to warn of.
CHECKS = (CHECK, DISK)
CA = "Make its CA"
START_SECONDS = 20.0


def up(site: Site, progress: Progress) -> list[StepResult]:
    """Run the registry; safe to repeat."""
    room.check_kind(site)
    room.check_login(site)
    with alone(site, progress):
        return run(up_steps(site, progress), progress)


def plan_up(site: Site) -> list[PlannedStep]:
    """Say what `up` would change; change nothing."""
    room.check_kind(site)
    room.check_login(site)
    return plan(up_steps(site, None))


def up_steps(site: Site, progress: Progress | None) -> list[Step]:
    """Return the steps; without anybody who sees progress, they are for a plan."""
    get = f"Get the image {site.registry.image}"
    start = f"Run {site.name}"
    tls = not site.registry.insecure
    steps = [
        Step(CHECK, done=lambda: _room(site), do=_nothing),
        Step(get, done=lambda: _has_image(site), do=lambda: _pull(site, progress, get)),
    ]
    if room.disk_free(site.engine, None) is None and progress is not None:
        # Only a container sees it; that takes the image, and a plan makes none.
        steps.append(Step(DISK, done=lambda: _disk(site), do=_nothing, after=get))
    if tls:
        steps.append(Step(CA, done=lambda: authority.is_there(site), do=lambda: authority.make(site)))
    return [
        *steps,
        Step("Make its volume", done=lambda: _has_volume(site), do=lambda: _make_volume(site)),
        Step(
            start,
            done=lambda: container.is_started(site),
            do=lambda: container.start(site),
            deadline=START_SECONDS,
            after=CA if tls else None,
        ),
        Step(f"It answers at {site.address}", done=lambda: _answers(site), do=_nothing, after=start),
    ]


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _room(site: Site) -> Answer:
    address = room.bind_address(site)
    found = site.container
    if found is None or not found.is_running:
        room.check_port(site, address)
    disk = room.disk_free(site.engine, None)
    return Answer(True, "; ".join([*room.disk_warnings(disk), *room.address_warnings(site, address)]))


def _disk(site: Site) -> Answer:
    return Answer(True, "; ".join(room.disk_warnings(room.disk_free(site.engine, lambda: _df(site)))))


def _df(site: Site) -> str:
    return run_once(site.engine, site.registry.image, ["-Pk", "/"], entrypoint=["df"]).stdout


def _has_image(site: Site) -> Answer:
    return YES if images.inspect(site.engine, site.registry.image) else no("the engine does not have it")


def _pull(site: Site, progress: Progress | None, title: str) -> None:
    report = (lambda seen: progress.saw(title, seen)) if progress else None
    try:
        images.pull(site.engine, site.registry.image, on_progress=report)
    except OutsideError as error:
        raise OutsideError(
            f"the registry's own image {site.registry.image} cannot be pulled",
            where=error.where,
            hint="Without the internet: bring it with `docker save` and `docker load`, or name one that you have: "
            "registry.image",
        ) from error


def _has_volume(site: Site) -> Answer:
    return YES if volumes.volume(site.engine, site.name) else no("there is none")


def _make_volume(site: Site) -> None:
    volumes.create_volume(site.engine, site.name, labels={LABEL: site.address})


def _answers(site: Site) -> Answer:
    _refuse_dead(site)
    try:
        with site.api() as api:
            api.check()
    except (GoneError, BusyError) as error:
        return no(error.where or error.what)
    return YES


def _refuse_dead(site: Site) -> None:
    """Raise OutsideError, with its last words, when the registry has ended or is started again and again."""
    found = site.container
    if found and found.is_running:
        return
    anew = "To make it anew, over the same images: invoke registry.down, then invoke registry.up"
    if found is None:
        raise OutsideError(f"the container {site.name} is gone", hint=anew)
    said = containers.tail(site.engine, found.id, lines=5)
    raise OutsideError(
        f"the registry ends as soon as it is started, with exit code {found.exit_code}",
        where=" | ".join([found.name, *said]),
        hint=f"All that it says: docker logs {found.name}. {anew}",
    )
