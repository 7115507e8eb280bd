"""The state of a registry, its images, and whether Docker here trusts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from trainyard.errors import OutsideError
from trainyard.registry import trust
from trainyard.registry.lifecycle import disk_free
from trainyard.registry.target import LABEL, Target
from trainyard.seams.docker import containers
from trainyard.seams.docker.containers import Container
from trainyard.seams.registry.api import Manifest, RegistryApi
from trainyard.seams.registry.errors import DamagedError, GoneError, LoginError, MissingError
from trainyard.seams.threads import side_by_side

State = Literal["up", "stopped", "down", "unreachable"]


@dataclass(frozen=True)
class Tag:
    """A tag, its digest, and the size of a pull in bytes, or a `problem`."""

    name: str
    digest: str | None
    size: int
    problem: str = ""


@dataclass(frozen=True)
class Repository:
    """A repository; `size`, in bytes, counts a shared layer once."""

    name: str
    tags: tuple[Tag, ...]
    size: int


@dataclass(frozen=True)
class Content:
    """All repositories with a tag; `size`, in bytes, counts a layer once."""

    repositories: tuple[Repository, ...]
    size: int


@dataclass(frozen=True)
class RegistryStatus:
    """The state of a registry.

    `container` is None for a registry that Trainyard did not make. `volume` has
    the images, even while no container runs. `trusted` says whether Docker here
    accepts the registry; it is None if that is unknown. `content` is None if
    the registry does not answer or does not list its images, and `detail` says
    why. `others` are addresses of other registries that Trainyard runs on this
    engine.
    """

    state: State
    container: Container | None
    volume: str | None
    disk_free: int | None
    content: Content | None
    trusted: bool | None = None
    detail: str = ""
    others: tuple[str, ...] = ()


def status(target: Target) -> RegistryStatus:
    """Ask the engine and the registry. Raises RegistryError for a bad login."""
    container = target.container
    is_answering, content, detail = _content(target)
    state: State = "down"
    if is_answering:
        state = "up"
    elif container and container.state == "running":
        state = "unreachable"
    elif container:
        state = "stopped"

    trusted = None
    if is_answering:
        with suppress(OutsideError):
            trusted = trust.is_accepted(target)

    ours = {found.labels[LABEL] for found in containers.labelled(target.engine, LABEL)}
    return RegistryStatus(
        state,
        container,
        volume=target.volume,
        disk_free=disk_free(target) if container else None,
        content=content,
        trusted=trusted,
        detail=detail,
        others=tuple(sorted(ours - {target.address})),
    )


def content_of(api: RegistryApi) -> Content:
    """List all tags, with a request for each tag. Raises RegistryError."""
    blobs: dict[str, int] = {}
    repositories: list[Repository] = []
    for name in api.repositories():
        answers = side_by_side(partial(_ask, api, name), sorted(api.tags(name)))
        parts: dict[str, int] = {}
        for _, sizes in answers:
            parts |= sizes
        blobs |= parts

        # The catalogue still lists repositories whose last tag was removed.
        if answers:
            tags = tuple(tag for tag, _ in answers)
            repositories.append(Repository(name, tags, sum(parts.values())))

    return Content(tuple(repositories), sum(blobs.values()))


def _content(target: Target) -> tuple[bool, Content | None, str]:
    """Return whether the registry answers, its content, and a problem."""
    try:
        with target.api() as api:
            api.check()
            try:
                return True, content_of(api), ""
            except (LoginError, MissingError) as error:
                # ECR and Docker Hub do not list repositories.
                return True, None, error.where or error.what
    except GoneError as error:
        return False, None, error.where or error.what


def _ask(api: RegistryApi, repository: str, tag: str) -> tuple[Tag, dict[str, int]]:
    """Return a tag, and the sizes of all its blobs by digest.

    A damaged manifest becomes the tag's `problem`.
    """
    try:
        manifest = api.manifest(repository, tag)
        if manifest is None:
            return Tag(tag, None, 0, "the tag points to nothing"), {}
        sizes = dict(_sizes(api, repository, manifest))
        return Tag(tag, manifest.digest, sum(sizes.values())), sizes
    except DamagedError as error:
        return Tag(tag, None, 0, error.what), {}


def _sizes(api: RegistryApi, repository: str, manifest: Manifest) -> Iterator[tuple[str, int]]:
    yield manifest.digest, len(manifest.content)
    if manifest.config:
        yield manifest.config.digest, manifest.config.size
    for layer in manifest.layers:
        yield layer.digest, layer.size
    for digest in manifest.platforms:
        platform = api.manifest(repository, digest)
        if platform:
            yield from _sizes(api, repository, platform)
