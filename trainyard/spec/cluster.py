"""The cluster file: what a cluster consists of, in words that mean the same on every backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from trainyard.spec import cluster_rules as rules
from trainyard.spec import kubernetes_cluster_rules as kubernetes
from trainyard.spec.complaints import Complaint, complain
from trainyard.spec.fields import Duration, Filled, Listed, Name, Section, Size, VariableName, Variables
from trainyard.spec.hosts import BuildSection, ComposeSection, Registry
from trainyard.spec.kubernetes import KuberaySection, ObjectName, ServiceName
from trainyard.spec.kubernetes_rules import check_groups
from trainyard.spec.yaml_source import KeyPath

Backend = Annotated[Literal["local", "compose", "kuberay", "existing"], BeforeValidator(rules.check_backend)]
Auth = Literal["token", "none"]
GroupName = Annotated[Name, AfterValidator(rules.check_group_name)]
NodeMemory = Annotated[Size, AfterValidator(rules.check_node_memory)]
Image = Annotated[Filled, AfterValidator(rules.check_image)]
DashboardAddress = Annotated[Filled, AfterValidator(rules.check_dashboard_address)]


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
    memory: NodeMemory | None = Field(default=None, description="Memory that Ray may use on the head.")
    gpus: int = Field(default=0, ge=0, le=64, description="Whole GPUs of the head.")


class WorkerGroup(Section):
    """Nodes that are alike."""

    name: GroupName = Field(description="The group's name; its nodes are NAME-0, NAME-1 and so on.")
    min: int | None = Field(
        default=None, ge=0, le=10_000, description="The fewest nodes of a group that grows and shrinks; 0 if left out."
    )
    max: int | None = Field(
        default=None, ge=1, le=10_000, description="The most nodes of a group that grows and shrinks."
    )
    count: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        validate_default=True,
        description="How many nodes, fixed; 1 unless min and max are given instead.",
    )
    cpus: int | None = Field(default=None, ge=0, le=1024, description="CPUs that Ray may use on each node.")
    memory: NodeMemory | None = Field(default=None, description="Memory that Ray may use on each node.")
    gpus: int = Field(default=0, ge=0, le=64, description="Whole GPUs of each node.")
    idle_timeout: Duration | None = Field(
        default=None, description="How long a node of a growing group may be idle before it is removed."
    )

    @field_validator("count")
    @classmethod
    def _fixed(cls, count: int | None, info: ValidationInfo) -> int | None:
        grows = info.data.get("min") is not None or info.data.get("max") is not None
        return count if count is not None or grows else 1

    @model_validator(mode="after")
    def _check(self) -> WorkerGroup:
        rules.check_group_size(self.count, self.min, self.max, idle_timeout=self.idle_timeout)
        return self

    @property
    def wanted(self) -> int:
        """How many nodes `cluster.up` waits for: the fixed count, or the minimum."""
        return self.min or 0 if self.count is None else self.count

    @property
    def most(self) -> int:
        """How many nodes there can be: the fixed count, or the maximum."""
        return self.wanted if self.max is None else self.max

    @property
    def grows(self) -> bool:
        """Whether Ray adds and removes nodes of this group by itself."""
        return self.most > self.wanted


class LocalSection(Section):
    """Head and workers as Ray processes of this machine."""

    simulated_gpus: bool = Field(
        default=False,
        description="true: nodes may declare GPUs that this machine does not have, to try a job's layout.",
    )


class ExistingSection(Section):
    """A Ray cluster that somebody else runs."""

    address: DashboardAddress | None = Field(
        default=None, description="The dashboard's address, such as http://127.0.0.1:8265."
    )
    service: ServiceName | None = Field(
        default=None, description="NAMESPACE/NAME of its service on Kubernetes; the port-forward is made for you."
    )
    port: int = Field(default=8265, ge=1, le=65535, description="The dashboard's port of that service.")
    kubeconfig: Filled | None = Field(
        default=None, description="The kubeconfig file for `service`; left out: $KUBECONFIG, else ~/.kube/config."
    )
    context: Filled | None = Field(default=None, description="A context of it; left out: its current one.")
    token_env: VariableName | None = Field(default=None, description="The environment variable that holds the token.")
    token_file: Filled | None = Field(default=None, description="The file that holds the token.")
    token_secret: ObjectName | None = Field(
        default=None, description="The Secret beside `service` whose key auth_token holds the token."
    )

    @model_validator(mode="after")
    def _check(self) -> ExistingSection:
        rules.check_one_address(self.address, self.service)
        rules.check_one_token(self.token_env, self.token_file, self.token_secret, service=self.service)
        return self


class ClusterSpec(Section):
    """A cluster file, validated."""

    name: Name = Field(description="The cluster's name, of lower-case letters, digits and '-', at most 40 characters.")
    backend: Backend = Field(
        description="Who makes the nodes: local (processes of this machine), compose (containers of a Docker host), "
        "kuberay (pods on Kubernetes) or existing (a Ray cluster of somebody else)."
    )
    image: Image | None = Field(default=None, description="A directory of images/, or a full image reference.")
    head: Head = Field(default=Head(), description="The head node.")
    workers: Listed[WorkerGroup] = Field(default=(), description="Groups of worker nodes.")
    env: Variables = Field(default={}, description="Environment variables of every Ray node.")
    registry: Registry | None = Field(default=None, description="Where images are kept.")
    build: BuildSection = Field(default=BuildSection(), description="How images are built here.")
    local: LocalSection = Field(default=LocalSection(), description="What only the `local` backend knows.")
    compose: ComposeSection = Field(default=ComposeSection(), description="What only the `compose` backend knows.")
    kuberay: KuberaySection = Field(
        default=KuberaySection(), validate_default=True, description="What only the `kuberay` backend knows."
    )
    existing: ExistingSection | None = Field(
        default=None, validate_default=True, description="What only the `existing` backend knows."
    )
    auth: Auth = Field(
        default="token",
        validate_default=True,
        description="Ray's dashboard runs any code sent to it: `none` is accepted for loopback only.",
    )

    @field_validator("workers")
    @classmethod
    def _check_workers(cls, workers: tuple[WorkerGroup, ...]) -> tuple[WorkerGroup, ...]:
        rules.check_group_names([group.name for group in workers])
        return workers

    @field_validator("env")
    @classmethod
    def _check_env(cls, env: dict[str, str]) -> dict[str, str]:
        rules.check_node_variables(env)
        return env

    @field_validator("kuberay")
    @classmethod
    def _check_kuberay(cls, kuberay: KuberaySection, info: ValidationInfo) -> KuberaySection:
        workers = info.data.get("workers")
        if workers is not None:
            check_groups(kuberay.groups, ["head", *(group.name for group in workers)])
        if info.data.get("backend") == "kuberay":
            complain(_kuberay_complaints(kuberay, info.data))
        return kuberay

    @field_validator("existing")
    @classmethod
    def _check_existing(cls, existing: ExistingSection | None, info: ValidationInfo) -> ExistingSection | None:
        rules.check_section(info.data.get("backend"), is_given=existing is not None)
        return existing

    @field_validator("auth")
    @classmethod
    def _check_auth(cls, auth: Auth, info: ValidationInfo) -> Auth:
        existing = info.data.get("existing")
        if info.data.get("backend") == "kuberay":
            kubernetes.check_auth(auth)
        if existing is not None and info.data.get("backend") == "existing":
            has_token = bool(existing.token_env or existing.token_file or existing.token_secret)
            rules.check_auth(auth, existing.address, has_token=has_token)
        return auth

    def nodes(self) -> tuple[NodeSpec, ...]:
        """Return every node that `cluster.up` waits for, the head first."""
        head = NodeSpec("head", "head", self.head.cpus, self.head.memory, self.head.gpus)
        workers = [
            NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
            for group in self.workers
            for index in range(group.wanted)
        ]
        return (head, *workers)


def _kuberay_complaints(kuberay: KuberaySection, given: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield what is wrong with a file whose nodes Kubernetes is to run; what was wrong before is not in `given`."""
    head: Head | None = given.get("head")
    workers: tuple[WorkerGroup, ...] = given.get("workers") or ()
    declared: dict[KeyPath, Head | WorkerGroup | None] = {("head",): head}
    declared |= {("workers", index): group for index, group in enumerate(workers)}
    memories = {path: node.memory for path, node in declared.items() if node is not None and node.memory is not None}
    spreads: dict[KeyPath, str | None] = {("spread",): kuberay.spread}
    spreads |= {("groups", name, "spread"): placement.spread for name, placement in kuberay.groups.items()}
    access = kuberay.storage.access if kuberay.storage else None
    yield from kubernetes.name_complaints(given.get("name"), [group.name for group in workers])
    yield from kubernetes.variable_complaints(given.get("env") or {})
    yield from kubernetes.memory_complaints(memories, kuberay.shm_size)
    yield from kubernetes.storage_complaints(access, spreads, nodes=1 + sum(group.most for group in workers))
