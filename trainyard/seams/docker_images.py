"""Images of a Docker engine: what they are, their names, fetched from a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests
from docker.errors import APIError, DockerException, ImageNotFound

from trainyard.seams.docker_engine import Engine, explanation, refusals
from trainyard.seams.layer_progress import LayerTally
from trainyard.seams.registry_refusals import refused

HUB = "docker.io"


@dataclass(frozen=True)
class Layer:
    """One entry of an image's history. `size` is 0 for what changed no file."""

    created_by: str
    size: int


@dataclass(frozen=True)
class ImageFacts:
    """What an engine says about an image. `digests` are references by digest: where it was pulled from or pushed to.

    `entrypoint` and `command` are None where the image has none; `layers` are diff ids, the base's first.
    """

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    labels: Mapping[str, str]
    user: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...] | None
    env: Mapping[str, str]
    size: int
    layers: tuple[str, ...]
    platform: str
    created: str

    def digest_in(self, repository: str) -> str | None:
        """Return the digest that the image has in a repository, as far as the engine noted one."""
        names = (one.partition("@") for one in self.digests)
        return next((digest for name, _, digest in names if _familiar(name) == _familiar(repository)), None)


def inspect(engine: Engine, reference: str) -> ImageFacts | None:
    """Return what the engine knows about an image (by name, digest or id), or None if it does not have it."""
    with refusals(f"look at the image {reference}"):
        try:
            return facts(engine.api.inspect_image(reference))  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None


def facts(found: Mapping[str, Any]) -> ImageFacts:
    """Return the facts in an answer of the engine (Engine API, GET /images/{name}/json)."""
    config = found.get("Config") or {}
    return ImageFacts(
        id=found["Id"],
        tags=tuple(found.get("RepoTags") or ()),
        digests=tuple(found.get("RepoDigests") or ()),
        labels=config.get("Labels") or {},
        user=config.get("User") or "",
        entrypoint=_words(config.get("Entrypoint")),
        command=_words(config.get("Cmd")),
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        size=found.get("Size") or 0,
        layers=tuple((found.get("RootFS") or {}).get("Layers") or ()),
        platform="/".join(found[key] for key in ("Os", "Architecture", "Variant") if found.get(key)),
        created=found.get("Created") or "",
    )


def history(engine: Engine, reference: str) -> tuple[Layer, ...]:
    """Return how an image came to be, the oldest entry first."""
    with refusals(f"look at the history of {reference}"):
        entries = engine.api.history(reference)  # type: ignore[no-untyped-call]
    return tuple(Layer(entry.get("CreatedBy") or "", entry.get("Size") or 0) for entry in reversed(entries))


def references(engine: Engine, *, label: str) -> list[ImageFacts]:
    """Return every image that carries a label (`key` or `key=value`)."""
    with refusals("list its images"):
        ids = {entry["Id"] for entry in engine.api.images(filters={"label": label})}
    found = [inspect(engine, one) for one in sorted(ids)]
    return [one for one in found if one is not None]


def tag(engine: Engine, reference: str, *, as_: str) -> None:
    """Give an image one more name: `as_` is REPOSITORY:TAG."""
    repository, name = split_tag(as_)
    with refusals(f"tag {reference} as {as_}"):
        engine.api.tag(reference, repository, tag=name or "latest", force=True)


def remove(engine: Engine, reference: str) -> None:
    """Take a name from an image, and the image from the engine if that was its last; nothing there is fine."""
    with refusals(f"remove the image {reference}"):
        try:
            engine.api.remove_image(reference)
        except ImageNotFound:
            return


def pull(
    engine: Engine,
    reference: str,
    *,
    auth: Mapping[str, str] | None = None,
    platform: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> None:
    """Fetch an image from its registry. `auth` has username and password; None: what `docker login` keeps.

    Raises RegistryError: what is wrong with the registry, or with what it holds.
    """
    repository, name = split_tag(reference)
    tally = LayerTally()
    with _refused_by_registry(reference):
        answers = engine.api.pull(
            repository,
            # A digest is part of the name for docker-py, and no tag may be given with it.
            tag=None if "@" in reference else name or "latest",
            stream=True,
            decode=True,
            auth_config=dict(auth) if auth is not None else None,
            platform=platform,
        )
        for entry in answers:
            if entry.get("error"):
                raise refused(str(entry["error"]), registry_of(reference), doing=f"pull {reference}")
            if tally.saw(entry) and on_progress:
                on_progress(tally.text())


def split_tag(reference: str) -> tuple[str, str | None]:
    """Return repository and tag; a port is no tag, and a digest stays with its repository."""
    if "@" in reference:
        return reference, None
    head, colon, tail = reference.rpartition(":")
    return (head, tail) if colon and "/" not in tail else (reference, None)


def registry_of(reference: str) -> str:
    """Return the registry in a reference, by Docker's rule: a host has a dot or a port, or is localhost."""
    first, slash, _ = reference.partition("/")
    return first if slash and (any(mark in first for mark in ".:") or first == "localhost") else HUB


def _familiar(repository: str) -> str:
    """Return a repository as Docker writes it: docker.io/library/debian is debian."""
    return repository.removeprefix(f"{HUB}/").removeprefix("library/")


@contextmanager
def _refused_by_registry(reference: str) -> Iterator[None]:
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        said = explanation(error) if isinstance(error, APIError) else str(error)
        raise refused(said, registry_of(reference), doing=f"pull {reference}") from error


def _words(found: object) -> tuple[str, ...] | None:
    return tuple(found) if isinstance(found, list) else None
