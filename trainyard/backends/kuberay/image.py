"""Which image exactly: what the registry says, or what the cluster runs where the registry does not answer."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainyard.backends.contract import Tools
from trainyard.backends.kuberay import names
from trainyard.backends.kuberay.site import Site
from trainyard.images import catalog, resolve
from trainyard.images.types import PinnedImage
from trainyard.seams.docker import images as docker_images
from trainyard.seams.kube.types import Object
from trainyard.seams.registry.errors import BusyError, GoneError, RegistryError
from trainyard.spec.cluster import ClusterSpec


@dataclass(frozen=True)
class Chosen:
    """An image. `pull_secrets` are those that the cluster runs it with, if it is `kept`: nobody could be asked."""

    image: PinnedImage
    kept: bool = False
    pull_secrets: tuple[str, ...] = ()


def pinned(spec: ClusterSpec, tools: Tools, where: Site) -> PinnedImage:
    """Return the exact image that the file means now, as its registry says."""
    return resolve.for_nodes(
        spec,
        tools.environ,
        directory=tools.directory,
        loopback=_is_loopback(urlsplit(where.kube.server).hostname or ""),
    )


def asked(spec: ClusterSpec, tools: Tools, where: Site) -> PinnedImage | RegistryError:
    """Return the exact image, or the error of a registry that does not answer."""
    try:
        return pinned(spec, tools, where)
    except (GoneError, BusyError) as error:
        return error


def choose(
    spec: ClusterSpec, tools: Tools, found: PinnedImage | RegistryError, ray_cluster: Object | None, *, recreate: bool
) -> Chosen:
    """Return the image to run; a cluster that runs keeps its own while the registry does not answer.

    Raises the registry's error where there is none.
    """
    if isinstance(found, PinnedImage) and (found.digest or not found.remark):
        return Chosen(found)
    kept = None if recreate or ray_cluster is None else _running(spec, tools, ray_cluster, found)
    if kept:
        return kept
    if isinstance(found, RegistryError):
        raise found
    return Chosen(found)


def _running(spec: ClusterSpec, tools: Tools, ray_cluster: Object, found: PinnedImage | RegistryError) -> Chosen | None:
    """Return what a cluster runs, if that is of the repository that the file names, by its digest."""
    reference = str((ray_cluster["metadata"].get("annotations") or {}).get(names.IMAGE) or "")
    repository, _, digest = reference.partition("@")
    if not digest or repository != _repository(spec, tools):
        return None
    why = found.what if isinstance(found, RegistryError) else found.remark
    pod = ray_cluster["spec"]["headGroupSpec"]["template"]["spec"]
    image = PinnedImage(reference, reference, digest, remark=f"the cluster keeps the image that it runs: {why}")
    return Chosen(image, kept=True, pull_secrets=tuple(one["name"] for one in pod.get("imagePullSecrets") or ()))


def _repository(spec: ClusterSpec, tools: Tools) -> str:
    wanted = spec.image or catalog.DEFAULT_IMAGE
    if catalog.is_reference(wanted, directory=tools.directory):
        return docker_images.split_tag(wanted.partition("@")[0])[0]
    registry = spec.registry
    return f"{registry.address}/{registry.repository(wanted)}" if registry else wanted


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
