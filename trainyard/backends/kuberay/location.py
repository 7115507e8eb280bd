"""Where a cluster lives on Kubernetes: API server and namespace, and the record of them."""

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

# Keys of the section that say where a cluster is; given on the command line, they are meant for
# this very command.
_KEYS = ("namespace", "context", "kubeconfig")


@dataclass(frozen=True)
class Location:
    """A namespace of one Kubernetes, and the name of the cluster that lives there, or is to.

    `section` is what the caller says about kubeconfig, pods and operator: of a cluster file's
    `kuberay`, or its own. `owner` is who we are to others.
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
    """The record by which a cluster is found after its file or the current context changed.

    `kubeconfig` is written as $KUBECONFIG is.
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
    """A RayCluster, as its objects name it."""

    name: str
    uid: str


def find(spec: ClusterSpec, site: Site, section: KuberaySection) -> Location:
    """Return the cluster's location: the recorded one, whatever the file says now.

    Raises RequestError if the recorded context now leads to another server, or if the command line
    names another location.
    """
    record = read(site)
    if record is None:
        return of_section(spec, site, section)
    if _given(site):
        refuse_other(site, of_section(spec, site, section))

    environ = {**site.environ, "KUBECONFIG": record.kubeconfig}
    kube = api.connect(config.access(environ, context=record.context))
    location = Location(kube, record.namespace, spec.name, section, _owner(site))
    refuse_other(site, location)
    return location


def of_section(spec: ClusterSpec, site: Site, section: KuberaySection) -> Location:
    """Return the location that the section asks for, recorded or not. Raises PrerequisiteError."""
    access = config.access(
        site.environ,
        kubeconfig=section.kubeconfig,
        context=section.context,
        relative_to=site.directory,
    )
    kube = api.connect(access)
    return Location(kube, section.namespace, spec.name, section, _owner(site))


def _owner(site: Site) -> str:
    """Return this user's name as an owner: the one given or recorded on `up`, else user@host."""
    record = read(site)
    if record and record.owner:
        return given(site.environ) or record.owner
    return current(site.environ)


def refuse_other(site: Site, location: Location) -> None:
    """Raise RequestError if the cluster was made in another namespace or on another server."""
    record = read(site)
    if record is None:
        return
    if record.namespace == location.namespace and record.server == location.kube.server:
        return

    remedy = "change the file back, or give its kubeconfig (KUBECONFIG=...)."
    given = [f"--set {override}" for override in _given(site)]
    if given:
        remedy = f"leave out {' and '.join(given)}."
    raise RequestError(
        f"cluster {record.name} is in {record}; now {location} ({location.kube.server}) is asked "
        "for",
        where=str(site.source) if site.source else None,
        hint=f"To mean that one, {remedy} For a second cluster, give it another name: a name is one "
        "cluster on this machine. To move this one, remove it there first: trainyard cluster.down. "
        "If that Kubernetes is gone for good, or only got another address: "
        f"rm -r {site.state}",
    )


def read(site: Site) -> Record | None:
    found = records.read_cluster(site.state, site.backend)
    if not found:
        return None
    return Record(**{key: found[key] for key in Record.__annotations__})


def record_of(location: Location) -> Record:
    """Return the record to write down for a location."""
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
    """Return the kubeconfig files in use, as $KUBECONFIG is written."""
    return os.pathsep.join(map(str, kube.access.files))


def kubectl(location: Location) -> str:
    return shlex.join(kubectl_words(location))


def kubectl_words(location: Location) -> list[str]:
    """Return kubectl with its flags for the same Kubernetes.

    Several kubeconfig files can be given only by $KUBECONFIG.
    """
    words = ["kubectl"]
    files = location.kube.access.files
    if len(files) == 1:
        words += ["--kubeconfig", str(files[0])]
    return [*words, "--context", location.kube.context]


def exec_words(location: Location, pod: Object, command: str, *, terminal: bool) -> list[str]:
    """Return kubectl's arguments for a shell, or a command line, in a node's container."""
    container = naming.WORKER_CONTAINER
    if pods.is_head(pod):
        container = naming.HEAD_CONTAINER
    interactive = "-i"
    if terminal:
        interactive = "-it"

    words = ["--namespace", location.namespace, "exec", interactive, pods.name(pod)]
    return [*words, "--container", container, "--", *shell_words(command)]


def ray_cluster(location: Location) -> Object | None:
    """Return the cluster's RayCluster, None if there is none.

    Raises RequestError if Trainyard did not make it.
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
        f"or use that one: `backend: existing` with `existing: {{service: {service}}}`.",
    )


def is_ours(found: Object, name: str) -> bool:
    return pods.labels_of(found).get(naming.CLUSTER) == name


def owners(found: Mapping[str, Any]) -> list[Owner]:
    """Return the RayClusters that an object belongs to."""
    clusters = []
    for owner in found["metadata"].get("ownerReferences") or ():
        if owner["kind"] == RAY_CLUSTER.name:
            clusters.append(Owner(owner["name"], str(owner["uid"])))
    return clusters


def owner_of(live: Object, name: str) -> Object:
    """Return the reference by which an object belongs to a live RayCluster, and goes with it."""
    return {
        "apiVersion": RAY_CLUSTER.api,
        "kind": RAY_CLUSTER.name,
        "name": name,
        "uid": pods.uid(live),
    }


def _given(site: Site) -> list[str]:
    """Return the command line's overrides that select a location."""
    return site.overriding(*(f"{site.backend}.{key}" for key in _KEYS))
