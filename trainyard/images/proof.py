"""Whether a registry really holds an image: every byte of the manifest, the config, and each layer by its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainyard.seams.registry_api import UNKNOWN, RegistryApi
from trainyard.seams.registry_manifest import Manifest

QUESTIONS_AT_ONCE = 8


@dataclass(frozen=True)
class Proof:
    """What a registry has under a tag. `missing` says what is not as it should be; nothing: the image is whole."""

    manifest: Manifest | None
    missing: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Say whether all of the image is there."""
        return self.manifest is not None and not self.missing


def prove(api: RegistryApi, name: str, tag: str, *, image_id: str, known: Mapping[str, int] | None = None) -> Proof:
    """Ask for the tag, for its manifest by digest, and for every blob of it.

    `known` has the sizes of blobs by digest, from manifests that were there before: of a layer that the registry has,
    Docker writes into the new manifest what the registry says of its size, even if the layer was cut off there since
    (seen with Docker 20.10). Raises RegistryError: DamagedError for a manifest or config whose bytes are not those of
    its digest.
    """
    found = api.manifest(name, tag)
    if found is None:
        return Proof(None, (f"the registry has no {name}:{tag}",))
    if not is_image(found, image_id):
        return Proof(found, (f"{name}:{tag} is another image there",))
    if api.manifest(name, found.digest) is None:
        return Proof(found, (f"manifest {found.digest} is missing",))
    return Proof(found, _missing(api, name, found, known or {}))


def is_image(manifest: Manifest, image_id: str) -> bool:
    """Say whether a manifest is that of an engine's image.

    The id of an image is the digest of its config, or of its manifest (engines with containerd's image store).
    """
    return image_id in (manifest.digest, manifest.config.digest if manifest.config else None)


def sizes(manifest: Manifest | None) -> dict[str, int]:
    """Return the sizes of a manifest's layers by digest."""
    return {layer.digest: layer.size for layer in manifest.layers} if manifest else {}


def _missing(api: RegistryApi, name: str, manifest: Manifest, known: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is missing of a manifest, or of every manifest of an index."""
    missing = list(_missing_blobs(api, name, manifest, known))
    for platform in manifest.platforms:
        inner = api.manifest(name, platform.digest)
        missing += _missing(api, name, inner, known) if inner else [f"manifest {platform.digest} is missing"]
    return tuple(missing)


def _missing_blobs(api: RegistryApi, name: str, manifest: Manifest, known: Mapping[str, int]) -> Iterator[str]:
    if manifest.config is None:
        return
    blobs = (manifest.config, *manifest.layers)
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE) as pool:
        found = list(pool.map(lambda blob: api.blob_size(name, blob.digest), blobs))
    for blob, size in zip(blobs, found, strict=True):
        wanted = known.get(blob.digest, blob.size)
        if size not in (wanted, UNKNOWN):
            yield _what(blob.digest, size, wanted)
    if found[0] is not None:
        api.config(name, manifest.config.digest)


def _what(digest: str, size: int | None, wanted: int) -> str:
    return f"{digest} is missing" if size is None else f"{digest} has {size} bytes instead of {wanted}"
