"""The steps that make a registry of one's own run at its address, as its settings say."""

from __future__ import annotations

import hashlib
import json

from trainyard.errors import OutsideError
from trainyard.registry import authority, inside, passwords, room
from trainyard.registry.site import LABEL, Site, alone
from trainyard.seams import docker_containers as containers
from trainyard.seams import docker_images as images
from trainyard.seams import docker_volumes as volumes
from trainyard.seams.docker_containers import Container, NewContainer
from trainyard.seams.registry_refusals import BusyError, GoneError
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run

# A hash of what the container was made with: another one is made anew, over the same data.
SETTINGS_LABEL = "io.trainyard.registry.settings"
CHECK = "Check address, port and disk"
CA = "Make its CA"


def up(site: Site, progress: Progress) -> list[StepResult]:
    """Run the registry; safe to repeat."""
    room.check_kind(site)
    with alone(site, progress):
        return run(up_steps(site, progress), progress)


def plan_up(site: Site) -> list[PlannedStep]:
    """Say what `up` would change; change nothing."""
    room.check_kind(site)
    return plan(up_steps(site, None))


def up_steps(site: Site, progress: Progress | None) -> list[Step]:
    """Return the steps: room, image, CA, volume, container, answer."""
    get = f"Get the image {site.registry.image}"
    start = f"Run {site.name}"
    tls = not site.registry.insecure
    steps = [
        Step(CHECK, done=lambda: _room(site), do=_nothing),
        Step(get, done=lambda: _has_image(site), do=lambda: _pull(site, progress, get)),
    ]
    if tls:
        steps.append(Step(CA, done=lambda: authority.is_there(site), do=lambda: authority.make(site)))
    return [
        *steps,
        Step("Make its volume", done=lambda: _has_volume(site), do=lambda: _make_volume(site)),
        Step(start, done=lambda: _runs(site), do=lambda: _run(site), deadline=20.0, after=CA if tls else None),
        Step(f"It answers at {site.address}", done=lambda: _answers(site), do=_nothing, after=start),
    ]


def _nothing() -> None:
    """Change nothing: such a step only asks, or waits for what an earlier one began."""


def _room(site: Site) -> Answer:
    address = room.bind_address(site)
    container = site.container
    if container is None or not container.is_running:
        room.check_port(site, address)
    warnings = [
        *room.disk_warnings(room.disk_free(site.engine, site.registry.image)),
        *room.address_warnings(site, address),
    ]
    return Answer(True, "; ".join(warnings))


def _has_image(site: Site) -> Answer:
    return YES if images.inspect(site.engine, site.registry.image) else no("the engine does not have it")


def _pull(site: Site, progress: Progress | None, title: str) -> None:
    try:
        images.pull(
            site.engine,
            site.registry.image,
            on_progress=(lambda seen: progress.saw(title, seen)) if progress else None,
        )
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


def _runs(site: Site) -> Answer:
    container = site.container
    if container is None:
        return no("there is no container")
    different = _difference(site, container)
    if different:
        return no(different)
    return YES if container.is_running else no(f"it is {container.state}")


def _difference(site: Site, container: Container) -> str | None:
    """Say in what a container differs from the settings."""
    if container.labels.get(SETTINGS_LABEL) != _settings_hash(site):
        return "it was made with other settings"
    login = site.login if site.registry.username else None
    if login:
        htpasswd = containers.read_file(site.engine, container.id, inside.HTPASSWD) or b""
        if not passwords.matches(htpasswd, login.username, login.password):
            return "it was made with another password"
    return None if site.registry.insecure else authority.problem_inside(site, container)


def _run(site: Site) -> None:
    """Make the container that the settings ask for, or start it if that is all it lacks."""
    container = site.container
    if container is None or _difference(site, container):
        made = _new_files(site)
        # By name, too: a container that was cut short before it got its label's value is still in the way.
        containers.remove(site.engine, container.id if container else site.name)
        identity = containers.create(site.engine, _wanted(site))
        containers.put_files(site.engine, identity, made)
    try:
        containers.start(site.engine, site.name)
    except OutsideError as error:
        raise _cannot_start(site, error) from error


def _new_files(site: Site) -> dict[str, containers.NewFile]:
    login = site.login if site.registry.username else None
    htpasswd = passwords.line(login.username, login.password) if login else None
    if site.registry.insecure:
        return inside.files(server=None, ca=None, htpasswd=htpasswd)
    ca = authority.pair(site)
    return inside.files(server=authority.server(site, ca), ca=ca.certificate, htpasswd=htpasswd)


def _wanted(site: Site) -> NewContainer:
    return NewContainer(
        name=site.name,
        image=site.registry.image,
        labels={LABEL: site.address, SETTINGS_LABEL: _settings_hash(site)},
        command=[inside.CONFIG],
        ports={inside.PORT: (room.bind_address(site), site.place.port)},
        volumes={site.name: inside.DATA},
        restart="unless-stopped",
    )


def _settings_hash(site: Site) -> str:
    registry = site.registry
    known = [registry.image, room.bind_address(site), site.place.port, registry.insecure, registry.username]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:12]


def _cannot_start(site: Site, error: OutsideError) -> OutsideError:
    said = error.where or ""
    # Docker leaves the container behind, not started: the next try begins with the check of the port.
    if "port is already allocated" in said or "address already in use" in said:
        return OutsideError(
            f"port {site.place.port} of {site.place.host} was taken meanwhile",
            where=said,
            hint="Choose another one in registry.address.",
        )
    if "cannot assign requested address" in said:
        return OutsideError(
            f"{site.place.host} is not an address of {site.engine.host}",
            where=said,
            hint="registry.address must be one of the machine that Docker runs on.",
        )
    if "unable to start container process" in said:
        return OutsideError(
            f"{site.registry.image} cannot be run as a registry",
            where=said,
            hint="registry.image must be one like docker.io's registry:2, which is given its configuration file.",
        )
    return error


def _answers(site: Site) -> Answer:
    container = site.container
    if container is None or not container.is_running or container.restarts > 1:
        _refuse_dead(site, container)
    try:
        with site.api() as api:
            api.check()
    except (GoneError, BusyError) as error:
        return no(error.where or error.what)
    return YES


def _refuse_dead(site: Site, container: Container | None) -> None:
    if container is None:
        raise OutsideError(f"the container {site.name} is gone", hint=f"Repeat: invoke registry.up{site.flag}")
    said = containers.tail(site.engine, container.id, lines=5)
    raise OutsideError(
        f"the registry ends as soon as it is started, with exit code {container.exit_code}",
        where=" | ".join([container.name, *said]),
        hint=f"Is {site.registry.image} a registry? All that it says: docker logs {container.name}",
    )
