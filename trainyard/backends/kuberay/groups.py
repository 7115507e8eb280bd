"""The groups of nodes of a cluster: of its file, and of its RayCluster; pure."""

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
    """A group of `least` to `most` nodes, and what each of them is for Ray; memory in bytes."""

    name: str
    least: int
    most: int
    cpus: int | None = None
    gpus: int = 0
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


def of_cluster(cluster: Object | None) -> dict[str, Group]:
    """Return the groups as the RayCluster has them; {} if there is none."""
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
    """Return the file's groups with the file's sizes; each node is as it was made."""
    made = of_cluster(cluster)
    head = _declared(HEAD, spec.head, least=1, most=1)
    workers = [
        _declared(each.name, each, least=each.least, most=each.most) for each in spec.workers
    ]
    return {
        group.name: replace(made.get(group.name, group), least=group.least, most=group.most)
        for group in (head, *workers)
    }


def differences(spec: ClusterSpec, cluster: Object | None) -> Iterator[str]:
    """Yield each group whose size differs from the file: `cpu: 2 nodes now, 3 nodes desired`."""
    if cluster is None:
        return
    made = of_cluster(cluster)
    file = of_file(spec, cluster)
    for name in {**file, **made}:
        now, then = (_counted(groups.get(name)) for groups in (made, file))
        if now != then:
            yield f"{name}: {now} now, {then} desired"


def members(group: str, own: Sequence[Object]) -> list[Object]:
    """Return a group's pods: ready ones first, leaving ones last; at most one head."""
    ours = [pod for pod in own if pods.group(pod) == group]
    ours.sort(key=lambda pod: (pods.is_leaving(pod), not pods.is_ready(pod)))
    return ours[:1] if group == HEAD else ours


def awaited(cluster: Object | None, own: Sequence[Object]) -> list[Object]:
    """Return the pods that must run: of a growing group its fewest, not those that Ray adds."""
    made = of_cluster(cluster)
    grows = {group.name: group.least for group in made.values() if group.most > group.least}
    names = dict.fromkeys(pods.group(pod) for pod in own)
    return [pod for name in names for pod in members(name, own)[: grows.get(name)]]


def missing(cluster: Object, own: Sequence[Object]) -> list[str]:
    """Return the groups that have too few pods; leaving pods count until they are gone."""
    existing = [pods.group(pod) for pod in own]
    return [
        group.name
        for group in of_cluster(cluster).values()
        if existing.count(group.name) < group.least
    ]


def _declared(name: str, size: Head | WorkerGroup, *, least: int, most: int) -> Group:
    return Group(name, least, most, size.cpus, size.gpus, size.memory, size.resources)


def _group(made: Object) -> Group:
    started: dict[str, Any] = made.get("rayStartParams") or {}
    cpus, gpus, memory = (started.get(option) for option in ("num-cpus", "num-gpus", "memory"))
    return Group(
        str(made["groupName"]),
        int(made.get("minReplicas") or 0),
        int(made.get("maxReplicas") or 0),
        cpus=int(cpus) if cpus else None,
        gpus=int(gpus or 0),
        memory=int(memory) if memory else None,
        resources=_resources(str(started.get("resources") or "")),
    )


def _resources(option: str) -> dict[str, float]:
    """Return Ray's custom resources from the option of `ray start`: JSON in shell quotes."""
    try:
        return dict(json.loads("".join(shlex.split(option)) or "{}"))
    except ValueError:
        # A user edited it by hand: Ray judges it.
        return {}


def _counted(group: Group | None) -> str:
    if group is None or group.least == group.most:
        return wording.counted(group.least if group else 0, "node")
    return f"{group.least} to {group.most} nodes"
