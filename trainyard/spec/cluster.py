"""The cluster file: what a cluster consists of, in words that mean the same on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from trainyard.spec.docker import BuildSection, ComposeSection, Image, Registry
from trainyard.spec.existing import ExistingSection
from trainyard.spec.fields import Complaint, Listed, Name, OwnVariables, Section, rule, same_names, setting
from trainyard.spec.kubernetes import KuberaySection
from trainyard.spec.nodes import Head, NodeSpec, WorkerGroup

Backend = Literal["local", "compose", "kuberay", "existing"]
Groups = Annotated[Listed[WorkerGroup], rule(lambda groups: same_names([group.name for group in groups], "workers"))]


class LocalSection(Section):
    """Head and workers as Ray processes of this machine."""

    simulated_gpus: bool = setting(
        False, "true: nodes may declare GPUs that this machine does not have, to try a job's layout."
    )


class ClusterSpec(Section):
    """A cluster file, validated."""

    name: Name = Field(description="The cluster's name, of lower-case letters, digits and '-', at most 40 characters.")
    backend: Backend = Field(
        description="What makes the nodes: local (processes of this machine), compose (containers of a Docker host), "
        "kuberay (pods on Kubernetes) or existing (a Ray cluster of somebody else)."
    )
    image: Image | None = setting(None, "A directory of images/, or a full image reference.")
    head: Head = setting(Head(), "The head node.")
    workers: Groups = setting((), "Groups of worker nodes.")
    env: OwnVariables = setting({}, "Environment variables of every Ray node.")
    registry: Registry | None = setting(None, "Where images are kept.")
    build: BuildSection = setting(BuildSection(), "How images are built here.")
    local: LocalSection = setting(LocalSection(), "What only the `local` backend knows.")
    compose: ComposeSection = setting(ComposeSection(), "What only the `compose` backend knows.")
    kuberay: KuberaySection = setting(KuberaySection(), "What only the `kuberay` backend knows.")
    existing: ExistingSection | None = setting(None, "What only the `existing` backend knows.")
    auth: Literal["token", "none"] = setting(
        "token", "Ray's dashboard runs any code sent to it: `none` is accepted for loopback only."
    )

    @property
    def docker_host(self) -> str | None:
        """The address of the Docker engine that runs the nodes; None: the one here, or none at all."""
        return self.compose.docker if self.backend == "compose" else None

    def complaints(self) -> Iterator[Complaint]:
        """Complain about sections that do not fit together."""
        if self.backend == "kuberay" and self.auth == "none":
            reason = "every pod of the Kubernetes cluster reaches the dashboard"
            yield Complaint(("auth",), f"must be 'token' with the backend kuberay: {reason}", self.auth)
        if self.backend == "existing" and self.existing is None:
            yield Complaint(("existing",), "is missing: the backend 'existing' needs the address of a Ray cluster")
        elif self.backend == "existing" and self.existing is not None:
            yield from self.existing.auth_complaints(self.auth)
        groups = ["head", *(group.name for group in self.workers)]
        for name in self.kuberay.groups:
            if name not in groups:
                yield Complaint(("kuberay", "groups", name), f"is no group of this file (it has: {', '.join(groups)})")

    def nodes(self) -> tuple[NodeSpec, ...]:
        """Return every node that `cluster.up` waits for, the head first."""
        head = NodeSpec("head", "head", self.head.cpus, self.head.memory, self.head.gpus)
        workers = [
            NodeSpec(f"{group.name}-{index}", group.name, group.cpus, group.memory, group.gpus)
            for group in self.workers
            for index in range(group.least)
        ]
        return (head, *workers)
