"""The groups of nodes in a cluster file, and in a RayCluster; pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainyard import wording
from trainyard.backends.kuberay import pods
from trainyard.seams.kube.types import Object
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.groups import Head, WorkerGroup

HEAD = "head"


@dataclass(frozen=True)
class Group:
    """A group of `least` to `most` nodes, and each node's resources for Ray.

    `memory` is in bytes.
    """

    name: str
    least: int
    most: int
    cpus: int | None = None
    gpus: int = 0
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


def of_cluster(cluster: Object | None) -> dict[str, Group]:
    """Return a RayCluster's groups by name, the head's included."""
    if cluster is None:
        return {}
    workers = cluster["spec"].get("workerGroupSpecs") or ()
    head = {
        **cluster["spec"]["headGroupSpec"],
        "groupName": HEAD,
        "minReplicas": 1,
        "maxReplicas": 1,
    }
    return {str(group["groupName"]): _group(group) for group in (head, *workers)}


def of_file(spec: ClusterSpec, cluster: Object | None) -> dict[str, Group]:
    """Return the file's groups by name, with the file's numbers of nodes.

    Resources are the RayCluster's; those of a group that it lacks are the
    file's.
    """
    declared = [_declared(HEAD, spec.head, least=1, most=1)]
    for worker in spec.workers:
        declared.append(_declared(worker.name, worker, least=worker.least, most=worker.most))

    made = of_cluster(cluster)
    found = {}
    for group in declared:
        existing = made.get(group.name, group)
        found[group.name] = replace(existing, least=group.least, most=group.most)
    return found


def differences(spec: ClusterSpec, cluster: Object | None) -> Iterator[str]:
    """Yield each group's drift in size: `cpu: 2 nodes now, 3 nodes desired`."""
    if cluster is None:
        return
    made = of_cluster(cluster)
    file = of_file(spec, cluster)
    for name in {**file, **made}:
        now = _counted(made.get(name))
        desired = _counted(file.get(name))
        if now != desired:
            yield f"{name}: {now} now, {desired} desired"


def members(group: str, cluster_pods: Sequence[Object]) -> list[Object]:
    """Return a group's pods, ready ones first and leaving ones last."""
    found = [pod for pod in cluster_pods if pods.group(pod) == group]
    found.sort(key=lambda pod: (pods.is_leaving(pod), not pods.is_ready(pod)))
    if group == HEAD:
        return found[:1]
    return found


def awaited(cluster: Object | None, cluster_pods: Sequence[Object]) -> list[Object]:
    """Return the pods that a ready cluster needs.

    A group that grows needs only its minimum.
    """
    made = of_cluster(cluster)
    found: list[Object] = []
    for name in dict.fromkeys(map(pods.group, cluster_pods)):
        group_pods = members(name, cluster_pods)
        group = made.get(name)
        if group and group.most > group.least:
            group_pods = group_pods[: group.least]
        found += group_pods
    return found


def missing(cluster: Object, cluster_pods: Sequence[Object]) -> list[str]:
    """Return groups with fewer pods than their minimum. Leaving pods count."""
    existing = [pods.group(pod) for pod in cluster_pods]
    groups = of_cluster(cluster).values()
    return [group.name for group in groups if existing.count(group.name) < group.least]


def _declared(name: str, size: Head | WorkerGroup, *, least: int, most: int) -> Group:
    return Group(name, least, most, size.cpus, size.gpus, size.memory, size.resources)


def _group(made: Object) -> Group:
    options: dict[str, Any] = made.get("rayStartParams") or {}
    return Group(
        str(made["groupName"]),
        int(made.get("minReplicas") or 0),
        int(made.get("maxReplicas") or 0),
        cpus=_number(options.get("num-cpus")),
        gpus=_number(options.get("num-gpus")) or 0,
        memory=_number(options.get("memory")),
        resources=_resources(str(options.get("resources") or "")),
    )


def _number(option: object) -> int | None:
    if option:
        return int(str(option))
    return None


def _resources(option: str) -> dict[str, float]:
    """Parse the option `resources` of `ray start`: JSON in shell quotes."""
    try:
        return dict(json.loads("".join(shlex.split(option)) or "{}"))
    except ValueError:
        # A user edited the option by hand, and Ray reports the error.
        return {}


def _counted(group: Group | None) -> str:
    if group is None:
        return wording.counted(0, "node")
    if group.least == group.most:
        return wording.counted(group.least, "node")
    return f"{group.least} to {group.most} nodes"
