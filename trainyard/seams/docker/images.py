"""Images of a Docker engine: what they are, and their names."""

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
# On every image that we build: its name, and the hash that is also its tag.
IMAGE_LABEL = "io.trainyard.image"
CONTENT_LABEL = "io.trainyard.content"
OCI = "org.opencontainers.image"
# What is in an image that proves that a registry can be used, and nothing else.
TINY = b"Trainyard pulled this to prove that Docker here can.\n"


@dataclass(frozen=True)
class ImageFacts:
    """What an engine knows about an image. `digests` are references by digest: where it was pulled
    from or pushed to.

    `entrypoint` is None where the image has none; `layers` are diff ids, the base's first.
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
        """Return the digest that the image has in a repository, as far as the engine noted one."""
        names = (reference.partition("@") for reference in self.digests)
        for name, _, digest in names:
            if _familiar(name) == _familiar(repository):
                return digest
        return None


@dataclass(frozen=True)
class MadeBy:
    """An instruction of the Dockerfiles that made an image, and the bytes of the layer that it
    added.
    """

    instruction: str
    size: int = 0


def inspect(engine: Engine, reference: str) -> ImageFacts | None:
    """Return what the engine knows about an image (by name, digest or id), or None if it does not
    have it.
    """
    with refusals(f"look at the image {reference}"), suppress(ImageNotFound):
        return facts(engine.api.inspect_image(reference))  # type: ignore[no-untyped-call]
    return None


def facts(described: Mapping[str, Any]) -> ImageFacts:
    """Return the facts in an answer of the engine (Engine API, GET /images/{name}/json)."""
    config = described.get("Config") or {}
    return ImageFacts(
        id=described["Id"],
        tags=tuple(described.get("RepoTags") or ()),
        digests=tuple(described.get("RepoDigests") or ()),
        labels=config.get("Labels") or {},
        user=config.get("User") or "",
        entrypoint=tuple(config["Entrypoint"]) if config.get("Entrypoint") else None,
        env=dict(entry.partition("=")[::2] for entry in config.get("Env") or ()),
        size=described.get("Size") or 0,
        layers=tuple((described.get("RootFS") or {}).get("Layers") or ()),
        platform="/".join(
            described[key] for key in ("Os", "Architecture", "Variant") if described.get(key)
        ),
        created=described.get("Created") or "",
    )


def history(engine: Engine, reference: str) -> tuple[MadeBy, ...]:
    """Return what made an image, the oldest first."""
    with refusals(f"look at the history of {reference}"):
        entries = engine.api.history(reference)  # type: ignore[no-untyped-call]
    return tuple(
        MadeBy(entry.get("CreatedBy") or "", entry.get("Size") or 0) for entry in reversed(entries)
    )


def ours(engine: Engine) -> list[ImageFacts]:
    with refusals("list its images"):
        ids = {entry["Id"] for entry in engine.api.images(filters={"label": IMAGE_LABEL})}
    return [image for identifier in sorted(ids) if (image := inspect(engine, identifier))]


def tag(engine: Engine, reference: str, *, as_: str) -> None:
    repository, name = split_tag(as_)
    with refusals(f"tag {reference} as {as_}"):
        engine.api.tag(reference, repository, tag=name, force=True)


def remove(engine: Engine, reference: str) -> None:
    """Take a name from an image, and the image from the engine if that was its last; no change if
    it is gone.
    """
    with refusals(f"remove the image {reference}"), suppress(ImageNotFound):
        engine.api.remove_image(reference)


def make_tiny(engine: Engine, reference: str) -> None:
    """Make an image of a few bytes under this name, which must have a tag: to send through a
    registry as a proof.
    """
    repository, name = split_tag(reference)
    with refusals(f"make the image {reference}"):
        engine.api.import_image_from_data(packed({"README": TINY}), repository=repository, tag=name)


def split_tag(reference: str) -> tuple[str, str]:
    """Return repository and tag, or digest; Docker's own tag is latest."""
    repository, tag = parse_repository_tag(reference)
    return str(repository), str(tag or "latest")


def registry_of(reference: str) -> str:
    """Return the registry in a reference, by Docker's rule: a host has a dot or a port, or is
    localhost.
    """
    first, slash, _ = reference.partition("/")
    if slash and (any(mark in first for mark in ".:") or first == "localhost"):
        return first
    return HUB


def _familiar(repository: str) -> str:
    """Return a repository as Docker writes it: docker.io/library/debian is debian."""
    return repository.removeprefix(f"{HUB}/").removeprefix("library/")
