"""The steps that make a registry of one's own run at its address, as its settings say, and those
that remove it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainyard.errors import LeftoverError, NotReadyError, OutsideError, PrerequisiteError
from trainyard.registry import certificates, container
from trainyard.registry.target import Target
from trainyard.results import formats
from trainyard.seams.addresses import is_loopback
from trainyard.seams.docker import containers, images, transfer
from trainyard.seams.registry.errors import GoneError
from trainyard.seams.registry.login import docker_login, named_login
from trainyard.spec.docker import Registry
from trainyard.steps import YES, Answer, Progress, Step, StepResult, no, nothing, warning

# The ids of two steps.
_CA = "ca"
_START = "start"
# Ray's own image takes 0.7 GiB, Isaac's tens of them.
DISK_DESIRED = 20 * 1024**3


def up_steps(target: Target, progress: Progress) -> list[Step]:
    """Return the steps; `progress` hears how far the pull is."""
    image = f"Get the image {target.registry.image}"
    tls = not target.registry.insecure
    make_ca = Step(
        _CA,
        "Make its CA",
        lambda: YES if certificates.load(target.state) else no("there is none"),
        lambda: _make_ca(target),
    )

    return [
        Step("check", "Check address, port and disk", lambda: _can_run(target), nothing),
        Step(
            "image",
            image,
            lambda: (
                YES
                if images.inspect(target.engine, target.registry.image)
                else no("the engine does not have it")
            ),
            lambda: _pull(target, progress, image),
        ),
        *([make_ca] if tls else []),
        Step(
            _START,
            f"Run {target.name}",
            lambda: container.is_started(target),
            lambda: container.start(target),
            after=_CA if tls else None,
        ),
        Step(
            "answers",
            f"It answers at {target.address}",
            lambda: _answers(target),
            nothing,
            after=_START,
        ),
    ]


def down(target: Target, progress: Progress, *, purge: bool) -> list[StepResult]:
    """Remove the registry, with `purge` also its images, its CA and its password; safe to
    repeat.
    """
    try:
        return target.run(down_steps(target, purge=purge), progress)
    except NotReadyError as error:
        raise LeftoverError(error.what, where=error.where, hint=error.hint) from error


def down_steps(target: Target, *, purge: bool) -> list[Step]:
    """Return the steps; what is removed is found by the address that containers and volumes
    carry.
    """

    def removal(
        id: str, title: str, left: Callable[[], object], remove: Callable[[], None]
    ) -> Step:
        return Step(id, title, lambda: no("it still exists") if left() else YES, remove)

    name = target.name
    state = target.state
    title = f"Remove the container {name}"
    steps = [
        removal("container", title, lambda: target.container, lambda: container.remove(target))
    ]

    if purge:
        title = f"Remove the volume {name} and every image in it"
        steps.append(
            removal(
                "volume",
                title,
                lambda: target.volume,
                lambda: containers.remove_volume(target.engine, name),
            )
        )

    if purge and state.exists():
        steps.append(removal(_CA, "Remove its CA", state.exists, lambda: shutil.rmtree(state)))

    return steps


def images_here(target: Target) -> tuple[str, ...]:
    """Return the names of the registry's that images of ours have on the engine; clusters may run
    them.
    """
    ours = images.ours(target.engine)
    return tuple(
        sorted(tag for image in ours for tag in image.tags if tag.startswith(f"{target.address}/"))
    )


def _can_run(target: Target) -> Answer:
    """Check the port and the password, and look for what to warn of.

    Raises PrerequisiteError when somebody else has the port, or the password is not where the file
    says.
    """
    named_login(target.registry, target.environ)
    address = target.bind_address
    port = target.host_port.port
    own = target.container
    holder = None

    if not (own and own.state == "running"):
        holder = containers.port_holder(target.engine, address, port)

    if holder:
        raise PrerequisiteError(
            f"port {port} of {address} is taken by {holder}",
            hint="End that if it is not needed (a container: docker rm -f NAME; MicroK8s' own "
            "registry, which uses "
            "32000: microk8s disable registry), or choose another port: registry.address.",
        )

    return warning(*warnings(target.registry, address, free=disk_free(target)))


def _pull(target: Target, progress: Progress, title: str) -> None:
    image = target.registry.image
    try:
        login = docker_login(images.registry_of(image), target.environ)
        transfer.pull(
            target.engine,
            image,
            login=login,
            on_progress=lambda detail: progress.saw(title, detail),
        )
    except OutsideError as error:
        raise OutsideError(
            f"the registry's own image {image} cannot be pulled",
            where=error.where,
            hint="Without the internet: bring it with `docker save` and `docker load`, or name "
            "one that you have: "
            "registry.image",
        ) from error


def _make_ca(target: Target) -> None:
    own = target.container
    made_elsewhere = None
    if own:
        made_elsewhere = container.read_certificate(target, own)
    certificates.save(
        made_elsewhere or certificates.make(target.host_port.host, now=target.now()), target.state
    )


def _answers(target: Target) -> Answer:
    """Ask the registry. Raises OutsideError, with its last words, when it ends or is started again
    and again.
    """
    own = target.container
    if own is None or own.state != "running":
        if own:
            words = containers.tail(target.engine, own.id, lines=5)
        else:
            words = ()

        raise OutsideError(
            "the registry ends as soon as it is started, with exit code "
            f"{own.exit_code if own else 'unknown'}",
            where=" | ".join([target.name, *words]),
            hint=f"All that it printed: docker logs {target.name}. To replace it, with the same "
            "images: trainyard "
            "registry.down, then trainyard registry.up",
        )

    try:
        with target.api() as api:
            api.check()
    except GoneError as error:
        return no(error.where or error.what)

    return YES


def disk_free(target: Target) -> int | None:
    """Return the free bytes where an engine on this machine keeps its data; None if that cannot be
    told.
    """
    root = Path(str(target.engine.info().get("DockerRootDir") or "/nowhere"))
    with suppress(OSError):
        if target.engine.is_here:
            return shutil.disk_usage(root).free
        return None
    return None


def warnings(registry: Registry, address: str, *, free: int | None) -> list[str]:
    """Return what is worth a warning about the disk, and about who can reach the registry, and
    how.
    """
    found = []
    if free is not None and free < DISK_DESIRED:
        found.append(
            f"only {formats.size(free)} of disk are free where Docker keeps its data, and images "
            "are large"
        )

    if not is_loopback(address):
        if registry.username is None:
            found.append(
                f"anybody who reaches {registry.address} can push to it: give it "
                "registry.username and password_env"
            )
        elif registry.insecure:
            found.append(
                "the password travels in clear text: leave out `insecure: true`, and TLS is made "
                "for you"
            )

    return found
