"""What every backend offers, and the words it answers in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from trainyard.endpoint import Endpoint
from trainyard.errors import NotReadyError, RequestError, TrainyardError
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step
from trainyard.wording import did_you_mean, named

Found = TypeVar("Found")

# "absent": nothing of it exists; "broken": it exists, and nothing of it works.
ClusterState = Literal["up", "partial", "absent", "broken"]
NodeState = Literal["up", "starting", "absent", "broken", "surplus"]
HostRole = Literal["control plane", "worker"]
HostState = Literal["ready", "not ready", "not joined", "unreachable"]
# The hint where a host pulls an image and cannot run it.
LINT = "See what is wrong with it: trainyard image.lint"


@dataclass(frozen=True)
class Traits:
    """What sets a backend apart, for those who do not know its name.

    `makes_nodes`: somebody else runs the cluster where it does not. `names_change`: a node gets its
    name as it is made, GROUP-..., and another one when it is made anew. `pushed_image`: the command
    that comes after `image.push`, "" where nodes run no images. `leaves`: what `cluster.down`
    without --purge leaves for other clusters. `joins_hosts`: its file names hosts that join, and
    those that it no longer names leave when asked to. `has_leash`: its clusters can end themselves.
    `has_regions`: they may be in regions that no file and no record here names. `nodes_pull`: its
    nodes are not where images are built, and pull theirs from a registry. `grows`: it can ask for
    more machines, for groups with `min` and `max`. `gpus_here`: how many GPUs its nodes can have at
    most, where they are processes of this machine; None: any number. `waits`: the key of a cluster
    file that says how long machines may take to come, "" where none come by themselves. `flags` of
    cluster.up and cluster.down mean something to it alone. `storage_stays`: storage of a cluster of
    this file, on which checkpoints may be, is not its own, and outlives `cluster.down`.
    """

    makes_nodes: bool = True
    names_change: bool = False
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
class Tools:
    """What a backend needs besides the cluster file: where it may keep things, and what was asked
    for.

    `overrides` are the values of `--set`, as typed; `directory` is where the user's own images/ are
    looked for. `remove`: hosts that the file no longer names leave; `force`: also those that cannot
    be reached. `adopt`: what somebody else made by this name is ours from now on; `keep_disks`:
    those of nodes outlive the cluster. `backend` is the name under which the cluster is recorded:
    one backend may make its clusters by another's functions.
    """

    state: Path
    environ: Mapping[str, str]
    backend: str
    source: Path | None = None
    recreate: bool = False
    remove: bool = False
    force: bool = False
    adopt: bool = False
    keep_disks: bool = False
    overrides: tuple[str, ...] = ()
    directory: Path = Path()

    def overriding(self, *keys: str) -> list[str]:
        """Return the values of `--set` that are of one of these keys."""
        return [
            override for override in self.overrides if override.partition("=")[0].strip() in keys
        ]


@dataclass(frozen=True)
class NodeStatus:
    """One node, as it is now.

    `detail` says why, if it is not up; `instance` is what the cloud says of its machine.
    `is_pulling`: its image is on its way, as far as the backend can tell.
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
    """One host, as it is now; what is not known is None. `detail` says why, if it is not ready.

    `name` is the file's, `host` Kubernetes', by which nodes name theirs; `nodes` are the names of
    those on it. `voter`: the database of the control planes counts on it. `certificate` is the one
    that ends first, in `certificate_days`.
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
    """Something that is wrong or will be: with what, what it breaks, what to do.

    `step` makes it right; None where only a person, or another command, can. `then` are steps of
    which it is known after that alone whether they hold.
    """

    subject: str
    message: str
    remedy: str
    step: Step | None = None
    then: tuple[Step, ...] = ()


@dataclass(frozen=True)
class LeashStatus:
    """What ends a cluster by itself: after `idle` seconds without a job, at its `deadline` (Unix
    seconds), or both.

    Idle time counts from `since`, in Unix seconds, or from the end of the last job. `problem`: why
    it does not hold.
    """

    idle: float | None
    deadline: float | None
    since: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster, as it is now. `tunnel` is as in Endpoint; `remark` is worth a line however it is.

    `hosts` asks those that the backend makes nodes of, which may take as long as a dead one does.
    `differences` say in what the cluster is not as its file says, as far as that is known without
    changing anything. `owner` is whose it is, "" where the backend does not know. `gcs` is the
    address (host:port) of Ray's GCS, where programs of this machine reach it. `token` is the
    dashboard's; `token_file` holds it, or `token_command` prints it, where it is kept with the
    cluster.
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
    """A cluster that somebody else made, and the content of a file by which it is used as it is."""

    name: str
    namespace: str
    is_up: bool
    file: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundCluster:
    """A cluster of ours that an outside system has, whichever file it was made from.

    `flags` are those of cluster.* that mean it: "--set kuberay.namespace=team".
    """

    name: str
    location: str
    is_up: bool
    flags: str


@dataclass(frozen=True)
class Discovered:
    """What `discover` found.

    By the names of the clusters that it was given: `locations` where they are, `problems` why they
    cannot be asked. `others` are those that no given cluster is; `remarks` what could not be looked
    into.
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
    """Every host of a cluster; `remark` says which could not be tried, or only under which name."""

    hosts: tuple[HostResult, ...]
    remark: str = ""

    @property
    def error(self) -> TrainyardError | None:
        """Return the first host's error; the table shows them all."""
        for host in self.hosts:
            if host.error:
                return host.error
        return None


