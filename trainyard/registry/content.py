"""What a registry holds: repositories, tags, and the bytes that they take."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from trainyard.seams.registry.api import Manifest
from trainyard.seams.registry.errors import DamagedError

# Each tag is a question of its own; the registry of a team has hundreds.
AT_ONCE = 8


@dataclass(frozen=True)
class Tag:
    """A tag, what it points to, and how many bytes a pull of it takes. `problem` says why that cannot be told."""

    name: str
    digest: str | None
    size: int
    problem: str = ""


@dataclass(frozen=True)
class Repository:
    """A repository; `size` is what its tags take together, where layers are shared."""

    name: str
    tags: tuple[Tag, ...]
    size: int


@dataclass(frozen=True)
class Content:
    """Everything that has a tag; `size` is what it takes together, where layers are shared."""

    repositories: tuple[Repository, ...]
    size: int


class Asked(Protocol):
    """What is asked of a registry: seams.registry_api.RegistryApi."""

    def repositories(self) -> Iterator[str]:
        """Yield every repository's name."""

    def tags(self, name: str) -> tuple[str, ...]:
        """Return a repository's tags."""

    def manifest(self, name: str, reference: str) -> Manifest | None:
        """Return what a tag or digest points to."""


def look(api: Asked) -> Content:
    """Ask a registry for everything that it holds. Raises RegistryError."""
    blobs: dict[str, int] = {}
    found: list[Repository] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name in api.repositories():
            tags = tuple(sorted(api.tags(name)))
            if not tags:
                # A repository whose last tag was removed stays in the catalogue.
                continue
            looked = list(pool.map(lambda tag, name=name: _look_at(api, name, tag), tags))
            inside = {digest: size for _, parts in looked for digest, size in parts.items()}
            blobs.update(inside)
            found.append(Repository(name, tuple(tag for tag, _ in looked), sum(inside.values())))
    return Content(tuple(found), sum(blobs.values()))


def _look_at(api: Asked, repository: str, tag: str) -> tuple[Tag, dict[str, int]]:
    """Return a tag with every blob behind it, by digest; a damaged one does not keep the others from being shown."""
    try:
        manifest = api.manifest(repository, tag)
        parts = dict(_parts(api, repository, manifest)) if manifest else {}
    except DamagedError as error:
        return Tag(tag, None, 0, error.what), {}
    if manifest is None:
        return Tag(tag, None, 0, "the tag points to nothing"), {}
    return Tag(tag, manifest.digest, sum(parts.values())), parts


def _parts(api: Asked, repository: str, manifest: Manifest) -> Iterator[tuple[str, int]]:
    yield manifest.digest, len(manifest.content)
    for blob in (*((manifest.config,) if manifest.config else ()), *manifest.layers):
        yield blob.digest, blob.size
    for platform in manifest.platforms:
        child = api.manifest(repository, platform)
        if child:
            yield from _parts(api, repository, child)
