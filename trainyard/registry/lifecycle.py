"""The steps that start a registry in a container, and those that remove it."""

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
from trainyard.spec.units import GIB
from trainyard.steps import YES, Answer, Progress, Step, StepResult, no, nothing, warning

# The ids of two steps.
_CA = "ca"
_START = "start"
# `up` warns below this much free disk. Ray's own image takes 0.7 GiB, Isaac's tens of GiB.
DISK_DESIRED = 20 * GIB


def up_steps(target: Target, progress: Progress) -> list[Step]:
    """Return the steps to start the registry; `progress` shows the download."""
    image = f"Get the image {target.registry.image}"
    tls = not target.registry.insecure

    def has_image() -> Answer:
        if images.inspect(target.engine, target.registry.image):
            return YES
        return no("the engine does not have it")

    def has_ca() -> Answer:
        if certificates.load(target.state):
            return YES
        return no("there is none")

    steps = [
        Step("check", "Check address, port and disk", lambda: _can_run(target), nothing),
        Step("image", image, has_image, lambda: _pull(target, progress, image)),
    ]
    if tls:
        steps.append(Step(_CA, "Make its CA", has_ca, lambda: _make_ca(target)))
    steps += [
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
    return steps


def down(target: Target, progress: Progress, *, purge: bool) -> list[StepResult]:
    """Remove the registry's container, with `purge` also its images and its CA.

    Raises LeftoverError if something stays.
    """
    try:
        return target.run(down_steps(target, purge=purge), progress)
    except NotReadyError as error:
        raise LeftoverError(error.what, where=error.where, hint=error.hint) from error


def down_steps(target: Target, *, purge: bool) -> list[Step]:
    """Return the steps to remove the container; `purge` adds volume and CA."""

    def removal(
        id: str, title: str, left: Callable[[], object], remove: Callable[[], None]
    ) -> Step:
        def is_gone() -> Answer:
            if left():
                return no("it still exists")
            return YES

        return Step(id, title, is_gone, remove)

    name = target.name
    state = target.state
    title = f"Remove the container {name}"
    steps = [
        removal("container", title, lambda: target.container, lambda: container.remove(target))
    ]

    if purge:

        def remove_volume() -> None:
            containers.remove_volume(target.engine, name)

        title = f"Remove the volume {name} and every image in it"
        steps.append(removal("volume", title, lambda: target.volume, remove_volume))
    if purge and state.exists():
        steps.append(removal(_CA, "Remove its CA", state.exists, lambda: shutil.rmtree(state)))
    return steps


def images_here(target: Target) -> tuple[str, ...]:
    """Return the tags for this registry that are left on the engine."""
    names = []
    for image in images.ours(target.engine):
        names += [tag for tag in image.tags if tag.startswith(f"{target.address}/")]
    return tuple(sorted(names))


def _can_run(target: Target) -> Answer:
    """Check the port and the password; warn about disk and access.

    Raises PrerequisiteError if the port is taken, or the variable of the
    password is not set.
    """
    named_login(target.registry, target.environ)
    address = target.bind_address
    port = target.host_port.port
    current = target.container
    holder = None
    if current is None or current.state != "running":
        holder = containers.port_holder(target.engine, address, port)
    if holder:
        raise PrerequisiteError(
            f"port {port} of {address} is taken by {holder}",
            hint="If it is not needed, end it (a container: docker rm -f NAME; MicroK8s' own "
            "registry, which uses 32000: microk8s disable registry). Else choose another port: "
            "registry.address.",
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
            "one that you have: registry.image",
        ) from error


def _make_ca(target: Target) -> None:
    pair = None
    current = target.container
    if current:
        # If another machine made the container, keep the certificate that hosts trust.
        pair = container.read_certificate(target, current)
    pair = pair or certificates.make(target.host_port.host, now=target.now())
    certificates.save(pair, target.state)


def _answers(target: Target) -> Answer:
    """Say whether the registry answers.

    Raises OutsideError with the end of its log if its container does not run.
    """
    current = target.container
    if current is None or current.state != "running":
        code = "unknown"
        words: tuple[str, ...] = ()
        if current:
            code = str(current.exit_code)
            words = containers.tail(target.engine, current.id, lines=5)
        raise OutsideError(
            f"the registry ends as soon as it is started, with exit code {code}",
            where=" | ".join([target.name, *words]),
            hint=f"All that it printed: docker logs {target.name}. To replace it, with the same "
            "images: trainyard registry.down, then trainyard registry.up",
        )

    try:
        with target.api() as api:
            api.check()
    except GoneError as error:
        return no(error.where or error.what)
    return YES


def disk_free(target: Target) -> int | None:
    """Return the free bytes on the engine's disk; None if they are unknown."""
    root = Path(str(target.engine.info().get("DockerRootDir") or "/nowhere"))
    if target.engine.is_here:
        with suppress(OSError):
            return shutil.disk_usage(root).free
    return None


def warnings(registry: Registry, address: str, *, free: int | None) -> list[str]:
    """Return warnings about little free disk, and access by other machines."""
    texts = []
    if free is not None and free < DISK_DESIRED:
        texts.append(
            f"only {formats.size(free)} of disk are free where Docker keeps its data, and images "
            "are large"
        )

    if not is_loopback(address):
        if registry.username is None:
            texts.append(
                f"anybody who reaches {registry.address} can push to it: give it "
                "registry.username and password_env"
            )
        elif registry.insecure:
            texts.append(
                "the password travels in clear text: leave out `insecure: true`, and TLS is made "
                "for you"
            )

    return texts
