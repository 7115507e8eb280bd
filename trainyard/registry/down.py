"""The steps that remove a registry of ours; its images stay unless that is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from trainyard.errors import LeftoverError, NotReadyError
from trainyard.registry import container
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers, images
from trainyard.steps import YES, Progress, Step, StepResult, no, run


def down(target: Target, progress: Progress, *, purge: bool) -> list[StepResult]:
    """Remove the registry, with `purge` also its images, its CA and its password; safe to repeat."""
    with target.alone(progress):
        try:
            return run(down_steps(target, purge=purge), progress)
        except NotReadyError as error:
            raise LeftoverError(error.what, where=error.where, hint=error.hint) from error


def down_steps(target: Target, *, purge: bool) -> list[Step]:
    """Return the steps; what is removed is found by the address that containers and volumes carry."""

    def removal(title: str, left: Callable[[], object], remove: Callable[[], None]) -> Step:
        return Step(title, lambda: no("it still exists") if left() else YES, remove)

    def remove_volumes() -> None:
        for name in _volumes(target):
            containers.remove_volume(target.engine, name)

    name, state = target.name, target.state
    steps = [removal(f"Remove the container {name}", lambda: target.container, lambda: container.remove(target))]
    if purge:
        title = f"Remove the volume {name} and every image in it"
        steps.append(removal(title, lambda: _volumes(target), remove_volumes))
    if purge and state.exists():
        steps.append(removal("Remove its CA", state.exists, lambda: shutil.rmtree(state)))
    return steps


def kept_volume(target: Target) -> str | None:
    """Return the name of the volume that still holds the registry's images, or None."""
    return next(iter(_volumes(target)), None)


def images_here(target: Target) -> tuple[str, ...]:
    """Return the names of the registry's that images of ours have on the engine; clusters may run them."""
    ours = images.ours(target.engine)
    return tuple(sorted(tag for image in ours for tag in image.tags if tag.startswith(f"{target.address}/")))


def _volumes(target: Target) -> list[str]:
    return [volume.name for volume in containers.volumes(target.engine, f"{LABEL}={target.address}")]
