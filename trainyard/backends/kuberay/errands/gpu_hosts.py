"""Which Kubernetes nodes could have a cluster's GPU nodes, as far as the user may see that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from trainyard.backends.kuberay.capacity import hosts, packing
from trainyard.backends.kuberay.capacity.demands import Demand
from trainyard.backends.kuberay.capacity.hosts import Host
from trainyard.backends.kuberay.documents import pod_parts
from trainyard.backends.kuberay.errands import errand_pod
from trainyard.backends.kuberay.there import seen
from trainyard.seams.kube.api import Kube
from trainyard.seams.kube.types import NODE, POD
from trainyard.spec.cluster import ClusterSpec

# Each host pulls the image: of a large Kubernetes, some are tried.
AT_MOST = 16
# So many are tried beside those that a cluster needs: one of those may be broken, or busy by then.
SPARE = 2


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


@dataclass(frozen=True)
class Trial:
    """Where GPUs are tried; `hosts` are all that could have nodes with GPUs, () where they may not be seen."""

    spec: ClusterSpec
    tries: tuple[Try, ...]
    hosts: tuple[Host, ...] = ()

    def is_enough(self, titles: Collection[str]) -> bool:
        """Say whether all nodes with GPUs find some on these hosts alone."""
        return bool(self.hosts) and _has_all(self.spec, [one for one in self.hosts if one.name in titles])

    def bears(self, bad: Collection[str], good: Collection[str]) -> bool:
        """Say whether a cluster can do without the bad ones: each group has a good one, and there are enough others."""
        others = [one for one in self.hosts if one.name not in bad]
        proven = [one for one in self.hosts if one.name in good]
        each = all(
            any(_fits(self.spec, group, gpus, one) for one in proven) for group, gpus in groups(self.spec).items()
        )
        return each and _has_all(self.spec, others)


def plan(kube: Kube, spec: ClusterSpec, *, replaces: bool = False) -> Trial:
    """Return where to try: on hosts with free GPUs, once; on one for each group where hosts may not be listed.

    `replaces`: another cluster of that name still holds GPUs. Where no others are free, there is nothing to try.
    """
    nodes, pods = seen(lambda: tuple(kube.list(NODE))), seen(lambda: tuple(kube.list(POD)))
    # What else runs there need not be known: a host without a free GPU says so itself.
    users = [one for one in pods.found or () if not errand_pod.is_errand(one, spec.name, spec.kuberay.namespace)]
    there = hosts.hosts(nodes.found, users, ours=()) if nodes.found else ()
    found = on_hosts(spec, there)
    if not found:
        return Trial(spec, () if replaces else tuple(Try(group, gpus) for group, gpus in groups(spec).items()))
    could = tuple(one for one in there if one.name in {tried.host for tried in found})
    return Trial(spec, _chosen(spec, found, could), could)


def on_hosts(spec: ClusterSpec, there: Iterable[Host]) -> tuple[Try, ...]:
    """Return one try for each host that a group may run on and has GPUs for; of several groups, that with the most."""
    wanted = groups(spec)
    found = []
    for host in there:
        fitting = (Try(group, gpus, host.name) for group, gpus in wanted.items() if _fits(spec, group, gpus, host))
        found += list(fitting)[:1]
    return tuple(found)


def _chosen(spec: ClusterSpec, every: tuple[Try, ...], could: tuple[Host, ...]) -> tuple[Try, ...]:
    """Return the tries on as many hosts as the cluster needs, and some more; all where it needs all."""
    packed = packing.pack(_demands(spec), could)
    needed = {one.name for one in packed.left if one.ours} if not packed.missing else set()
    if not needed:
        return every[:AT_MOST]
    spare = [one for one in every if one.host not in needed][:SPARE]
    return tuple(one for one in every if one.host in needed or one in spare)[:AT_MOST]


def _has_all(spec: ClusterSpec, there: Collection[Host]) -> bool:
    return not packing.pack(_demands(spec), tuple(there)).missing


def _demands(spec: ClusterSpec) -> list[Demand]:
    """Return what the nodes with GPUs ask for, as far as GPUs go; of a group that may grow from none, one."""
    counts = dict.fromkeys(groups(spec), 0)
    for node in spec.nodes():
        if node.group in counts:
            counts[node.group] += 1
    return [_demand(spec, group) for group, count in counts.items() for _ in range(max(count, 1))]


def _demand(spec: ClusterSpec, group: str) -> Demand:
    place, resource = spec.kuberay.placement(group), spec.kuberay.gpu_resource
    wants = {resource: groups(spec)[group] * 1000}
    return Demand(
        group=group,
        requests=wants,
        limits=wants,
        containers=((wants, wants),),
        selector=place.node_selector,
        tolerations=tuple(pod_parts.tolerations(place, resource)),
        alone=place.spread == "required",
    )


def _fits(spec: ClusterSpec, group: str, gpus: int, host: Host) -> bool:
    place, resource = spec.kuberay.placement(group), spec.kuberay.gpu_resource
    tolerations = pod_parts.tolerations(place, resource)
    if hosts.keeps_out(host, selector=place.node_selector, tolerations=tolerations):
        return False
    return host.free.get(resource, 0) >= gpus * 1000
