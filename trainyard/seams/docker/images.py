"""Images of a Docker engine: their facts, their names and their history."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from docker.errors import ImageNotFound
from docker.utils import parse_repository_tag

from trainyard.seams.docker.containers import packed
from trainyard.seams.docker.engine import Engine, refusals

HUB = "docker.io"
# Labels of every image that Trainyard builds: its name, and the hash of its sources, also its tag.
IMAGE_LABEL = "io.trainyard.image"
CONTENT_LABEL = "io.trainyard.content"
OCI = "org.opencontainers.image"
# The content of the image that tests a registry.
TINY = b"Trainyard pulled this to prove that Docker here can.\n"


@dataclass(frozen=True)
class ImageFacts:
    """An image as the engine knows it.

    `digests` are the references NAME@DIGEST with which the image was pushed or
    pulled. `entrypoint` is None if the image has none. `layers` are diff ids,
    the base's first.
    """

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    labels: Mapping[str, str]
    user: str
    entrypoint: tuple[str, ...] | None
    env: Mapping[str, str]
    size: int
    layers: tuple[str, ...]
    platform: str
    created: str

    @property
    def is_root(self) -> bool:
        return self.user.partition(":")[0] in ("", "0", "root")

    @property
    def content(self) -> str | None:
        return self.labels.get(CONTENT_LABEL)

    def digest_in(self, repository: str) -> str | None:
        for reference in self.digests:
            name, _, digest = reference.partition("@")
            if _familiar(name) == _familiar(repository):
                return digest
        return None


@dataclass(frozen=True)
class MadeBy:
    """A Dockerfile's instruction; `size` is that of its layer, in bytes."""

    instruction: str
    size: int = 0


def inspect(engine: Engine, reference: str) -> ImageFacts | None:
    """Return the facts of an image by its name, digest or id."""
    with refusals(f"inspect the image {reference}"), suppress(ImageNotFound):
        return facts(engine.api.inspect_image(reference))  # type: ignore[no-untyped-call]
    return None


def facts(described: Mapping[str, Any]) -> ImageFacts:
    """Read the facts in the Engine API's answer to GET /images/{name}/json."""
    config = described.get("Config") or {}
    entrypoint = None
    if config.get("Entrypoint"):
        entrypoint = tuple(config["Entrypoint"])
    platform = [described.get(key) for key in ("Os", "Architecture", "Variant")]

    return ImageFacts(
        id=described["Id"],
        tags=tuple(described.get("RepoTags") or ()),
        digests=tuple(described.get("RepoDigests") or ()),
        labels=config.get("Labels") or {},
        user=config.get("User") or "",
        entrypoint=entrypoint,
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        size=described.get("Size") or 0,
        layers=tuple((described.get("RootFS") or {}).get("Layers") or ()),
        platform="/".join(filter(None, platform)),
        created=described.get("Created") or "",
    )


def history(engine: Engine, reference: str) -> tuple[MadeBy, ...]:
    """Return the instructions that made an image, the oldest first."""
    with refusals(f"return the history of {reference}"):
        entries = engine.api.history(reference)  # type: ignore[no-untyped-call]

    instructions = []
    for entry in reversed(entries):
        instructions.append(MadeBy(entry.get("CreatedBy") or "", entry.get("Size") or 0))
    return tuple(instructions)


def ours(engine: Engine) -> list[ImageFacts]:
    with refusals("list its images"):
        ids = {entry["Id"] for entry in engine.api.images(filters={"label": IMAGE_LABEL})}
    images = [inspect(engine, identifier) for identifier in sorted(ids)]
    return [image for image in images if image]


def tag(engine: Engine, reference: str, *, as_: str) -> None:
    repository, name = split_tag(as_)
    with refusals(f"tag {reference} as {as_}"):
        engine.api.tag(reference, repository, tag=name, force=True)


def remove(engine: Engine, reference: str) -> None:
    """Remove an image's name, and with its last name the image."""
    with refusals(f"remove the image {reference}"), suppress(ImageNotFound):
        engine.api.remove_image(reference)


def make_tiny(engine: Engine, reference: str) -> None:
    """Make an image of a few bytes, with which to test a registry."""
    repository, name = split_tag(reference)
    with refusals(f"make the image {reference}"):
        engine.api.import_image_from_data(packed({"README": TINY}), repository=repository, tag=name)


def split_tag(reference: str) -> tuple[str, str]:
    """Split a reference before its tag or digest (default: "latest")."""
    repository, tag = parse_repository_tag(reference)
    return str(repository), str(tag or "latest")


def registry_of(reference: str) -> str:
    """Return a reference's registry, by default Docker Hub.

    A first part that has a dot or a port, or is localhost, is a registry.
    """
    first, slash, _ = reference.partition("/")
    if slash and (any(mark in first for mark in ".:") or first == "localhost"):
        return first
    return HUB


def _familiar(repository: str) -> str:
    """Shorten a repository: docker.io/library/debian becomes debian."""
    return repository.removeprefix(f"{HUB}/").removeprefix("library/")
