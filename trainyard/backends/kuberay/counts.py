"""How many pods a RayCluster asks for, has, and can do without; pure. As KubeRay 1.5.1 counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.backends import wording
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes.facts import Object

RayCluster = Mapping[str, Any]


def desired(cluster: RayCluster) -> dict[str, int]:
    """Return how many pods each group should have now, as KubeRay counts (utils.GetWorkerGroupDesiredReplicas)."""
    return {"head": 1, **{str(one["groupName"]): _replicas(one) for one in _groups(cluster)}}


def minimum(cluster: RayCluster) -> dict[str, int]:
    """Return how many pods of each group must run: of a group that grows, the fewest."""
    grows = bool(cluster["spec"].get("enableInTreeAutoscaling"))
    least = {
        str(one["groupName"]): _low(one)
        for one in _groups(cluster)
        if grows and one.get("minReplicas") != one.get("maxReplicas")
    }
    return {**desired(cluster), **least}


def maximum(cluster: RayCluster) -> dict[str, int]:
    """Return how many pods each group may have."""
    grows = bool(cluster["spec"].get("enableInTreeAutoscaling"))
    most = {str(one["groupName"]): _high(one) for one in _groups(cluster) if grows}
    return {**desired(cluster), **most}


def missing(cluster: RayCluster, found: Sequence[Object]) -> dict[str, int]:
    """Return how many pods of each group should be there and are not; those that go count until they are gone."""
    has: dict[str, int] = {}
    for one in found:
        has[pods.group(one)] = has.get(pods.group(one), 0) + 1
    return {group: count - has.get(group, 0) for group, count in desired(cluster).items() if count > has.get(group, 0)}


def spare(cluster: RayCluster, found: Sequence[Object]) -> frozenset[str]:
    """Return the uids of pods that nobody has to wait for: those beyond the fewest of a group that grows."""
    least, most = minimum(cluster), maximum(cluster)
    uids: set[str] = set()
    for group in (name for name, count in least.items() if most[name] > count):
        ours = [one for one in found if pods.group(one) == group]
        if sum(map(pods.is_ready, ours)) >= least[group]:
            uids.update(pods.uid(one) for one in ours if not pods.is_ready(one))
    return frozenset(uids)


def is_observed(cluster: RayCluster) -> bool:
    """Say whether the operator has seen the cluster as it is now.

    KubeRay 1.5 does not write observedGeneration down unless something else in the status changes too
    (utils.InconsistentRayClusterStatus): after a change of an idle timeout alone, it stays behind for ever.
    """
    if not is_behind(cluster):
        return True
    status = cluster.get("status") or {}
    each = [(_replicas(one), _low(one), _high(one)) for one in _groups(cluster)]
    wanted = [sum(one[index] for one in each) for index in range(3)]
    fields = ("desiredWorkerReplicas", "minWorkerReplicas", "maxWorkerReplicas")
    return bool(status.get("observedGeneration")) and wanted == [int(status.get(one) or 0) for one in fields]


def is_behind(cluster: RayCluster) -> bool:
    """Say whether the operator has not written down that it saw the cluster as it is now."""
    observed = (cluster.get("status") or {}).get("observedGeneration") or 0
    return int(observed) < int(cluster["metadata"].get("generation") or 0)


def nodes(group: str, count: int) -> str:
    """Return some nodes of a group as people say it."""
    return "the head" if group == "head" else f"{wording.counted(count, 'node')} of {group}"


def _groups(cluster: RayCluster) -> Sequence[Mapping[str, Any]]:
    return cluster["spec"].get("workerGroupSpecs") or ()


def _replicas(group: Mapping[str, Any]) -> int:
    if group.get("suspend"):
        return 0
    # Nobody writes `replicas` of a group that grows; its default is 0.
    asked = int(group.get("replicas") or 0) * _hosts(group)
    return min(max(asked, _low(group)), _high(group))


def _low(group: Mapping[str, Any]) -> int:
    return int(group.get("minReplicas") or 0) * _hosts(group)


def _high(group: Mapping[str, Any]) -> int:
    most = group.get("maxReplicas")
    return (2**31 - 1 if most is None else int(most)) * _hosts(group)


def _hosts(group: Mapping[str, Any]) -> int:
    return int(group.get("numOfHosts") or 1)