# A function of a cluster, by what its file says and what the command was given.
_Of = Callable[[ClusterSpec, Tools], Found]


class DownSteps(Protocol):
    """The steps that remove the cluster and prove that nothing is left; the last forgets where it
    was.

    They must work on a half-made cluster, and on one whose file was edited since: what is recorded
    counts. With `purge`, of which only a backend that `leaves` something is asked, also what was
    made for clusters in general; where others need it, its stage raises before anything is removed.
    """

    def __call__(
        self, spec: ClusterSpec, tools: Tools, /, *, purge: bool
    ) -> Sequence[Step | Stage]: ...


class Verify(Protocol):
    """Lets every host pull the image by its digest, which asks the registry, and run it."""

    def __call__(
        self, spec: ClusterSpec, tools: Tools, /, *, report: Callable[[str], None]
    ) -> Verified: ...


class Logs(Protocol):
    """What the nodes' own log files say, from their ends on; of one node, or host, if that is
    named.
    """

    def __call__(
        self, spec: ClusterSpec, tools: Tools, /, *, follow: bool, node: str = ""
    ) -> Iterator[LogLine]: ...


class Shell(Protocol):
    """The program, with its arguments, that is a shell on a node or host, or runs a command line
    there.

    Without a `terminal` none is made there.
    """

    def __call__(
        self, spec: ClusterSpec, tools: Tools, /, *, node: str, command: str, terminal: bool
    ) -> list[str]: ...


class Discover(Protocol):
    """Finds clusters of ours where these are, for `cluster.list`; `states` are records without a
    file.

    A backend that has regions also looks into this one, or into "all".
    """

    def __call__(
        self,
        clusters: Sequence[tuple[ClusterSpec, Tools]],
        states: Sequence[Path],
        environ: Mapping[str, str],
        /,
        *,
        region: str | None = None,
    ) -> Discovered: ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A way to have a cluster: the functions of its module, None for what it leaves out (see
    `answers`).

    `up_steps` make the cluster match its file, `down_steps` remove it. Lists of steps are built
    without asking anybody but this machine: what can only be known later is a stage. `status` asks
    how the cluster is. `connect` returns where it answers, and raises NotReadyError when there is
    no cluster to connect to. `documents` are what an outside system would be given to make the
    cluster, without secrets. `diagnose` looks for what will break below the nodes, whether or not
    the cluster exists, and changes nothing. `billed` says what of the cluster runs and costs money
    as long as it does, each in a few words.
    """

    traits: Traits
    up_steps: _Of[Sequence[Step | Stage]]
    down_steps: DownSteps
    status: _Of[ClusterStatus]
    connect: _Of[Endpoint]
    logs: Logs
    documents: _Of[list[dict[str, Any]]] | None = None
    diagnose: _Of[list[Finding]] | None = None
    billed: _Of[list[str]] | None = None
    discover: Discover | None = None
    shell: Shell | None = None
    verify: Verify | None = None


def not_up(name: str) -> NotReadyError:
    return NotReadyError(f"cluster {name} is not up", hint="Make it: trainyard cluster.up")


class UnknownNodeError(RequestError):
    """No node of the cluster has that name."""


def pick(known: Mapping[str, Found], node: str, *, cluster: str) -> Found:
    """Return what a name means.

    Raises UnknownNodeError with the names that there are, NotReadyError if there are none.
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
    """Return what runs a command line in a container of ours; without one, what asks for them."""
    if command:
        return ["bash", "-c", command]
    return ["bash"]
