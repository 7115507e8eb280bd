"""The nodes of a cluster: those that its file names, or it was made with, and how each is, or comes up; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from trainyard.backends import wording
from trainyard.backends.contract import NodeState, NodeStatus
from trainyard.backends.kuberay import diagnosis, naming, pods, replicas
from trainyard.backends.kuberay.diagnosis.host import NOT_READY
from trainyard.backends.kuberay.pods import Object
from trainyard.backends.kuberay.snapshot import Snapshot
from trainyard.backends.ray_nodes import MEBIBYTE
from trainyard.diagnosis import Diagnosis, merged
from trainyard.endpoint import ExpectedNode
from trainyard.spec.cluster import ClusterSpec
from trainyard.spec.units import format_size

PULLS = "pulls the image"
# What a node does, and how several of them do it.
_SEVERAL = {
    "is being removed": "are being removed",
    "waits for a Kubernetes node": "wait for a Kubernetes node",
    PULLS: "pull the image",
    "is being made": "are being made",
    "waits for the head": "wait for the head",
    "ended and is started again": "ended and are started again",
    "starts Ray": "start Ray",
}
NO_POD = "no pod"
NOT_IN_RAY = "not yet in Ray"
HEAD = "head"


def text(snapshot: Snapshot) -> str:
    """Return what is waited for, "" if nothing: `gpu-x7k2p pulls the image; cpu-k2x9v waits for the head`."""
    return "; ".join([*_unmade(snapshot), *_nodes(snapshot)])


def pulls(snapshot: Snapshot) -> bool:
    return any(doing(pod, snapshot) == PULLS for pod in _awaited(snapshot))


def doing(pod: Object, snapshot: Snapshot) -> str:
    """Return what a pod does that is not ready; "" if it is ready."""
    if pods.is_leaving(pod):
        return "is being removed"
    if pods.is_ready(pod):
        return ""
    if not pods.host(pod):
        return "waits for a Kubernetes node"
    containers = pods.containers(pod)
    if any(each.name == naming.WAIT_CONTAINER and each.running_since for each in containers):
        return "waits for the head"
    if any(each.failed and not each.ready for each in containers):
        return "ended and is started again"
    # When what comes before it has ended, the kubelet is about to start Ray.
    if any(each.ended if each.is_init else each.running_since for each in containers):
        return "starts Ray"
    newest = pods.newest(snapshot.events_of(pod), "Pulling", "Pulled", "Created")
    return PULLS if newest and pods.reason(newest) == "Pulling" else "is being made"


def _awaited(snapshot: Snapshot) -> Iterable[Object]:
    spare = replicas.spare(snapshot.owner, snapshot.pods)
    return [pod for pod in snapshot.pods if pods.uid(pod) not in spare]


def _nodes(snapshot: Snapshot) -> Iterator[str]:
    """Return what is wrong with nodes, then what the others do."""
    problems: list[Diagnosis] = []
    nodes: dict[str, list[str]] = {}
    for pod in _awaited(snapshot):
        cause = diagnosis.of_pod(pod, snapshot)
        # Every worker waits for its head for a while.
        if cause and cause.key != diagnosis.WAITS_FOR_HEAD:
            problems.append(cause)
        elif what := doing(pod, snapshot):
            nodes.setdefault(what, []).append(snapshot.name(pod))
    yield from (cause.sentence().removesuffix(diagnosis.LOG_FOLLOWS) for cause in merged(problems))
    for what, names in nodes.items():
        yield f"{wording.named(names)} {what if len(names) == 1 else _SEVERAL[what]}"


def _unmade(snapshot: Snapshot) -> Iterator[str]:
    """Return which pods the operator has still to make."""
    if snapshot.owner is None:
        return
    missing = replicas.missing(snapshot.owner, snapshot.pods, counts=replicas.minimum(snapshot.owner))
    if missing:
        yield f"KubeRay makes {replicas.named(missing)}"
    elif not replicas.is_observed(snapshot.owner):
        yield "KubeRay looks at the change"


@dataclass(frozen=True)
class Size:
    """What each node of a group is for Ray; memory in bytes."""

    cpus: int | None = None
    gpus: int = 0
    memory: int | None = None


@dataclass(frozen=True)
class Group:
    """A group of nodes. `pods` exist, those that stay first; `count` should exist, `most` may."""

    name: str
    count: int
    most: int
    pods: tuple[Object, ...]
    size: Size

    @property
    def grows(self) -> bool:
        return self.most > self.count

    @property
    def counted(self) -> tuple[Object, ...]:
        """Return the pods that count: one that is being deleted does not, beside its successor."""
        staying = sum(not pods.is_leaving(pod) for pod in self.pods)
        return self.pods[: max(staying, self.count)]

    def missing(self, until: int) -> tuple[str, ...]:
        if self.name == HEAD:
            return () if self.pods else (HEAD,)
        return tuple(f"{self.name}-?{index + 1}" for index in range(len(self.pods), until))


def declared(spec: ClusterSpec, snapshot: Snapshot) -> tuple[Group, ...]:
    """Return the groups that the file names, as large as it says, then those that only have pods."""
    return _groups(snapshot, _file_counts(spec), {**_file_sizes(spec), **_made_sizes(snapshot.owner)})


def made(snapshot: Snapshot) -> tuple[Group, ...]:
    """Return the groups as the cluster was made: its file may have been changed, and `cluster.scale` goes beyond it."""
    if snapshot.owner is None:
        return ()
    return _groups(snapshot, _made_counts(snapshot.owner), _made_sizes(snapshot.owner))


def differences(spec: ClusterSpec, snapshot: Snapshot) -> Iterator[str]:
    """Return in what the cluster that was made differs from its file: `cpu: 2 nodes now, 3 wanted`."""
    if snapshot.owner is None:
        return
    made, wanted = _made_counts(snapshot.owner), _file_counts(spec)
    for name in dict.fromkeys([*wanted, *made]):
        now, then = made.get(name, (0, 0)), wanted.get(name, (0, 0))
        if now != then:
            yield f"{name}: {_range(now)} now, {_range(then)} wanted"
    sizes = _made_sizes(snapshot.owner)
    for name, size in _file_sizes(spec).items():
        for field, then in asdict(size).items():
            now = getattr(sizes.get(name, size), field)
            if then is not None and now != then:
                yield f"{name}: {field}: {_shown(now)} now, {_shown(then)} wanted"


def statuses(groups: tuple[Group, ...], snapshot: Snapshot, alive: frozenset[str]) -> tuple[NodeStatus, ...]:
    return tuple(node for group in groups for node in _statuses(group, snapshot, alive))


def expected(groups: tuple[Group, ...]) -> Iterator[ExpectedNode]:
    """Return what the cluster promises: its pods, and those that Ray may add.

    Of a group that has more than its fewest nodes, Ray may remove any.
    """
    for group in groups:
        size = group.size
        optional = group.grows and len(group.counted) > group.count
        for pod in group.counted:
            yield ExpectedNode(naming.node_name(pod), group.name, size.cpus, size.gpus, size.memory, optional)
        for name in group.missing(group.most)[len(group.missing(group.count)) :]:
            yield ExpectedNode(name, group.name, size.cpus, size.gpus, size.memory, optional=True)


def down(groups: tuple[Group, ...], snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Return the nodes that are known not to run, each with why; not those that Ray may remove."""
    for group in groups:
        yield from ((name, NO_POD) for name in group.missing(group.count))
        if group.grows and len(group.counted) > group.count:
            continue
        for pod in group.counted:
            cause = diagnosis.of_pod(pod, snapshot)
            # Whether a node works on a host that Kubernetes calls not ready, Ray knows.
            if cause and cause.key == NOT_READY and pods.runs_ray(pod):
                continue
            state, why = _state(pod, snapshot, frozenset(), surplus=False)
            if state == "broken" or pods.phase(pod) != "Running":
                yield naming.node_name(pod), why


