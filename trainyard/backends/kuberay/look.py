"""What Kubernetes says about a cluster, all of it read side by side; log files only where they matter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

from trainyard.backends.kuberay import beside, names, site
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause_container
from trainyard.backends.kuberay.causes.facts import Facts, Object
from trainyard.backends.kuberay.site import Site
from trainyard.errors import TrainyardError
from trainyard.seams.kube.types import Ran
from trainyard.spec.cluster import ClusterSpec

TAIL_LINES = 60
PROBE_SECONDS = 20.0
# What KubeRay's own container does, with what it throws away (ray-operator/controllers/ray/common/pod.go). The address
# is in a variable that KubeRay sets.
PROBE = (
    'timeout 10 getent hosts "$FQ_RAY_IP" >/dev/null || { echo "no address for $FQ_RAY_IP: the cluster has no DNS that '
    'answers, or it does not know the head"; exit 1; }; timeout 15 ray health-check --address "$FQ_RAY_IP:6379" 2>&1 '
    '|| echo "ray health-check: exit code $? for $FQ_RAY_IP:6379"'
)
# 2: there is no such name; 124: nobody said within the time (getent and timeout of the image).
RESOLVES = 'timeout 5 getent hosts "$FQ_RAY_IP" >/dev/null'
UNRESOLVED = (2, 124)


@dataclass(frozen=True)
class Look:
    """What was seen: `cluster` is the RayCluster, None if there is none (any more); `pods` the head first."""

    cluster: Object | None
    pods: tuple[Object, ...]
    facts: Facts

    @property
    def head(self) -> Object | None:
        """Return the head's pod; one that goes only while there is no other."""
        heads = [one for one in self.pods if pods.is_head(one)]
        return next((one for one in heads if not pods.is_leaving(one)), heads[0] if heads else None)


def look(where: Site, spec: ClusterSpec) -> Look:
    """Read RayCluster, pods and events. Raises RequestError if the RayCluster is somebody else's."""
    cluster, found = _objects(where)
    about = [*([cluster] if cluster else []), *beside.unready(found)]
    return _seen(where, spec, cluster, found, beside.events(where.kube, where.namespace, about))


def without_events(where: Site, spec: ClusterSpec) -> Look:
    """Read RayCluster and pods alone, which is enough to connect."""
    cluster, found = _objects(where)
    return _seen(where, spec, cluster, found, ())


def _objects(where: Site) -> tuple[Object | None, tuple[Object, ...]]:
    with ThreadPoolExecutor(2) as threads:
        cluster = threads.submit(site.ray_cluster, where)
        found = threads.submit(site.pods, where)
        return cluster.result(), tuple(found.result())


def _seen(
    where: Site, spec: ClusterSpec, cluster: Object | None, found: tuple[Object, ...], events: tuple[Object, ...]
) -> Look:
    facts = Facts(
        pods=found,
        events=events,
        owner=cluster,
        nodes=cache(lambda: beside.hosts(where.kube, beside.unready(found))),
        words=lambda pod, container, former: _words(where, pod, container, former),
        probe=lambda pod: _probe(where, pod),
        resolves=lambda pod: _resolves(where, pod),
        wait_for_machines=spec.kuberay.wait_for_machines or 0.0,
    )
    seen = Look(cluster, found, facts)
    return replace(seen, facts=replace(facts, head=seen.head))


def _words(where: Site, pod: Object, container: str, former: bool) -> str:
    return beside.words(where.kube, pod, container, namespace=where.namespace, former=former, lines=TAIL_LINES)


def _resolves(where: Site, pod: Object) -> bool:
    try:
        return _run(where, pod, RESOLVES).code not in UNRESOLVED
    except TrainyardError:
        # May not be run, or the container has just ended: nothing is known.
        return True


def _run(where: Site, pod: Object, script: str) -> Ran:
    return where.kube.run_in(
        pods.name(pod),
        ["/bin/bash", "-c", script],
        namespace=where.namespace,
        container=names.WAIT_CONTAINER,
        seconds=PROBE_SECONDS,
    )


def _probe(where: Site, pod: Object) -> str:
    try:
        ran = _run(where, pod, PROBE)
        return cause_container.last_lines(_without_traceback(ran.stdout + ran.stderr))
    except TrainyardError:
        return cause_container.last_lines(_words(where, pod, names.WAIT_CONTAINER, False))


def _without_traceback(said: str) -> str:
    """Return what was said without the lines of code that it came from."""
    return "\n".join(line for line in said.splitlines() if not line.startswith((" ", "Traceback")))
