"""What a registry holds under a digest: an image's manifest, or the index of a multi-platform image.

Docker's own media types and OCI's are alike enough to be read as one (OCI image specification 1.1).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

MEDIA_TYPES = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)


@dataclass(frozen=True)
class Blob:
    """A part of an image, by digest: its config, or a layer; `size` is in bytes, as sent (layers are compressed)."""

    digest: str
    size: int


@dataclass(frozen=True)
class PlatformManifest:
    """One platform's manifest in an index; `platform` is such as linux/amd64 or linux/arm64/v8."""

    digest: str
    size: int
    platform: str


@dataclass(frozen=True)
class Manifest:
    """A manifest as the registry gave it. An index has `platforms` and neither config nor layers."""

    digest: str
    media_type: str
    config: Blob | None
    layers: tuple[Blob, ...]
    platforms: tuple[PlatformManifest, ...]
    content: bytes = field(repr=False, default=b"")

    @property
    def size(self) -> int:
        """Return how many bytes a pull of everything takes; an index counts only itself."""
        config = self.config.size if self.config else 0
        return len(self.content) + config + sum(layer.size for layer in self.layers)


def digest_of(content: bytes) -> str:
    """Return the digest of some bytes, as registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def read_manifest(content: bytes, media_type: str) -> Manifest:
    """Return the manifest in these bytes; its digest is computed, never taken from a header.

    Raises ValueError when it is none.
    """
    document = json.loads(content)
    if not isinstance(document, dict) or document.get("schemaVersion") != 2:
        raise ValueError("not a manifest of schema version 2")
    try:
        return Manifest(
            digest=digest_of(content),
            media_type=str(document.get("mediaType") or media_type),
            config=_blob(document["config"]) if "config" in document else None,
            layers=tuple(_blob(layer) for layer in document.get("layers", ())),
            platforms=tuple(_platform(one) for one in document.get("manifests", ())),
            content=content,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error


def _blob(entry: dict[str, Any]) -> Blob:
    return Blob(str(entry["digest"]), int(entry["size"]))


def _platform(entry: dict[str, Any]) -> PlatformManifest:
    platform = entry.get("platform") or {}
    words = (platform.get("os"), platform.get("architecture"), platform.get("variant"))
    return PlatformManifest(str(entry["digest"]), int(entry["size"]), "/".join(word for word in words if word))
