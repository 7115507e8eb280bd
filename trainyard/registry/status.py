"""How a registry is: whether it runs, what it holds, and whether Docker here trusts it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainyard.errors import OutsideError
from trainyard.registry import inside, probe, room, settings
from trainyard.registry.content import Content, look
from trainyard.registry.down import kept_volume
from trainyard.registry.site import LABEL, Site
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.registry.api import RegistryApi
from trainyard.seams.registry.errors import GoneError, LoginError, MissingError

State = Literal["up", "stopped", "down", "unreachable"]


@dataclass(frozen=True)
class RegistryStatus:
    """A registry, as it is now.

    `container` is None for a registry that we did not make; `volume` holds images also while nothing runs.
    `trusted` says whether Docker here speaks to it, None where that cannot be asked. `content` is None where it could
    not be asked for, and `seen` says why. `others` are registries of ours at other addresses of the same engine.
    """

    address: str
    state: State
    insecure: bool
    username: str | None
    ca_file: Path | None
    image: str | None
    container: str | None
    volume: str | None
    disk_free: int | None
    content: Content | None
    trusted: bool | None = None
    seen: str = ""
    others: tuple[str, ...] = ()


def status(site: Site) -> RegistryStatus:
    """Ask engine and registry. Raises RegistryError when the registry is there and does not let us in."""
    container = site.container
    answers, content, seen = _content(site)
    return RegistryStatus(
        address=site.address,
        state=_state(site, answers=answers),
        insecure=site.registry.insecure,
        username=site.registry.username,
        ca_file=settings.ca_file(site.registry, site.environ),
        image=container.image if container else None,
        container=container.name if container else None,
        volume=kept_volume(site),
        disk_free=room.disk_free(site.engine, lambda: _df(site, container)) if container else None,
        content=content,
        trusted=_trusted(site) if answers else None,
        seen=seen,
        others=_others(site),
    )


def _content(site: Site) -> tuple[bool, Content | None, str]:
    """Say whether the registry answers, what it holds, and why that cannot be told."""
    try:
        with site.api() as api:
            api.check()
            return True, *_listed(api)
    except GoneError as error:
        # What was being done stands before it, and is clear here.
        return False, None, (error.where or error.what).partition(": ")[2] or error.what


def _listed(api: RegistryApi) -> tuple[Content | None, str]:
    try:
        return look(api), ""
    except (LoginError, MissingError) as error:
        # ECR and Docker Hub let nobody list their repositories.
        return None, error.where or error.what


def _df(site: Site, container: Container) -> str:
    return containers.execute(site.engine, container.id, ["df", "-Pk", inside.DATA])[1]


def _trusted(site: Site) -> bool | None:
    try:
        return probe.docker_is_let_in(site)
    except OutsideError:
        return None


def _state(site: Site, *, answers: bool) -> State:
    if answers:
        return "up"
    container = site.container
    if container is None:
        return "down"
    return "unreachable" if container.is_running else "stopped"


def _others(site: Site) -> tuple[str, ...]:
    try:
        found = containers.labelled(site.engine, LABEL)
    except OutsideError:
        return ()
    return tuple(sorted(one.labels[LABEL] for one in found if one.labels[LABEL] != site.address))
