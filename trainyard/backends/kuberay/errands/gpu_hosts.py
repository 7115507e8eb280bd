"""Which Kubernetes nodes could have a cluster's GPU nodes, as far as the user may see that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainyard.backends.kuberay.capacity import hosts
from trainyard.backends.kuberay.capacity.hosts import Host
from trainyard.backends.kuberay.documents import pod_parts
from trainyard.backends.kuberay.errands import errand_pod
from trainyard.backends.kuberay.there import seen
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import NODE, POD
from trainyard.spec.cluster import ClusterSpec

# Each host pulls the image: of a large Kubernetes, some are tried.
AT_MOST = 16


@dataclass(frozen=True)
class Try:
    """Where GPUs are tried: `host` is None where it is left to the scheduler; `gpus` are those of a node of `group`."""

    group: str
    gpus: int
    host: str | None = None

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return self.host or f"a host of {self.group}"


def groups(spec: ClusterSpec) -> dict[str, int]:
    """Return the GPUs of a node of each group that has some, the most first."""
    every = {"head": spec.head.gpus, **{group.name: group.gpus for group in spec.workers}}
    ordered = sorted(every.items(), key=lambda one: -one[1])
    return {name: gpus for name, gpus in ordered if gpus}


def tries(kube: Kube, spec: ClusterSpec) -> tuple[Try, ...]:
    """Return where to try: on each host with free GPUs, once; one host per group where hosts may not be listed."""
    nodes, pods = seen(lambda: tuple(kube.list(NODE))), seen(lambda: tuple(kube.list(POD)))
    # What else runs there need not be known: a host without a free GPU says so itself.
    users = [one for one in pods.found or () if not errand_pod.is_errand(one, spec.name, spec.kuberay.namespace)]
    there = hosts.hosts(nodes.found, users, ours=()) if nodes.found else ()
    found = on_hosts(spec, there)
    return found[:AT_MOST] or tuple(Try(group, gpus) for group, gpus in groups(spec).items())


def on_hosts(spec: ClusterSpec, there: Iterable[Host]) -> tuple[Try, ...]:
    """Return one try for each host that a group may run on and has GPUs for; of several groups, that with the most."""
    wanted = groups(spec)
    found = []
    for host in there:
        fitting = (Try(group, gpus, host.name) for group, gpus in wanted.items() if _fits(spec, group, gpus, host))
        found += list(fitting)[:1]
    return tuple(found)


def _fits(spec: ClusterSpec, group: str, gpus: int, host: Host) -> bool:
    place, resource = spec.kuberay.placement(group), spec.kuberay.gpu_resource
    tolerations = pod_parts.tolerations(place, resource)
    if hosts.keeps_out(host, selector=place.node_selector, tolerations=tolerations):
        return False
    return host.free.get(resource, 0) >= gpus * 1000
