"""How each node of a cluster is: what Kubernetes says of its pod, and what Ray says of all; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.backends.contract import NodeState, NodeStatus
from trainyard.backends.kuberay import counts, names
from trainyard.backends.kuberay import pod as pods
from trainyard.backends.kuberay.causes import cause, cause_cluster, cause_lost, cause_wait, progress
from trainyard.backends.kuberay.causes.facts import Facts, Object
from trainyard.backends.kuberay.look import Look
from trainyard.endpoint import ExpectedNode
from trainyard.spec.cluster import ClusterSpec

NO_POD = "no pod"
NOT_IN_RAY = "not yet in Ray"
HEAD = "head"
# CPUs, GPUs, memory in bytes.
_Size = tuple[int | None, int, int | None]


@dataclass(frozen=True)
class Group:
    """A group of nodes. `pods` are there, those that stay first; `count` are wanted, `most` may be.

    `cpus`, `gpus` and `memory` (bytes) are what each node was made to be.
    """

    name: str
    count: int
    most: int
    pods: tuple[Object, ...]
    cpus: int | None
    gpus: int
    memory: int | None

    @property
    def grows(self) -> bool:
        """Say whether Ray adds and removes nodes of it."""
        return self.most > self.count

    @property
    def counted(self) -> tuple[Object, ...]:
        """Return the pods that count: one that goes does not, beside its successor."""
        staying = sum(not pods.is_leaving(one) for one in self.pods)
        return self.pods[: max(staying, self.count)]

    @property
    def missing(self) -> tuple[str, ...]:
        """Return names for the nodes that have no pod."""
        return self.absent(self.count)

    def absent(self, until: int) -> tuple[str, ...]:
        """Return names for the nodes without a pod, of so many."""
        if self.name == HEAD:
            return () if self.pods else (HEAD,)
        return tuple(f"{self.name}-?{index + 1}" for index in range(len(self.pods), until))


def declared(spec: ClusterSpec, seen: Look) -> tuple[Group, ...]:
    """Return the groups that the file names, as large as it wants them, then those that only have pods."""
    counts = {HEAD: (1, 1), **{one.name: (one.wanted, one.most) for one in spec.workers}}
    sizes = {node.group: (node.cpus, node.gpus, node.memory) for node in spec.nodes()}
    return _groups(seen, counts, sizes)


def made(seen: Look) -> tuple[Group, ...]:
    """Return the groups as the cluster was made: its file may have been changed, and `cluster.scale` goes beyond it."""
    if seen.cluster is None:
        return ()
    most = counts.maximum(seen.cluster)
    least = counts.minimum(seen.cluster)
    return _groups(seen, {name: (count, most[name]) for name, count in least.items()}, {})


def statuses(found: tuple[Group, ...], facts: Facts, answering: frozenset[str]) -> tuple[NodeStatus, ...]:
    """Return how each node is; `answering` are those that Ray calls alive."""
    return tuple(node for group in found for node in _statuses(group, facts, answering))


def expected(found: tuple[Group, ...]) -> Iterator[ExpectedNode]:
    """Return what the cluster promises: its pods, and those that Ray may add.

    Of a group that has more than its fewest nodes, Ray may remove any.
    """
    for group in found:
        optional = group.grows and len(group.counted) > group.count
        for one in group.counted:
            yield ExpectedNode(names.node_name(one), group.name, group.cpus, group.gpus, group.memory, optional)
        if group.grows:
            later = group.absent(group.most)[len(group.missing) :]
            yield from (ExpectedNode(one, group.name, group.cpus, group.gpus, group.memory, True) for one in later)


def down(found: tuple[Group, ...], facts: Facts) -> Iterator[tuple[str, str]]:
    """Return the nodes that are known not to run, each with why; not those that Ray may remove."""
    for group in found:
        yield from ((name, NO_POD) for name in group.missing)
        if group.grows and len(group.counted) > group.count:
            continue
        for one in group.counted:
            state, why = _state(one, facts, frozenset(), wanted=True)
            if state in ("absent", "broken") or pods.phase(one) != "Running":
                yield names.node_name(one), why


def problems(facts: Facts, nodes: tuple[NodeStatus, ...], *, asked: bool = True) -> Iterator[str]:
    """Return why the cluster is not up, in sentences. `asked`: Ray has said which nodes it has."""
    for one in cause.merged(cause_cluster.causes(facts)):
        # For how long the operator has been silent cannot be seen at one moment.
        yield one.brief if one.about == cause_cluster.OPERATOR else cause.sentence(one)
    yield from (
        f"{one.name}: {one.detail}"
        for one in nodes
        if one.detail and one.detail != NO_POD and (asked or one.detail != NOT_IN_RAY)
    )


def _groups(seen: Look, counts: Mapping[str, tuple[int, int]], sizes: Mapping[str, _Size]) -> tuple[Group, ...]:
    told = _told(seen.cluster)
    extra = [pods.group(one) for one in seen.pods if pods.group(one) not in counts]
    found = []
    for name in dict.fromkeys([*counts, *extra]):
        count, most = counts.get(name, (0, 0))
        cpus, gpus, memory = told.get(name) or sizes.get(name) or (None, 0, None)
        found.append(Group(name, count, most, _of(seen, name), cpus, gpus, memory))
    return tuple(found)


def _of(seen: Look, group: str) -> tuple[Object, ...]:
    """Return the pods of a group, those that stay first; a head that goes is none beside another."""
    if group == HEAD:
        return (seen.head,) if seen.head else ()
    ours = [one for one in seen.pods if pods.group(one) == group]
    return tuple(sorted(ours, key=pods.is_leaving))


def _statuses(group: Group, facts: Facts, answering: frozenset[str]) -> Iterator[NodeStatus]:
    allowed = group.most if group.grows else group.count
    for index, one in enumerate(group.pods):
        state, why = _state(one, facts, answering, wanted=index < allowed)
        yield NodeStatus(names.node_name(one), group.name, pods.host(one), state, group.cpus, group.gpus, why)
    for name in group.missing:
        yield NodeStatus(name, group.name, "", "absent", group.cpus, group.gpus, NO_POD)


def _state(pod: Object, facts: Facts, answering: frozenset[str], *, wanted: bool) -> tuple[NodeState, str]:
    wrong = cause.of_pod(pod, facts)
    if wrong and wrong.about not in cause_lost.UNSURE:
        # Every worker waits for its head for a while.
        return "starting" if wrong.about == cause_wait.ABOUT else "broken", wrong.brief
    if not wanted:
        return "surplus", progress.phrase("leaves") if pods.is_leaving(pod) else ""
    # What Ray calls alive runs tasks, whatever probes say: a kubelet that was started again calls its pods unready, and
    # a control plane that was away takes their hosts for lost.
    if pods.runs_ray(pod) and names.node_name(pod) in answering:
        return "up", wrong.brief if wrong else ""
    if wrong:
        return "starting", wrong.brief
    word = progress.doing(pod, facts)
    if word:
        return "broken" if word == "leaves" else "starting", progress.phrase(word)
    return "starting", NOT_IN_RAY


def _told(cluster: Object | None) -> dict[str, _Size]:
    """Return CPUs, GPUs and memory of each group, as Ray was told (document.py)."""
    if cluster is None:
        return {}
    spec = cluster["spec"]
    workers = {str(one["groupName"]): one for one in spec.get("workerGroupSpecs") or ()}
    every: Mapping[str, Any] = {HEAD: spec["headGroupSpec"], **workers}
    return {name: _size(one.get("rayStartParams") or {}) for name, one in every.items()}


def _size(told: Mapping[str, str]) -> _Size:
    cpus, memory = told.get("num-cpus"), told.get("memory")
    return int(cpus) if cpus else None, int(told.get("num-gpus") or 0), int(memory) if memory else None
