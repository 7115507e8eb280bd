"""The steps that make a registry of one's own run at its address, as its settings say."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from trainyard.errors import OutsideError, PrerequisiteError, RequestError
from trainyard.registry import certificates, container
from trainyard.registry.access import HostPort
from trainyard.registry.container import DATA, check_password
from trainyard.registry.target import LABEL, Target
from trainyard.results import formats
from trainyard.seams.docker import containers, images, volumes
from trainyard.seams.docker.containers import Container
from trainyard.seams.registry.errors import BusyError, GoneError
from trainyard.seams.registry.login import named_login
from trainyard.steps import YES, Answer, Progress, Step, StepResult, no, run

# The step that holds and may have something to warn of.
CHECK = "Check address, port and disk"
START_SECONDS = 20.0
GIBIBYTE = 1024**3
# Ray's own image takes 0.7 GiB, Isaac's tens of them.
DISK_NEEDED = 1 * GIBIBYTE
DISK_DESIRED = 20 * GIBIBYTE


def up(target: Target, progress: Progress) -> list[StepResult]:
    steps = up_steps(target, progress)
    with target.alone(progress):
        return run(steps, progress)


def up_steps(target: Target, progress: Progress | None = None) -> list[Step]:
    """Return the steps; `progress` hears how far the pull is. Raises RequestError for a registry that is not ours."""
    check_request(target)
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
        check_port(target, address)
    warnings = disk_warnings(disk_free(target, found))
    return Answer(True, "; ".join([*warnings, *address_warnings(target, address)]))


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


def check_request(target: Target) -> None:
    """Refuse a registry that is not ours to run, or a login that cannot be used, before anything is made."""
    if target.registry.login == "ecr":
        raise RequestError(
            f"{target.address} is Amazon's: registry.up runs registries of one's own",
            where=target.where,
            hint="Nothing needs to be started for it; its repositories are made in AWS.",
        )
    host = target.engine.host
    if not target.engine.is_here and target.host_port.is_loopback:
        raise RequestError(
            f"{target.address} would be reachable on {host} only, which is where Docker runs",
            where=target.where,
            hint=f"Give registry.address an address of {host} that this machine reaches.",
        )
    login = named_login(target.registry, target.environ)
    if login:
        check_password(login.username, login.password)


def check_port(target: Target, address: str) -> None:
    """Raise PrerequisiteError when somebody else has the port; say who, if it can be told."""
    port = target.host_port.port
    holder = containers.port_holder(target.engine, address, port)
    if holder:
        raise PrerequisiteError(
            f"port {port} of {address} is taken by {holder}",
            hint="End that if it is not needed (a container: docker rm -f NAME; MicroK8s' own registry, which uses "
            "32000: microk8s disable registry), or choose another port: registry.address.",
        )


def disk_free(target: Target, container: Container | None) -> int | None:
    """Return the free bytes where the engine keeps its data; None if that cannot be told.

    Engines elsewhere, rootless ones and Docker Desktop's are asked in the registry's container, once there is one.
    """
    root = Path(str(target.engine.info().get("DockerRootDir") or "/nowhere"))
    with suppress(OSError):
        if target.engine.is_here and root.is_dir():
            return shutil.disk_usage(root).free
    with suppress(OutsideError, IndexError, ValueError):
        if container:
            printed = containers.execute(target.engine, container.id, ["df", "-Pk", DATA])[1]
            return int(printed.splitlines()[-1].split()[3]) * 1024
    return None


def disk_warnings(free: int | None) -> list[str]:
    """Return what is worth a warning about the disk. Raises PrerequisiteError when it is as good as full."""
    if free is None or free >= DISK_DESIRED:
        return []
    if free < DISK_NEEDED:
        raise PrerequisiteError(
            f"too little disk for a registry: {formats.size(free)} free where Docker keeps its data",
            hint="Make room: docker system df, docker system prune",
        )
    return [f"only {formats.size(free)} of disk are free where Docker keeps its data, and training images are large"]


def address_warnings(target: Target, address: str) -> list[str]:
    """Return what is worth a warning about who can reach the registry, and how."""
    registry, host_port = target.registry, target.host_port
    if HostPort(address, host_port.port).is_loopback:
        if host_port.is_loopback:
            return []
        return [f"{host_port.host} is {address} here, so that no other host can reach the registry"]
    if registry.username is None:
        return [f"anybody who reaches {target.address} can push to it: give it registry.username and password_env"]
    if registry.insecure:
        return ["the password travels in clear text: leave out `insecure: true`, and TLS is made for you"]
    return []
