"""The steps that remove a registry of ours; its images stay unless that is asked for."""

from __future__ import annotations

import shutil

from trainyard import labels
from trainyard.errors import LeftoverError, NotReadyError
from trainyard.registry.site import LABEL, Site, alone
from trainyard.seams.docker import containers, images, volumes
from trainyard.steps import YES, Answer, PlannedStep, Progress, Step, StepResult, no, plan, run


def down(site: Site, progress: Progress, *, purge: bool) -> list[StepResult]:
    """Remove the registry, with `purge` also its images, its CA and its password; safe to repeat."""
    with alone(site, progress):
        try:
            return run(down_steps(site, purge=purge), progress)
        except NotReadyError as error:
            raise LeftoverError(error.what, where=error.where, hint=error.hint) from error


def plan_down(site: Site, *, purge: bool) -> list[PlannedStep]:
    """Say what `down` would remove; change nothing."""
    return plan(down_steps(site, purge=purge))


def down_steps(site: Site, *, purge: bool) -> list[Step]:
    """Return the steps, found by the address that containers and volumes carry."""
    steps = [Step(f"Remove the container {site.name}", done=lambda: _no_container(site), do=lambda: _remove(site))]
    if not purge:
        return steps
    volume = f"Remove the volume {site.name} and every image in it"
    steps.append(Step(volume, done=lambda: _no_volume(site), do=lambda: _remove_volumes(site)))
    if site.state.exists():
        steps.append(Step("Remove its CA", done=lambda: _no_state(site), do=lambda: shutil.rmtree(site.state)))
    return steps


def kept_volume(site: Site) -> str | None:
    """Return the name of the volume that still holds the registry's images, or None."""
    found = _volumes(site)
    return found[0] if found else None


def images_here(site: Site) -> tuple[str, ...]:
    """Return the names of the registry's that images of ours have on the engine; clusters may run them."""
    found = images.references(site.engine, label=labels.IMAGE)
    return tuple(sorted(tag for one in found for tag in one.tags if tag.startswith(f"{site.address}/")))


def _no_container(site: Site) -> Answer:
    container = site.container
    return no(f"still there: {container.name} ({container.state})") if container else YES


def _remove(site: Site) -> None:
    container = site.container
    if container:
        # It may be in the middle of writing an upload.
        containers.stop(site.engine, container.id)
        containers.remove(site.engine, container.id)


def _no_volume(site: Site) -> Answer:
    found = _volumes(site)
    return no(f"still there: {', '.join(found)}") if found else YES


def _remove_volumes(site: Site) -> None:
    for name in _volumes(site):
        volumes.remove_volume(site.engine, name)


def _volumes(site: Site) -> list[str]:
    return [one.name for one in volumes.volumes(site.engine, f"{LABEL}={site.address}")]


def _no_state(site: Site) -> Answer:
    return no(f"still there: {site.state}") if site.state.exists() else YES
