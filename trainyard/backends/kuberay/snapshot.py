"""What Kubernetes says at one moment about what should run; one read, side by side, and details only when they matter.

Only about these objects: namespaces have other people's events, and a large Kubernetes megabytes of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from trainyard.backends.kuberay import location, naming, pods
from trainyard.backends.kuberay.location import Location
from trainyard.backends.kuberay.pods import Object
from trainyard.errors import TrainyardError
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.errors import ForbiddenError
from trainyard.seams.kube.types import EVENT, NODE, POD

AT_ONCE = 8
Found = TypeVar("Found")
Subject = TypeVar("Subject")
# A question names one object (kubernetes/pkg/registry/core/event, ToSelectableFields): for more, the namespace's events
# are read at once.
ONE_BY_ONE = 8
TAIL_LINES = 60
PROBE_SECONDS = 30.0
# What KubeRay's own container does, with what it throws away (ray-operator/controllers/ray/common/pod.go). The address
# is in a variable that KubeRay sets.
PROBE = (
    'timeout 10 getent hosts "$FQ_RAY_IP" >/dev/null || { echo "no address for $FQ_RAY_IP: the cluster has no DNS that '
    'answers, or it does not know the head"; exit 1; }; timeout 15 ray health-check --address "$FQ_RAY_IP:6379" 2>&1 '
    '|| echo "ray health-check: exit code $? for $FQ_RAY_IP:6379"'
)


@dataclass(frozen=True)
class Reply(Generic[Found]):
    """What the API found, or why the user may not know."""

    found: Found | None
    refusal: ForbiddenError | None = None


def if_allowed(ask: Callable[[], Found | None]) -> Reply[Found]:
    try:
        return Reply(ask())
    except ForbiddenError as error:
        return Reply(None, error)


def side_by_side(ask: Callable[[Subject], Found], subjects: Iterable[Subject]) -> list[Found]:
    """Return the answers in the order of what was asked about; the first question that fails raises."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, subjects))


@dataclass(frozen=True)
class Snapshot:
    """Pods, the head first; what they belong to (`owner`: RayCluster or Deployment, None if there is none); and events.

    The events are the owner's and those of pods that are not ready, the oldest first. `name` is what messages call a
    pod; `wait_for_machines` is how many seconds one may find no room.
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
        """Return the head's pod; one that is being deleted only while there is no other."""
        heads = sorted(filter(pods.is_head, self.pods), key=pods.is_leaving)
        return heads[0] if heads else None

    @cached_property
    def hosts(self) -> Mapping[str, Object | None]:
        """Return the hosts of pods that are not ready, None for one that is gone; {} if the user may not see them."""
        hosts = sorted({pods.host(pod) for pod in unready(self.pods) if pods.host(pod)})
        try:
            return dict(zip(hosts, side_by_side(lambda host: self.kube.get(NODE, host), hosts), strict=True))
        except ForbiddenError:
            return {}

    def events_of(self, about: Object) -> tuple[Object, ...]:
        return pods.of(self.events, pods.uid(about))

    def log(self, pod: Object, container: str, *, former: bool = False) -> str:
        """Return the last lines of a container, or of its former run; or that they cannot be read."""
        try:
            return self.kube.logs(
                pods.name(pod), namespace=self.namespace, container=container, previous=former, lines=TAIL_LINES
            )
        except TrainyardError as error:
            return f"(its log cannot be read: {error.what})"

    def probe(self, pod: Object) -> str:
        """Return what a worker that waits for its head gets when it asks for it; its log if that cannot be asked."""
        try:
            ran = self.kube.run_in(
                pods.name(pod),
                ["/bin/bash", "-c", PROBE],
                namespace=self.namespace,
                container=naming.WAIT_CONTAINER,
                seconds=PROBE_SECONDS,
            )
        except TrainyardError:
            return self.log(pod, naming.WAIT_CONTAINER)
        # Without the lines of code that an exception came from.
        said = (ran.stdout + ran.stderr).splitlines()
        return "\n".join(line for line in said if not line.startswith((" ", "Traceback")))


def read(where: Location, *, with_events: bool = True) -> Snapshot:
    """Read a cluster; without events, it is enough to connect. Raises RequestError if somebody else made it."""
    with ThreadPoolExecutor(2) as threads:
        cluster = threads.submit(location.ray_cluster, where)
        found = threads.submit(cluster_pods, where)
        owner, own = cluster.result(), found.result()
    wait = where.section.wait_for_machines or 0.0
    if not with_events:
        return Snapshot(where.kube, where.namespace, tuple(own), owner, wait_for_machines=wait)
    return of_pods(where.kube, where.namespace, own, owner=owner, wait_for_machines=wait)


def cluster_pods(where: Location) -> list[Object]:
    found = where.kube.list(POD, namespace=where.namespace, labels=naming.of_ray_cluster(where.name))
    return sorted(
        found, key=lambda pod: (not pods.is_head(pod), pod["metadata"].get("creationTimestamp") or "", pods.name(pod))
    )


def of_pods(
    kube: Kube,
    namespace: str,
    found: Iterable[Object],
    *,
    owner: Object | None = None,
    name: Callable[[Object], str] = naming.node_name,
    wait_for_machines: float = 0.0,
) -> Snapshot:
    own = tuple(found)
    about = [*([owner] if owner else []), *unready(own)]
    return Snapshot(kube, namespace, own, owner, _events(kube, namespace, about), name, wait_for_machines)


def unready(found: Iterable[Object]) -> list[Object]:
    return [pod for pod in found if not pods.is_ready(pod)]


def _events(kube: Kube, namespace: str, about: Iterable[Object]) -> tuple[Object, ...]:
    """Return the events of some objects, the oldest first; none where the user may not see them."""
    uids = [pods.uid(each) for each in about]
    try:
        if len(uids) > ONE_BY_ONE:
            found = [each for each in kube.list(EVENT, namespace=namespace) if _about(each) in frozenset(uids)]
        else:
            answers = side_by_side(
                lambda uid: kube.list(EVENT, namespace=namespace, fields=f"involvedObject.uid={uid}"), uids
            )
            found = [each for answer in answers for each in answer]
    except ForbiddenError:
        return ()
    return tuple(sorted(found, key=pods.when))


def _about(event: Object) -> str:
    return str((event.get("involvedObject") or {}).get("uid"))