def _groups(snapshot: Snapshot, counts: Mapping[str, tuple[int, int]], sizes: Mapping[str, Size]) -> tuple[Group, ...]:
    extra = [pods.group(pod) for pod in snapshot.pods if pods.group(pod) not in counts]
    return tuple(
        Group(name, *counts.get(name, (0, 0)), _pods_of(snapshot, name), sizes.get(name, Size()))
        for name in dict.fromkeys([*counts, *extra])
    )


def _pods_of(snapshot: Snapshot, group: str) -> tuple[Object, ...]:
    """Return the pods of a group, those that stay first; a head that is being deleted is none beside another."""
    if group == HEAD:
        return (snapshot.head,) if snapshot.head else ()
    return tuple(sorted((pod for pod in snapshot.pods if pods.group(pod) == group), key=pods.is_leaving))


def _statuses(group: Group, snapshot: Snapshot, alive: frozenset[str]) -> Iterator[NodeStatus]:
    allowed, size = group.most if group.grows else group.count, group.size
    for index, pod in enumerate(group.pods):
        state, why = _state(pod, snapshot, alive, surplus=index >= allowed)
        yield NodeStatus(naming.node_name(pod), group.name, pods.host(pod), state, size.cpus, size.gpus, why)
    for name in group.missing(group.count):
        yield NodeStatus(name, group.name, "", "absent", size.cpus, size.gpus, NO_POD)


