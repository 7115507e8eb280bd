"""A cluster's location (API server and namespace), and its record."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from trainyard.backends.contract import Site, shell_words
from trainyard.backends.kuberay import naming, pods
from trainyard.backends.shared import record as records
from trainyard.backends.shared.owner import current, given
from trainyard.errors import RequestError
from trainyard.seams.kube import api, config
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import RAY_CLUSTER, Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.kubernetes import KuberaySection

# Keys that locate a cluster. A command refuses a `--set` of such a key that contradicts the record.
_KEYS = ("namespace", "context", "kubeconfig")


@dataclass(frozen=True)
class Location:
    """The API server, namespace and name of a cluster, which need not exist.

    `section` is the cluster file's `kuberay:`, or another backend's values for
    its keys. `owner` is this user's name as an owner.
    """

    kube: Kube
    namespace: str
    name: str
    section: KuberaySection = field(default_factory=KuberaySection)
    owner: str = ""

    def __str__(self) -> str:
        return f"namespace {self.namespace} of context {self.kube.context}"


@dataclass(frozen=True)
class Record:
    """The recorded location of a cluster.

    It stays right if the file or the current context changes. `kubeconfig` is a
    list of paths, separated as in $KUBECONFIG.
    """

    name: str
    context: str
    kubeconfig: str
    namespace: str
    server: str
    owner: str = ""

    def __str__(self) -> str:
        return f"namespace {self.namespace} of context {self.context} ({self.server})"


class Owner(NamedTuple):
    """A RayCluster, as the ownerReferences of its objects name it."""

    name: str
    uid: str


def find(spec: ClusterSpec, site: Site, section: KuberaySection) -> Location:
    """Return the recorded location; without a record, the file's.

    Raises RequestError if the recorded context now leads to another server, or
    if `--set` names another location.
    """
    record = read(site)
    if record is None:
        return of_section(spec, site, section)
    if _location_flags(site):
        refuse_other(site, of_section(spec, site, section))

    environ = {**site.environ, "KUBECONFIG": record.kubeconfig}
    kube = api.connect(config.access(environ, context=record.context))
    location = Location(kube, record.namespace, spec.name, section, _owner(site))
    refuse_other(site, location)
    return location


def of_section(spec: ClusterSpec, site: Site, section: KuberaySection) -> Location:
    """Return the section's location, whatever is recorded.

    Raises PrerequisiteError without a usable kubeconfig or context.
    """
    access = config.access(
        site.environ,
        kubeconfig=section.kubeconfig,
        context=section.context,
        relative_to=site.directory,
    )
    kube = api.connect(access)
    return Location(kube, section.namespace, spec.name, section, _owner(site))


def _owner(site: Site) -> str:
    """Return $TRAINYARD_OWNER, else the recorded owner, else user@host."""
    record = read(site)
    if record and record.owner:
        return given(site.environ) or record.owner
    return current(site.environ)


def refuse_other(site: Site, location: Location) -> None:
    """Raise RequestError if the record names another place than `location`."""
    record = read(site)
    if record is None:
        return
    if record.namespace == location.namespace and record.server == location.kube.server:
        return

    remedy = "change the file back, or give its kubeconfig (KUBECONFIG=...)."
    given = [f"--set {override}" for override in _location_flags(site)]
    if given:
        remedy = f"leave out {' and '.join(given)}."
    raise RequestError(
        f"cluster {record.name} is in {record}; now {location} ({location.kube.server}) is asked "
        "for",
        where=str(site.source) if site.source else None,
        hint=f"To use the recorded cluster, {remedy} A second cluster needs another name. To move "
        "this cluster, remove it there first: trainyard cluster.down. "
        "If that Kubernetes no longer exists, or has another address: "
        f"rm -r {site.state}",
    )


def read(site: Site) -> Record | None:
    found = records.read_cluster(site.state, site.backend)
    if not found:
        return None
    return Record(**{key: found[key] for key in Record.__annotations__})


def record_of(location: Location) -> Record:
    """Return the record for later commands."""
    kube = location.kube
    return Record(
        name=location.name,
        context=kube.context,
        kubeconfig=kubeconfig(kube),
        namespace=location.namespace,
        server=kube.server,
        owner=location.owner,
    )


def write(site: Site, location: Location) -> None:
    records.write_cluster(site.state, site.backend, asdict(record_of(location)))


def kubeconfig(kube: Kube) -> str:
    """Return the paths of the kubeconfig files, separated as in $KUBECONFIG."""
    return os.pathsep.join(map(str, kube.access.files))


def kubectl(location: Location) -> str:
    return shlex.join(kubectl_words(location))


def kubectl_words(location: Location) -> list[str]:
    """Return `kubectl` with the flags that select this Kubernetes.

    kubectl takes several kubeconfig files only from $KUBECONFIG, so they get no
    flag.
    """
    words = ["kubectl"]
    files = location.kube.access.files
    if len(files) == 1:
        words += ["--kubeconfig", str(files[0])]
    return [*words, "--context", location.kube.context]


def exec_words(location: Location, pod: Object, command: str, *, terminal: bool) -> list[str]:
    """Return kubectl's words that run `command` on a node; "" opens a shell."""
    container = naming.WORKER_CONTAINER
    if pods.is_head(pod):
        container = naming.HEAD_CONTAINER
    interactive = "-i"
    if terminal:
        interactive = "-it"

    words = ["--namespace", location.namespace, "exec", interactive, pods.name(pod)]
    return [*words, "--container", container, "--", *shell_words(command)]


def ray_cluster(location: Location) -> Object | None:
    """Ask for the RayCluster.

    Raises RequestError if Trainyard did not make the one of this name.
    """
    live = location.kube.get(RAY_CLUSTER, location.name, namespace=location.namespace)
    if live is None or is_ours(live, location.name):
        return live
    service = f"{location.namespace}/{location.name}-head-svc"
    raise RequestError(
        f"a RayCluster called {location.name} is in namespace {location.namespace}, and "
        "Trainyard did not make it",
        where=location.kube.place,
        hint="Give yours another name (`name:` in the cluster file); "
        f"or use that RayCluster: `backend: existing` with `existing: {{service: {service}}}`.",
    )


def is_ours(found: Object, name: str) -> bool:
    return pods.labels_of(found).get(naming.CLUSTER) == name


def owners(found: Mapping[str, Any]) -> list[Owner]:
    clusters = []
    for owner in found["metadata"].get("ownerReferences") or ():
        if owner["kind"] == RAY_CLUSTER.name:
            clusters.append(Owner(owner["name"], str(owner["uid"])))
    return clusters


def owner_of(live: Object, name: str) -> Object:
    """Return the ownerReference of objects to remove with the RayCluster."""
    return {
        "apiVersion": RAY_CLUSTER.api,
        "kind": RAY_CLUSTER.name,
        "name": name,
        "uid": pods.uid(live),
    }


def _location_flags(site: Site) -> list[str]:
    return site.overriding(*(f"{site.backend}.{key}" for key in _KEYS))
