"""The contract of backends: their functions, and the types of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, RequestError, TrainyardError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step
from trainyard.wording import did_you_mean, named

Found = TypeVar("Found")

# "absent": no node exists. "broken": nodes exist, and none works.
ClusterState = Literal["up", "partial", "absent", "broken"]
NodeState = Literal["up", "starting", "absent", "broken", "surplus"]
HostRole = Literal["control plane", "worker"]
HostState = Literal["ready", "not ready", "not joined", "unreachable"]
# The hint for an image that a host has pulled but cannot run.
LINT = "See what is wrong with it: trainyard image.lint"


@dataclass(frozen=True)
class Traits:
    """The traits of a backend: other code never depends on a backend's name.

    `makes_nodes`: False if another user owns the nodes.
    `pushed_image`: the command after `image.push`; "" if nodes run no images.
    `leaves`: names what only --purge removes, as other clusters may use it.
    `joins_hosts`: the file lists the hosts, and `up --remove` removes others.
    `has_leash`: its clusters can have a leash (see LeashStatus).
    `has_regions`: clusters are in regions, which `cluster.list` can search.
    `nodes_pull`: its nodes pull images from a registry.
    `grows`: groups with `min` and `max` get more machines while jobs run.
    `gpus_here`: counts this machine's GPUs for local nodes; None is no limit.
    `waits`: the file's key for the longest wait for added machines, or "".
    `flags`: flags of cluster.up and cluster.down that no other backend reads.
    `storage_stays`: whether outputs and checkpoints outlive `cluster.down`.
    """

    makes_nodes: bool = True
    pushed_image: str = ""
    leaves: str = ""
    joins_hosts: bool = False
    has_leash: bool = True
    has_regions: bool = False
    nodes_pull: bool = False
    grows: bool = True
    gpus_here: Callable[[ClusterSpec, Mapping[str, str]], int | None] = lambda _, __: None
    waits: str = ""
    flags: tuple[str, ...] = ()
    storage_stays: Callable[[ClusterSpec], bool] = lambda _: False


@dataclass(frozen=True)
class Wishes:
    """The flags of `cluster.up` and `cluster.down`, which no file can set.

    `recreate`: replace the head, and with it the cluster. `remove`: remove
    hosts that the file no longer names; `force`: even unreachable ones.
    `adopt`: become the owner of another user's cluster of this name.
    `keep_disks`: keep the nodes' disks when the cluster is removed.
    """

    recreate: bool = False
    remove: bool = False
    force: bool = False
    adopt: bool = False
    keep_disks: bool = False


@dataclass(frozen=True)
class Site:
    """The inputs of a backend other than the cluster file.

    `state` is the directory of the cluster's record. `backend` is the backend's
    name in that record, even while this backend calls another backend's
    functions. `source` is the cluster file's path. `overrides` are the values
    of `--set`, as typed. `directory` contains the user's own images/.
    """

    state: Path
    environ: Mapping[str, str]
    backend: str
    source: Path | None = None
    overrides: tuple[str, ...] = ()
    directory: Path = Path()
    wishes: Wishes = Wishes()

    def wishing(self, **flags: bool) -> Site:
        return replace(self, wishes=replace(self.wishes, **flags))

    def overriding(self, *keys: str) -> list[str]:
        return [
            override for override in self.overrides if override.partition("=")[0].strip() in keys
        ]


@dataclass(frozen=True)
class NodeStatus:
    """The present state of one node.

    `detail` is the reason for any state but "up". `instance` is the cloud's
    description of the machine.
    """

    name: str
    group: str
    host: str
    state: NodeState
    cpus: int | None
    gpus: int
    detail: str = ""
    instance: Mapping[str, str] | None = None
    is_pulling: bool = False


@dataclass(frozen=True)
class HostStatus:
    """The present state of one host; an unknown value is None.

    `name` is the host's name in the cluster file, `host` its name in
    Kubernetes, as in `NodeStatus.host`. `nodes` are the names of the Ray nodes
    on it. `voter`: the host votes in the database of the control planes
    (dqlite). `certificate` is the certificate that expires first, in
    `certificate_days`. `detail` is the reason for any state but "ready".
    """

    name: str
    address: str
    role: HostRole
    state: HostState
    version: str | None
    voter: bool | None
    certificate: str | None
    certificate_days: int | None
    nodes: tuple[str, ...]
    gpus: int | None
    detail: str = ""
    host: str | None = None


@dataclass(frozen=True)
class Finding:
    """A present or future fault that `cluster.doctor` found.

    `step` repairs the fault; None if only a person or another command can.
    Whether the steps in `then` are needed is known only after `step`.
    """

    subject: str
    message: str
    remedy: str
    step: Step | None = None
    then: tuple[Step, ...] = ()


@dataclass(frozen=True)
class LeashStatus:
    """A leash removes a cluster after `idle` seconds, or at `deadline`.

    `deadline` and `since` are in Unix seconds. `idle` or `deadline` is None
    without such a limit. Idle time starts at the end of the last job; before
    the first job, at `since`. `problem` says why the leash cannot remove the
    cluster; "" if it can.
    """

    idle: float | None
    deadline: float | None
    since: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class ClusterStatus:
    """The present state of a cluster.

    `hosts` queries every host; a host that is down delays the answer by a
    timeout. `differences` are the drift from the cluster file that read-only
    queries find. `owner` is "" if unknown. `gcs` is the address (host:port) of
    Ray's GCS, None if this machine cannot reach it. `token` is the dashboard's
    token. `token_file` is the token's local file; `token_command` prints a
    token that is stored in the cluster. `tunnel` is as in Endpoint. `remark` is
    shown in every state.
    """

    name: str
    backend: str
    state: ClusterState
    nodes: tuple[NodeStatus, ...]
    address: str | None = None
    token_file: Path | None = None
    gcs: str | None = None
    simulated_gpus: bool = False
    detail: str = ""
    tunnel: str | None = None
    token_command: str | None = None
    remark: str = ""
    differences: tuple[str, ...] = ()
    hosts: Callable[[], tuple[HostStatus, ...]] = tuple
    token: str | None = field(default=None, repr=False)
    leash: LeashStatus | None = None
    owner: str = ""


@dataclass(frozen=True)
class LogLine:
    """One line of a node's log file."""

    node: str
    file: str
    text: str


