"""The name of what is in an image: a hash over all that its build depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from trainyard import versions
from trainyard.images import catalog, context
from trainyard.images.context import Entry
from trainyard.images.types import Image

LENGTH = 12
# Changes when an image is built in another way from the same files.
RECIPE = "2"


def tag(source: str, *, base: str) -> str:
    """Return the tag of an image by its source_hash, and its base's id: a base whose tag moved makes another image.

    Of a base that the engine does not have, its name counts.
    """
    return _hash({"source": source, "base": base})


def source_hash(image: Image, *, platform: str | None = None, digest: Callable[[Entry], str] = context.digest) -> str:
    """Return the hash of what stands in files here, which can be told on a machine that does not have the base.

    Two images with the same source differ at most in what a moving tag of their base meant when they were built.
    """
    given = {f"argument {name}": value for name, value in catalog.arguments(image).items()}
    files = {f"entry {entry.path}": digest(entry) for entry in context.entries(image)}
    fixed = {
        "recipe": RECIPE,
        "ray": versions.RAY,
        "platform": platform or "",
        "dockerfile": context.dockerfile(image),
    }
    return _hash({**fixed, **given, **files})


def _hash(parts: Mapping[str, str]) -> str:
    found = hashlib.sha256()
    for name, value in sorted(parts.items()):
        # Lengths first: no two lists of parts read the same.
        found.update(f"{len(name)} {len(value)} {name}{value}".encode(errors="surrogateescape"))
    return found.hexdigest()[:LENGTH]
