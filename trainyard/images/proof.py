"""Whether a registry really holds an image: every byte of the manifest, the config, and each layer by its size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainyard.seams.registry_api import RegistryApi
from trainyard.seams.registry_manifest import Blob, Manifest

QUESTIONS_AT_ONCE = 8


@dataclass(frozen=True)
class Proof:
    """What a registry has under a tag. `missing` says what is not as it should be; nothing: the image is whole."""

    manifest: Manifest | None
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Say whether all of the image is there."""
        return self.manifest is not None and not self.missing


def prove(api: RegistryApi, name: str, tag: str, *, image_id: str) -> Proof:
    """Ask for the tag, for its manifest by digest, and for every blob of it.

    `image_id` is the engine's: the digest of the config, or of the manifest (engines with containerd's image store).
    Raises RegistryError: DamagedError for a manifest or config whose bytes are not those of its digest.
    """
    found = api.manifest(name, tag)
    if found is None:
        return Proof(None, (f"the registry has no {name}:{tag}",))
    if image_id not in (found.digest, found.config.digest if found.config else None):
        return Proof(found, (f"{name}:{tag} is another image there",))
    if api.manifest(name, found.digest) is None:
        return Proof(found, (f"manifest {found.digest} is missing",))
    return Proof(found, _missing(api, name, found))


def _missing(api: RegistryApi, name: str, manifest: Manifest) -> tuple[str, ...]:
    """Return what is missing of a manifest, or of every manifest of an index."""
    missing = list(_missing_blobs(api, name, manifest))
    for platform in manifest.platforms:
        inner = api.manifest(name, platform.digest)
        missing += _missing(api, name, inner) if inner else [f"manifest {platform.digest} is missing"]
    return tuple(missing)


def _missing_blobs(api: RegistryApi, name: str, manifest: Manifest) -> Iterator[str]:
    if manifest.config is None:
        return
    blobs = (manifest.config, *manifest.layers)
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        sizes = list(pool.map(lambda blob: api.blob_size(name, blob.digest), blobs))
    for blob, size in zip(blobs, sizes, strict=True):
        if size != blob.size:
            yield _what(blob, size)
    if sizes[0] is not None:
        api.config(name, manifest.config.digest)


def _what(blob: Blob, size: int | None) -> str:
    if size is None:
        return f"{blob.digest} is missing"
    return f"{blob.digest} has {size} bytes instead of {blob.size}"
