"""The contract of backends: the functions of each, and the types of their answers."""

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

# "absent": nothing of it exists; "broken": it exists, and nothing of it works.
ClusterState = Literal["up", "partial", "absent", "broken"]
NodeState = Literal["up", "starting", "absent", "broken", "surplus"]
HostRole = Literal["control plane", "worker"]
HostState = Literal["ready", "not ready", "not joined", "unreachable"]
# The hint where a host pulls an image and cannot run it.
LINT = "See what is wrong with it: trainyard image.lint"


@dataclass(frozen=True)
class Traits:
    """The traits by which code outside backends tells them apart without their names.

    `makes_nodes`: false where another user runs the cluster. `names_change`: a node gets its name
    as it is made, GROUP-..., and another one when it is replaced. `pushed_image`: the command that
    comes after `image.push`, "" where nodes run no images. `leaves`: what `cluster.down` without
    --purge leaves for other clusters. `joins_hosts`: its file names hosts that join, and those that
    it no longer names leave when asked to. `has_leash`: its clusters can end themselves.
    `has_regions`: they may be in regions that no file and no record here names. `nodes_pull`: its
    nodes are not where images are built, and pull theirs from a registry. `grows`: it can ask for
    more machines, for groups with `min` and `max`. `gpus_here`: how many GPUs its nodes can have at
    most, where they are processes of this machine; None: any number. `waits`: the key of a cluster
    file that says how long machines may take to come, "" where none come by themselves. `flags` of
    cluster.up and cluster.down that only it reads. `storage_stays`: storage of a cluster of this
    file, on which checkpoints may be, is not its own, and outlives `cluster.down`.
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
class Wishes:
    """The flags of `cluster.up` and `cluster.down`, none of which is in the cluster file.

    `recreate`: the head is replaced. `remove`: hosts that the file no longer names leave; `force`:
    also those that cannot be reached. `adopt`: another user's cluster of this name becomes this
    user's. `keep_disks`: those of nodes outlive the cluster.
    """

    recreate: bool = False
    remove: bool = False
    force: bool = False
    adopt: bool = False
    keep_disks: bool = False


@dataclass(frozen=True)
class Site:
    """The inputs of a backend besides the cluster file: places on this machine, and the flags.

    `backend` is the name under which the cluster is recorded: one backend may make its clusters by
    another's functions. `overrides` are the values of `--set`, as typed; `directory` is where the
    user's own images/ are looked for.
    """

    state: Path
    environ: Mapping[str, str]
    backend: str
    source: Path | None = None
    overrides: tuple[str, ...] = ()
    directory: Path = Path()
    wishes: Wishes = Wishes()

    def wishing(self, **flags: bool) -> Site:
        """Return a site with these flags, and all others as they are."""
        return replace(self, wishes=replace(self.wishes, **flags))

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
    """A thing that is wrong or will be: its subject, its effect, and the remedy.

    `step` makes it right; None where only a person, or another command, can. `then` are steps that
    can be asked only after that one.
    """

    subject: str
    message: str
    remedy: str
    step: Step | None = None
    then: tuple[Step, ...] = ()


@dataclass(frozen=True)
class LeashStatus:
    """A leash: it ends a cluster after `idle` seconds without a job, and at its `deadline`.

    `deadline` is in Unix seconds; either may be None. Idle time counts from `since`, in Unix
    seconds, or from the end of the last job. `problem`: why it does not hold.
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
    """Another user's cluster, and the content of a file by which it is used as it is."""

    name: str
    namespace: str
    is_up: bool
    file: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundCluster:
    """A cluster of this user that an outside system has, whichever file it was made from.

    `flags` are the flags of cluster.* that select it: "--set kuberay.namespace=team".
    """

    name: str
    location: str
    is_up: bool
    flags: str


@dataclass(frozen=True)
class Discovered:
    """The answer of `discover`.

    By the names of the clusters that it was given: `locations` where they are, `problems` why they
    cannot be asked. `others` are the clusters that no given one is; `remarks` name places that
    could not be searched.
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
_Of = Callable[[ClusterSpec, Site], Found]


class DownSteps(Protocol):
    """Return the steps that remove the cluster and prove it; the last one forgets its record.

    They must work on a half-made cluster, and on one whose file was edited since: what is recorded
    counts. With `purge`, which is given only to a backend that `leaves` something, the steps also
    remove what was made for clusters in general; if others need it, the stage raises before
    anything is removed.
    """

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, purge: bool
    ) -> Sequence[Step | Stage]: ...


class Verify(Protocol):
    """Let every host pull the image by its digest, which asks the registry, and run it."""

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, report: Callable[[str], None]
    ) -> Verified: ...


class Logs(Protocol):
    """Yield lines of the nodes' own log files, from their ends on; of one node or host if named."""

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, follow: bool, node: str = ""
    ) -> Iterator[LogLine]: ...


class Shell(Protocol):
    """Return the program, with arguments, that is a shell on a node or host, or runs a command.

    Without a `terminal` none is made there.
    """

    def __call__(
        self, spec: ClusterSpec, site: Site, /, *, node: str, command: str, terminal: bool
    ) -> list[str]: ...


class Discover(Protocol):
    """Find clusters at their places, for `cluster.list`; `states` are records without a file.

    A backend that has regions also searches this region, or "all".
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
    """Answer for a backend that has no documents, no findings or nothing that costs money."""
    return []


def finds_nothing(
    clusters: Sequence[tuple[ClusterSpec, Site]],
    states: Sequence[Path],
    environ: Mapping[str, str],
    *,
    region: str | None = None,
) -> Discovered:
    """Answer for a backend whose clusters are found by the records on this machine alone."""
    return Discovered()


def has_no_shell(
    spec: ClusterSpec, site: Site, *, node: str, command: str, terminal: bool
) -> list[str]:
    """Raise RequestError: the nodes are neither machines nor containers."""
    raise RequestError(
        f"cluster {spec.name} ({site.backend}) has no nodes on which a shell could be started",
        hint="They are processes of this machine, or somebody else's: use a shell there, and "
        "their ports as they are.",
    )


def runs_no_images(spec: ClusterSpec, site: Site, *, report: Callable[[str], None]) -> Verified:
    """Raise RequestError: there is no image to pull and run."""
    raise RequestError(
        f"cluster {spec.name} ({site.backend}) runs no images: there is nothing to verify",
        hint="Its nodes are not containers that Trainyard made. Name a cluster whose backend is "
        "compose or kuberay: trainyard image.verify --backend compose",
    )


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A way to have a cluster: the functions of its module; each of the last six has a default.

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
    """Return the node of this name.

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
    """Return the command that runs a command line in a container, or a shell without one."""
    if command:
        return ["bash", "-c", command]
    return ["bash"]
