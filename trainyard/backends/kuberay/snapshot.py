"""A cluster's objects, read in parallel; hosts and logs are read on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import ParamSpec, TypeVar

from trainyard.backends.kuberay import groups, location, naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.errors import TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import EVENT, NODE, POD, Object
from trainyard.seams.threads import side_by_side

Asked = ParamSpec("Asked")
Found = TypeVar("Found")
TAIL_LINES = 60


def if_allowed(
    ask: Callable[Asked, Found], *given: Asked.args, **named: Asked.kwargs
) -> Found | None:
    """Call the API; return None if the user lacks the right."""
    try:
        return ask(*given, **named)
    except ForbiddenError:
        return None


@dataclass(frozen=True)
class Snapshot:
    """The pods of one owner, head first, and their namespace's events.

    The oldest event comes first. `owner` is a RayCluster or a Deployment.
    `name` returns a pod's name in messages. A pod may wait `wait_for_machines`
    seconds for a host.
    """

    kube: Kube
    namespace: str
    pods: tuple[Object, ...]
    owner: Object | None = None
    events: tuple[Object, ...] = ()
    name: Callable[[Object], str] = naming.node_name
    wait_for_machines: float = 0.0

    @property
    def head(self) -> Object | None:
        """Return the head's pod; prefer one that is not leaving."""
        return next(iter(groups.members(groups.HEAD, self.pods)), None)

    @cached_property
    def hosts(self) -> Mapping[str, Object | None]:
        """Read the hosts of unready pods, by name; {} if the user may not.

        A host that no longer exists is None.
        """
        unready = {pods.host(pod) for pod in self.pods if not pods.is_ready(pod)}
        hosts = sorted(unready - {""})
        found = if_allowed(side_by_side, lambda host: self.kube.get(NODE, host), hosts)
        if found is None:
            return {}
        return dict(zip(hosts, found, strict=True))

    def events_of(self, about: Object) -> tuple[Object, ...]:
        uid = pods.uid(about)
        found = []
        for event in self.events:
            subject = event.get("involvedObject") or {}
            if subject.get("uid") == uid:
                found.append(event)
        return tuple(found)

    def log(self, pod: Object, container: str, *, former: bool) -> str:
        """Read the last lines of a log; return an error as text."""
        try:
            return self.kube.logs(
                pods.name(pod),
                namespace=self.namespace,
                container=container,
                previous=former,
                lines=TAIL_LINES,
            )
        except TrainyardError as error:
            return f"(its log cannot be read: {error.what})"


def read(where: Location) -> Snapshot:
    """Ask Kubernetes for a cluster's RayCluster, pods and events.

    Raises RequestError if Trainyard did not make the RayCluster.
    """
    with ThreadPoolExecutor(3) as threads:
        cluster = threads.submit(location.ray_cluster, where)
        listing = threads.submit(cluster_pods, where)
        events = threads.submit(_events, where.kube, where.namespace)
        return Snapshot(
            where.kube,
            where.namespace,
            tuple(listing.result()),
            owner=cluster.result(),
            events=events.result(),
            wait_for_machines=where.section.wait_for_machines or 0.0,
        )


def cluster_pods(where: Location) -> list[Object]:
    """Return the pods, even of a former RayCluster: head first, then by age."""
    labels = naming.of_ray_cluster(where.name)
    found = where.kube.list(POD, namespace=where.namespace, labels=labels)

    def order(pod: Object) -> tuple[bool, str, str]:
        created = pod["metadata"].get("creationTimestamp") or ""
        return (not pods.is_head(pod), created, pods.name(pod))

    return sorted(found, key=order)


def node_pods(where: Location) -> dict[str, Object]:
    """Return the pods by node name; prefer those that are not leaving."""
    leaving_first = sorted(cluster_pods(where), key=pods.is_leaving, reverse=True)
    return {naming.node_name(pod): pod for pod in leaving_first}


def of_pods(
    kube: Kube,
    namespace: str,
    own: Iterable[Object],
    *,
    owner: Object | None = None,
    name: Callable[[Object], str] = naming.node_name,
) -> Snapshot:
    return Snapshot(kube, namespace, tuple(own), owner, _events(kube, namespace), name)


def _events(kube: Kube, namespace: str) -> tuple[Object, ...]:
    """Return events, oldest first; () if the user may not list them."""
    found = if_allowed(kube.list, EVENT, namespace=namespace) or ()
    return tuple(sorted(found, key=pods.when))
