"""How many pods a RayCluster asks for, has, and can do without; pure. As KubeRay 1.5.1 counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import pods
from trainyard.backends.kuberay.pods import Object

UNBOUNDED = 2**31 - 1


def desired(cluster: Object) -> dict[str, int]:
    """Return how many pods each group should have now, as KubeRay counts (utils.GetWorkerGroupDesiredReplicas)."""
    return {"head": 1, **{str(group["groupName"]): _replicas(group) for group in _groups(cluster)}}


def minimum(cluster: Object) -> dict[str, int]:
    """Return how many pods of each group must run: of a group that grows, the fewest."""
    grow = [group for group in _growing(cluster) if group.get("minReplicas") != group.get("maxReplicas")]
    return {**desired(cluster), **{str(group["groupName"]): _low(group) for group in grow}}


def maximum(cluster: Object) -> dict[str, int]:
    return {**desired(cluster), **{str(group["groupName"]): _high(group) for group in _growing(cluster)}}


def missing(cluster: Object, found: Sequence[Object], *, counts: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return how many pods of each group should exist and do not; those that leave count until they are gone."""
    existing = [pods.group(pod) for pod in found]
    lacking = {group: count - existing.count(group) for group, count in (counts or desired(cluster)).items()}
    return {group: count for group, count in lacking.items() if count > 0}


def spare(cluster: Object | None, found: Sequence[Object]) -> frozenset[str]:
    """Return the uids of pods that nobody has to wait for: those beyond the fewest of a group that grows."""
    if cluster is None or "headGroupSpec" not in (cluster.get("spec") or {}):
        return frozenset()
    least, most = minimum(cluster), maximum(cluster)
    uids: set[str] = set()
    for group in (name for name, count in least.items() if most[name] > count):
        ours = [pod for pod in found if pods.group(pod) == group]
        if sum(map(pods.is_ready, ours)) >= least[group]:
            uids.update(pods.uid(pod) for pod in ours if not pods.is_ready(pod))
    return frozenset(uids)


def is_observed(cluster: Object) -> bool:
    """Say whether the operator has seen the cluster as it is now.

    KubeRay 1.5 does not write observedGeneration down unless something else in the status changes too
    (utils.InconsistentRayClusterStatus): after a change of an idle timeout alone, it stays behind for ever.
    """
    if not is_behind(cluster):
        return True
    status = cluster.get("status") or {}
    counts = [(_replicas(group), _low(group), _high(group)) for group in _groups(cluster)]
    fields = ("desiredWorkerReplicas", "minWorkerReplicas", "maxWorkerReplicas")
    sums = [sum(count[index] for count in counts) for index in range(len(fields))]
    return bool(status.get("observedGeneration")) and sums == [int(status.get(field) or 0) for field in fields]


def is_behind(cluster: Object) -> bool:
    """Say whether the operator has not written down that it saw the cluster as it is now."""
    observed = (cluster.get("status") or {}).get("observedGeneration") or 0
    return int(observed) < int(cluster["metadata"].get("generation") or 0)


def named(counts: Mapping[str, int]) -> str:
    """Return some nodes of groups as people say it: `the head, 2 nodes of gpu`."""
    shown = [
        "the head" if group == "head" else f"{wording.counted(n, 'node')} of {group}" for group, n in counts.items()
    ]
    return wording.named(shown)


def _groups(cluster: Object) -> Sequence[Mapping[str, Any]]:
    return cluster["spec"].get("workerGroupSpecs") or ()


def _growing(cluster: Object) -> Sequence[Mapping[str, Any]]:
    return _groups(cluster) if cluster["spec"].get("enableInTreeAutoscaling") else ()


def _replicas(group: Mapping[str, Any]) -> int:
    if group.get("suspend"):
        return 0
    # Nobody writes `replicas` of a group that grows; its default is 0.
    return min(max(int(group.get("replicas") or 0) * _hosts(group), _low(group)), _high(group))


def _low(group: Mapping[str, Any]) -> int:
    return int(group.get("minReplicas") or 0) * _hosts(group)


def _high(group: Mapping[str, Any]) -> int:
    most = group.get("maxReplicas")
    return (UNBOUNDED if most is None else int(most)) * _hosts(group)


def _hosts(group: Mapping[str, Any]) -> int:
    return int(group.get("numOfHosts") or 1)