@dataclass(frozen=True)
class OthersCluster:
    """A cluster that Trainyard did not make, and a `file` that uses it."""

    name: str
    namespace: str
    is_up: bool
    file: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundCluster:
    """A cluster that an outside system lists; its file may be elsewhere.

    `flags` select the cluster in other commands: "--set
    kuberay.namespace=team".
    """

    name: str
    location: str
    is_up: bool
    flags: str


@dataclass(frozen=True)
class Discovered:
    """The answer of `discover`.

    `locations` and `problems` say by name where each given cluster is, or why
    it cannot be queried. `others` are the found clusters that were not given.
    `remarks` name places that could not be searched.
    """

    locations: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    others: tuple[FoundCluster, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostResult:
    """One host, and whether it pulled and ran the image."""

    host: str
    reference: str
    seconds: float
    result: str
    error: TrainyardError | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Verified:
    """The result of each host that was tried.

    `remark` names hosts that were not tried, and says if the image had no
    digest.
    """

    hosts: tuple[HostResult, ...]
    remark: str = ""

    @property
    def error(self) -> TrainyardError | None:
        for host in self.hosts:
            if host.error:
                return host.error
        return None


_Of = Callable[[ClusterSpec, Site], Found]


class DownSteps(Protocol):
    """Return the steps that remove the cluster; the last deletes its record.

    The steps follow the record, not the file: they also remove a half-made
    cluster, and one whose file has changed. With `purge` they also remove what
    the trait `leaves` names, or raise before any change if other users need it.
    Only a backend with that trait gets `purge`.
    """

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, purge: bool
    ) -> Sequence[Step | Stage]: ...


