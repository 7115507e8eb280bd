"""Which exact image a cluster runs where no Docker engine can be asked: the registry says, through its own API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from trainyard import labels
from trainyard.errors import RequestError
from trainyard.images import catalog, content
from trainyard.images.access import ca_file
from trainyard.images.types import Image, PinnedImage
from trainyard.registry.settings import place
from trainyard.seams.docker import images as docker_images
from trainyard.seams.registry_api import RegistryApi
from trainyard.seams.registry_auth import Login
from trainyard.seams.registry_login import docker_login, login
from trainyard.seams.registry_manifest import Manifest
from trainyard.seams.registry_refusals import (
    BusyError,
    CertificateError,
    GoneError,
    LoginError,
    MissingError,
    NoRegistryError,
    RegistryError,
)
from trainyard.spec import ClusterSpec
from trainyard.spec.docker import Registry

# Among so many pushes a build of the same files is looked for, once the readable tag leads to another one.
TAGS = 1000
AT_ONCE = 16
# content.tag: what pushes of ours are called.
_OURS = re.compile(rf"[0-9a-f]{{{content.LENGTH}}}")
# A registry that cannot be asked from here may well answer the nodes.
_AWAY = (GoneError, BusyError, CertificateError, NoRegistryError)

Answer = TypeVar("Answer")
Opened = Callable[[Registry, Mapping[str, str], Login | None], RegistryApi]


def open_api(registry: Registry, environ: Mapping[str, str], who: Login | None) -> RegistryApi:
    """Connect to a registry as somebody, or as nobody; nothing is asked yet."""
    trusted = ca_file(registry, environ)
    return RegistryApi(registry.address, insecure=registry.insecure, ca_file=trusted, login=who)


def pinned_by_registry(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    directory: Path,
    loopback: bool = False,
    opened: Opened = open_api,
) -> PinnedImage:
    """Return what the cluster's `image` means now: a directory of images/ that was pushed, or an image of others.

    Its `login` is the one that nodes need: None where the registry lets everybody pull. `loopback` says that the nodes
    are on this machine. Raises RequestError without a registry that nodes can reach, MissingError for an image that
    was not pushed as it is now, another RegistryError when the registry refuses.
    """
    asked = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(asked, directory=directory):
        return _of_others(asked, spec.registry, environ, opened, loopback=loopback)
    image = catalog.find(asked, directory=directory, base=spec.build.base)
    source = content.source_hash(image, environ, platform=spec.build.platform)
    registry = _reachable(spec, image.name, loopback=loopback)
    repository = registry.repository(image.name)
    digest, who = _asked(registry, environ, opened, lambda api: _digest_of(api, repository, image, source))
    if digest is None:
        raise MissingError(
            f"registry {registry.address} does not hold image {image.name} as it is now",
            where=f"{registry.address}/{repository}:{image.alias}",
            hint=f"Its files changed since it was pushed, or it never was. Push it: invoke image.push {image.name}",
        )
    return PinnedImage(image.name, f"{registry.address}/{repository}@{digest}", digest, who)


def _reachable(spec: ClusterSpec, image: str, *, loopback: bool) -> Registry:
    """Return the registry that this machine and the nodes can both reach."""
    hint = "Write `registry: {address: HOST:PORT}` with an address that the nodes reach too (one of our own: "
    hint += "`invoke registry.up`), or name an image that is in a registry already: `image: REGISTRY/NAME:TAG`."
    if spec.registry is None:
        raise RequestError(
            f"image {image} is built here, and the nodes of cluster {spec.name} pull theirs from a registry",
            where="the cluster file, which names no registry",
            hint=hint,
        )
    if place(spec.registry).is_loopback and not loopback:
        raise RequestError(
            f"the nodes of cluster {spec.name} cannot pull from {spec.registry.address}: to them, it is their own "
            "loopback",
            where="registry.address",
            hint=hint,
        )
    return spec.registry


def _digest_of(api: RegistryApi, repository: str, image: Image, source: str) -> str | None:
    """Return the digest of what was built from these files; people's tag for it may lead to another build by now."""
    newest = api.manifest(repository, image.alias)
    if newest and _source(api, repository, newest) == source:
        return newest.digest
    return _older(api, repository, source)


