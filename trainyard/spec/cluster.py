"""The cluster file: what a cluster consists of, in words that mean the same on every backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from trainyard.spec.fields import Duration, Filled, Listed, Name, Section, Size, Text, VariableName

Backend = Literal["local", "existing"]
Auth = Literal["token", "none"]
BUILT_BACKENDS: tuple[str, ...] = ("local", "existing")
PLANNED_BACKENDS: tuple[str, ...] = ("compose", "kuberay", "microk8s", "ec2")


@dataclass(frozen=True)
class NodeSpec:
    """One Ray node that the file asks for: `head`, or `<group>-<index>`."""

    name: str
    group: str
    cpus: int | None
    memory: int | None
    gpus: int


class Head(Section):
    """The node that holds Ray's head: scheduler, dashboard, and the runner of every run."""

    cpus: int | None = Field(
        default=None, ge=0, le=1024, description="CPUs that Ray may use on the head; 0 keeps tasks off it."
    )
    memory: Size | None = Field(default=None, description="Memory that Ray may use on the head.")
    gpus: int = Field(default=0, ge=0, le=64, description="Whole GPUs of the head.")


class WorkerGroup(Section):
    """Nodes that are alike."""

    name: Name = Field(description="The group's name; its nodes are NAME-0, NAME-1 and so on.")
    count: int | None = Field(
        default=None, ge=0, le=10_000, description="How many nodes, fixed. 1 unless min and max are given instead."
    )
    min: int | None = Field(
        default=None, ge=0, le=10_000, description="The fewest nodes of a group that grows and shrinks; 0 if left out."
    )
    max: int | None = Field(
        default=None, ge=1, le=10_000, description="The most nodes of a group that grows and shrinks."
    )
    cpus: int | None = Field(default=None, ge=0, le=1024, description="CPUs that Ray may use on each node.")
    memory: Size | None = Field(default=None, description="Memory that Ray may use on each node.")
    gpus: int = Field(default=0, ge=0, le=64, description="Whole GPUs of each node.")
    idle_timeout: Duration | None = Field(
        default=None, description="How long a node of a growing group may be idle before it is removed."
    )

    @property
    def wanted(self) -> int:
        """How many nodes `cluster.up` waits for: the fixed count, or the minimum."""
        if self.count is not None:
            return self.count
        return 1 if self.max is None else self.min or 0


class Registry(Section):
    """Where images are pushed to, and where the nodes pull them from."""

    address: Filled = Field(description="HOST:PORT, the same for whoever pushes and whoever pulls.")
    insecure: bool = Field(default=False, description="true: plain HTTP, without TLS.")
    username: Filled | None = Field(default=None, description="Who logs in; nobody if left out.")
    password_env: VariableName | None = Field(
        default=None,
        description="The environment variable that holds the password; the password itself is never written.",
    )
    password_file: Filled | None = Field(default=None, description="The file that holds the password.")


class LocalSection(Section):
    """What only the `local` backend knows."""

    simulated_gpus: bool = Field(
        default=False,
        description="true: nodes may declare GPUs that this machine does not have, to try a job's layout.",
    )


class ExistingSection(Section):
    """A Ray cluster that somebody else runs."""

    address: Filled = Field(description="The dashboard's address, such as http://127.0.0.1:8265.")
    token_env: VariableName | None = Field(default=None, description="The environment variable that holds the token.")
    token_file: Filled | None = Field(default=None, description="The file that holds the token.")


class ClusterSpec(Section):
    """A cluster file, validated."""

    name: Name = Field(description="The cluster's name: lower case, digits, '-'; at most 40 characters.")
    backend: Backend = Field(description="Who makes the nodes.")
    image: Filled | None = Field(default=None, description="A directory of images/, or a full image reference.")
    head: Head = Field(default=Head(), description="The head node.")
    workers: Listed[WorkerGroup] = Field(default=(), description="Groups of worker nodes.")
    env: dict[VariableName, Text] = Field(default={}, description="Environment variables of every Ray node.")
    registry: Registry | None = Field(default=None, description="Where images are kept.")
    auth: Auth = Field(
        default="token", description="Ray's dashboard runs any code sent to it: `none` is accepted for loopback only."
    )
    local: LocalSection = Field(default=LocalSection(), description="What only the `local` backend knows.")
    existing: ExistingSection | None = Field(default=None, description="What only the `existing` backend knows.")

    def nodes(self) -> tuple[NodeSpec, ...]:
        """Return every node that `cluster.up` waits for, the head first."""
        head = NodeSpec("head", "head", self.head.cpus, self.head.memory, self.head.gpus)
        workers = [
            NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
            for group in self.workers
            for index in range(group.wanted)
        ]
        return (head, *workers)