def _state(pod: Object, snapshot: Snapshot, alive: frozenset[str], *, surplus: bool) -> tuple[NodeState, str]:
    cause = diagnosis.of_pod(pod, snapshot)
    # What Ray calls alive runs tasks, whatever Kubernetes says: a kubelet that was started again calls its pods
    # unready, and a control plane that was away calls hosts not ready.
    lives = pods.runs_ray(pod) and naming.node_name(pod) in alive
    if cause and not (lives and cause.key == NOT_READY):
        # Every worker waits for its head for a while.
        return "starting" if cause.key == diagnosis.WAITS_FOR_HEAD else "broken", cause.summary
    if surplus:
        return "surplus", "is being removed" if pods.is_leaving(pod) else ""
    if lives:
        return "up", cause.summary if cause else ""
    if pods.is_leaving(pod):
        return "broken", "is being removed"
    return "starting", doing(pod, snapshot) or NOT_IN_RAY


def _file_counts(spec: ClusterSpec) -> dict[str, tuple[int, int]]:
    return {HEAD: (1, 1), **{group.name: (group.wanted, group.most) for group in spec.workers}}


def _made_counts(cluster: Object) -> dict[str, tuple[int, int]]:
    most = replicas.maximum(cluster)
    return {name: (count, most[name]) for name, count in replicas.minimum(cluster).items()}


def _file_sizes(spec: ClusterSpec) -> dict[str, Size]:
    return {node.group: Size(node.cpus, node.gpus, node.memory) for node in spec.nodes()}


def _made_sizes(cluster: Object | None) -> dict[str, Size]:
    """Return what the nodes of each group were started as (manifest/)."""
    if cluster is None:
        return {}
    groups = [{**cluster["spec"]["headGroupSpec"], "groupName": HEAD}, *(cluster["spec"].get("workerGroupSpecs") or ())]
    return {str(group["groupName"]): _size(group.get("rayStartParams") or {}) for group in groups}


def _size(started: Mapping[str, str]) -> Size:
    cpus, gpus, memory = (started.get(option) for option in ("num-cpus", "num-gpus", "memory"))
    return Size(int(cpus) if cpus else None, int(gpus or 0), int(memory) if memory else None)


def _range(counts: tuple[int, int]) -> str:
    least, most = counts
    return wording.counted(least, "node") if least == most else f"{least} to {most} nodes"


def _shown(value: int | None) -> str:
    return format_size(value) if value is not None and value >= MEBIBYTE else str(value)