def _older(api: RegistryApi, repository: str, source: str) -> str | None:
    """Return the digest of a build from the same files; a registry need not list its tags, some may be damaged.

    Tags are hashes, of which none says which is newer: all are looked at, some side by side, until one is found.
    """

    def built_so(tag: str) -> str | None:
        with suppress(RegistryError):
            found = api.manifest(repository, tag)
            return found.digest if found and _source(api, repository, found) == source else None
        return None

    tags: tuple[str, ...] = ()
    with suppress(RegistryError):
        tags = tuple(tag for tag in api.tags(repository) if _OURS.fullmatch(tag))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, min(len(tags), TAGS), AT_ONCE):
            digests = list(pool.map(built_so, tags[first : first + AT_ONCE]))
            if any(digests):
                return next(digest for digest in digests if digest)
    return None


def _source(api: RegistryApi, repository: str, found: Manifest) -> str | None:
    """Return what an image says that it was built from; the images of an index are built from the same."""
    if found.config is not None:
        document: dict[str, Any] = json.loads(api.config(repository, found.config.digest))
        image_labels = (document.get("config") or {}).get("Labels") or {}
        return image_labels.get(labels.SOURCE)
    # Attestations are of no platform (BuildKit writes unknown/unknown).
    real = [one for one in found.platforms if not one.platform.startswith("unknown")]
    inner = (api.manifest(repository, one.digest) for one in real[:1])
    return next((_source(api, repository, one) for one in inner if one and one.config), None)


def _of_others(
    asked: str, named: Registry | None, environ: Mapping[str, str], opened: Opened, *, loopback: bool
) -> PinnedImage:
    """Return the digest that a reference means now; what cannot be asked from here is left to the nodes."""
    host = docker_images.registry_of(asked)
    registry = named if named and named.address == host else Registry(address=host)
    repository, wanted = _split(asked)
    if place(registry).is_loopback and not loopback:
        return _as_it_is(asked, login(registry, environ), f"{host} is the nodes' own loopback, not this machine's")
    path = _path(repository, host)
    try:
        found, who = _asked(registry, environ, opened, lambda api: api.manifest(path, wanted))
    except _AWAY as error:
        return _as_it_is(asked, login(registry, environ), error.what)
    except LoginError as error:
        # Nodes may have a login of their own: an instance's role, a pull secret of their service account.
        if login(registry, environ) is not None:
            raise
        return _as_it_is(asked, None, error.what)
    if found is None:
        raise MissingError(
            f"there is no image {asked} in its registry",
            where=f"registry {host}",
            hint="Is the name right? `image:` is a directory of images/, or REGISTRY/NAME:TAG.",
        )
    return PinnedImage(asked, f"{repository}@{found.digest}", found.digest, who)


def _as_it_is(asked: str, who: Login | None, why: str) -> PinnedImage:
    digest = asked.partition("@")[2] or None
    remark = "" if digest else f"image {asked} is used as it is, without a digest: {why}"
    if "speaks plain HTTP" in remark:
        host = asked.partition("/")[0]
        remark += f". If meant, say so before the cluster is made: registry: {{address: {host}, insecure: true}}"
    return PinnedImage(asked, asked, digest, who, remark)


def _asked(
    registry: Registry, environ: Mapping[str, str], opened: Opened, ask: Callable[[RegistryApi], Answer | None]
) -> tuple[Answer | None, Login | None]:
    """Ask as nobody, then with the login that Docker keeps; the login of a cluster file is used at once.

    A login that is not needed is not handed to the nodes. Registries may hide what is private: "not there" counts only
    from somebody who may see it.
    """
    first = login(registry, environ) if _is_named(registry) else None
    refusal: LoginError | None = None
    try:
        with opened(registry, environ, first) as api:
            answer = ask(api)
        if answer is not None or first is not None:
            return answer, first
    except LoginError as error:
        refusal = error
    second = None if first else docker_login(registry.address, environ)
    if second is not None:
        with opened(registry, environ, second) as api:
            return ask(api), second
    if refusal is not None:
        raise refusal
    return None, None


def _is_named(registry: Registry) -> bool:
    return registry.login == "ecr" or bool(registry.username)


def _split(asked: str) -> tuple[str, str]:
    """Return the repository as it is written, and the digest or tag; Docker's default tag is latest."""
    name, at, digest = asked.partition("@")
    repository, tag = docker_images.split_tag(name)
    return repository, digest if at else tag or "latest"


def _path(repository: str, host: str) -> str:
    """Return what the registry itself calls a repository: Docker Hub keeps one-word names in library/."""
    path = repository.removeprefix(f"{host}/")
    return f"library/{path}" if host == docker_images.HUB and "/" not in path else path