class Verify(Protocol):
    """Let every host pull the image by its digest, and run it."""

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, report: Callable[[str], None]
    ) -> Verified: ...


class Logs(Protocol):
    """Yield the last lines of the nodes' logs; with `follow`, later ones too.

    `node` selects one node or host; "" means all.
    """

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, follow: bool, node: str = ""
    ) -> Iterator[LogLine]: ...


class Shell(Protocol):
    """Return a local command that runs a shell or `command` on a node or host.

    `terminal`: allocate a terminal there.
    """

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, node: str, command: str, terminal: bool
    ) -> list[str]: ...


class Discover(Protocol):
    """Search for more clusters where the given clusters and records are.

    `states` are the record directories of clusters without a file here. A
    backend that `has_regions` also searches `region`; "all" means every region.
    """

    def __call__(
        self,
        clusters: Sequence[tuple[ClusterSpec, Site]],
        states: Sequence[Path],
        environ: Mapping[str, str],
        /,
        *,
        region: str | None = None,
    ) -> Discovered: ...


def answers_nothing(spec: ClusterSpec, site: Site) -> list[Any]:
    """Answer for a backend without documents, findings or costs."""
    return []


def finds_nothing(
    clusters: Sequence[tuple[ClusterSpec, Site]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Answer for a backend whose clusters are known only from local records."""
    return Discovered()


def has_no_shell(
    spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool
) -> list[str]:
    raise RequestError(
        f"cluster {spec.name} ({site.backend}) has no nodes on which a shell could be started",
        hint="The nodes are processes of this machine, or belong to another user: open a shell on "
        "their machine yourself. Their ports need no tunnel.",
    )


def runs_no_images(spec: ClusterSpec, site: Site, *, report: Callable[[str], None]) -> Verified:
    raise RequestError(
        f"cluster {spec.name} ({site.backend}) runs no images: there is nothing to verify",
        hint="Its nodes are not containers that Trainyard made. Name a cluster whose backend is "
        "compose or kuberay: trainyard image.verify --backend compose",
    )


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The traits and functions of one backend.

    `up_steps` make the cluster match its file, `down_steps` remove it. Both
    return at once: steps that need an outside system's answers are in a Stage,
    which is expanded later. `connect` returns the dashboard's endpoint;
    NotReadyError without a running head. `documents` are the manifests that
    make the cluster, without secrets. `diagnose` finds faults of hosts and
    operators, even before the cluster exists, and changes nothing. `billed`
    names each running part that costs money.
    """

    traits: Traits
    up_steps: _Of[Sequence[Step | Stage]]
    down_steps: DownSteps
    status: _Of[ClusterStatus]
    connect: _Of[Endpoint]
    logs: Logs
    documents: _Of[list[dict[str, Any]]] = answers_nothing
    diagnose: _Of[list[Finding]] = answers_nothing
    billed: _Of[list[str]] = answers_nothing
    discover: Discover = finds_nothing
    shell: Shell = has_no_shell
    verify: Verify = runs_no_images


def not_up(name: str) -> NotReadyError:
    return NotReadyError(f"cluster {name} is not up", hint="Make it: trainyard cluster.up")


class UnknownNodeError(RequestError):
    """No node of the cluster has that name."""


def pick(known: Mapping[str, Found], node: str, *, cluster: str) -> Found:
    """Return the node's entry.

    Raises UnknownNodeError, or NotReadyError if no node is known.
    """
    if not known:
        raise not_up(cluster)
    if node not in known:
        raise UnknownNodeError(
            f"cluster {cluster} has no node {node!r}{did_you_mean(node, known)}",
            hint=f"It has: {named(tuple(known), most=20)}",
        )
    return known[node]


def shell_words(command: str) -> list[str]:
    """Return the bash command in a container; "" means an interactive bash."""
    if command:
        return ["bash", "-c", command]
    return ["bash"]
