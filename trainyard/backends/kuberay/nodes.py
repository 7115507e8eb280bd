"""States of a cluster's nodes, and the nodes that a run may expect; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainyard_runner.wire.plan import ExpectedNode

from trainyard import wording
from trainyard.backends.contract import NodeState, NodeStatus
from trainyard.backends.kuberay import diagnosis, groups, naming, pods
from trainyard.backends.kuberay.diagnosis.host import NOT_READY
from trainyard.backends.kuberay.groups import HEAD, Group
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.seams.kube.types import Object

LEAVES = "is being removed"


class _Seen(NamedTuple):
    """The state of a pod's node; the fields are as in NodeStatus."""

    state: NodeState
    detail: str
    is_pulling: bool = False


def statuses(
    declared: Iterable[Group], snapshot: Snapshot, alive: frozenset[str]
) -> tuple[NodeStatus, ...]:
    """Return the status of every node; pods of other groups are surplus.

    `alive` are the names of the nodes that Ray calls alive.
    """
    known = {group.name: group for group in declared}
    for pod in snapshot.pods:
        known.setdefault(pods.group(pod), Group(pods.group(pod), 0, 0))

    found: list[NodeStatus] = []
    for group in known.values():
        found += _statuses(group, snapshot, alive)
    return tuple(found)


def text(nodes: Iterable[NodeStatus]) -> str:
    """Join the nodes' details: `head: pulls the image; a, b: starts Ray`."""
    by_detail: dict[str, list[str]] = {}
    for node in nodes:
        if node.detail:
            by_detail.setdefault(node.detail, []).append(node.name)
    return "; ".join(f"{wording.named(names)}: {detail}" for detail, names in by_detail.items())


def expected(made: Iterable[Group], nodes: Iterable[NodeStatus]) -> Iterator[ExpectedNode]:
    """Yield nodes for a run to expect; Ray may add or remove `optional` ones.

    If a group is above its minimum, all its nodes are optional: Ray chooses
    which to remove.
    """
    for group in made:
        existing = []
        for node in nodes:
            if node.group == group.name and node.state not in ("absent", "surplus"):
                existing.append(node.name)
        optional = group.most > group.least and len(existing) > group.least
        for name in existing:
            yield _expected(name, group, optional=optional)
        for index in range(max(len(existing), group.least), group.most):
            name = _unmade(group, index)
            yield _expected(name, group, optional=True)


def _expected(name: str, group: Group, *, optional: bool) -> ExpectedNode:
    return ExpectedNode(
        name, group.name, group.cpus, group.gpus, group.memory, optional, group.resources
    )


def _statuses(group: Group, snapshot: Snapshot, alive: frozenset[str]) -> Iterator[NodeStatus]:
    """Yield the status of each pod of a group, then of each node without a pod.

    A leaving pod counts as a node.
    """
    members = groups.members(group.name, snapshot.pods)
    for index, pod in enumerate(members):
        # Leaving pods come last. They are surplus if the other pods reach the minimum.
        limit = group.most
        if pods.is_leaving(pod):
            limit = group.least
        seen = _seen(pod, snapshot, alive, surplus=index >= limit)
        yield NodeStatus(
            naming.node_name(pod),
            group.name,
            pods.host(pod),
            seen.state,
            group.cpus,
            group.gpus,
            seen.detail,
            is_pulling=seen.is_pulling,
        )

    for index in range(len(members), group.least):
        name = _unmade(group, index)
        yield NodeStatus(name, group.name, "", "absent", group.cpus, group.gpus, "no pod")


def _unmade(group: Group, index: int) -> str:
    if group.name == HEAD:
        return HEAD
    return f"{group.name}-?{index + 1}"


def _seen(pod: Object, snapshot: Snapshot, alive: frozenset[str], *, surplus: bool) -> _Seen:
    cause = diagnosis.of_pod(pod, snapshot)
    # A node that Ray calls alive runs tasks, even if Kubernetes calls the host not ready, as after
    # a restart of a kubelet or control plane.
    lives = pods.runs_ray(pod) and naming.node_name(pod) in alive
    if cause and cause.key == diagnosis.WAITS_FOR_HEAD:
        # Every worker waits a while for its head.
        return _Seen("starting", cause.summary)
    if cause and not (lives and cause.key == NOT_READY):
        return _Seen("broken", cause.summary)

    if surplus and pods.is_leaving(pod):
        return _Seen("surplus", LEAVES)
    if surplus:
        return _Seen("surplus", "is surplus")
    if lives and cause:
        return _Seen("up", cause.summary)
    if lives:
        return _Seen("up", "")
    if pods.is_leaving(pod):
        return _Seen("broken", LEAVES)

    doing = _doing_by_status(pod)
    newest = pods.newest(snapshot.events_of(pod), "Pulling", "Pulled", "Created")
    if not doing and newest and pods.reason(newest) == "Pulling":
        return _Seen("starting", "pulls the image", is_pulling=True)
    return _Seen("starting", doing or "is being made")


def _doing_by_status(pod: Object) -> str:
    """Return what a pod is doing; "" if its status does not show it."""
    if pods.is_ready(pod):
        return "not yet in Ray"
    if not pods.host(pod):
        return "waits for a Kubernetes node"
    if pods.waits_for_head(pod):
        return "waits for the head"
    containers = pods.containers(pod)
    if any(container.failed and not container.ready for container in containers):
        return "ended and is started again"

    for container in containers:
        # Next, the kubelet starts Ray's container.
        if container.is_init and container.ended:
            return "starts Ray"
        if container.running_since and not container.is_init:
            return "starts Ray"
    return ""
