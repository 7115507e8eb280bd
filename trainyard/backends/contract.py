"""What every backend offers, and the words it answers in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from trainyard.endpoint import Endpoint
from trainyard.images.verified import Verified
from trainyard.spec.cluster import ClusterSpec
from trainyard.steps import Stage, Step

ClusterState = Literal["up", "partial", "down"]
NodeState = Literal["up", "starting", "down", "surplus"]


@dataclass(frozen=True)
class Tools:
    """What a backend needs besides the cluster file: where it may keep things, and what was asked for.

    `overrides` are the values of `--set`, as typed; `directory` is where the user's own images/ are looked for.
    `backend` is the name under which the cluster is recorded: one backend may make its clusters by another's functions.
    """

    state: Path
    environ: Mapping[str, str]
    backend: str
    source: Path | None = None
    recreate: bool = False
    overrides: tuple[str, ...] = ()
    directory: Path = Path()


@dataclass(frozen=True)
class NodeStatus:
    """One node, as it is now. `detail` says why, if it is not up."""

    name: str
    group: str
    host: str
    state: NodeState
    cpus: int | None
    gpus: int
    detail: str = ""


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster, as it is now. `tunnel` is as in Endpoint; `remark` is worth a line however it is.

    `token` is the dashboard's; `token_file` holds it, or `token_command` prints it, where it is kept with the cluster.
    """

    name: str
    backend: str
    state: ClusterState
    nodes: tuple[NodeStatus, ...]
    address: str | None = None
    token_file: Path | None = None
    simulated_gpus: bool = False
    detail: str = ""
    tunnel: str | None = None
    token_command: str | None = None
    remark: str = ""
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LogLine:
    """One line of a node's log file."""

    node: str
    file: str
    text: str


class Backend(Protocol):
    """A way to have a cluster: a module with these functions.

    `down_steps` must work on a half-made cluster, and on one whose file was edited since: what is recorded counts.
    `connect` raises NotReadyError when there is no cluster to connect to. Lists of steps are built without asking
    anybody anything: what can only be known later is a stage.
    """

    def up_steps(self, spec: ClusterSpec, tools: Tools) -> Sequence[Step | Stage]:
        """Return the steps that make the cluster match its file."""

    def documents(self, spec: ClusterSpec, tools: Tools) -> list[dict[str, Any]]:
        """Return what an outside system would be given to make the cluster, without secrets; [] where there is none."""

    def down_steps(self, spec: ClusterSpec, tools: Tools, *, purge: bool) -> Sequence[Step | Stage]:
        """Return the steps that remove the cluster and prove that nothing is left; the last forgets where it was.

        With `purge` also what was made for clusters in general. Raises RequestError where there is no such thing; where
        others need it, its stage raises before anything is removed.
        """

    def verify(self, spec: ClusterSpec, tools: Tools, *, report: Callable[[str], None]) -> Verified:
        """Let every host pull the image by its digest, which asks the registry, and run it.

        Raises RequestError where nodes run no images.
        """

    def status(self, spec: ClusterSpec, tools: Tools) -> ClusterStatus:
        """Ask how the cluster is."""

    def connect(self, spec: ClusterSpec, tools: Tools) -> Endpoint:
        """Return the way in."""

    def logs(self, spec: ClusterSpec, tools: Tools, *, follow: bool) -> Iterator[LogLine]:
        """Return what the nodes' own log files say, from their ends on."""
